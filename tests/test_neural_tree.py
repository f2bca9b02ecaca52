"""Networks on label trees: candidates, walks, stages, and that nothing grows with labels times documents."""

import json

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labelwise.corpus import Corpus, Document, Splits
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadCorpus, BadSettings
from labelwise.evaluation import evaluate
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import load
from labelwise.methods.neural_tree import with_levels
from labelwise.network.batches import Examples
from labelwise.network.composition import EncoderSettings, NetworkSettings, build
from labelwise.network.rows import RowAdam, Rows
from labelwise.network.token_encoders import Tokens
from labelwise.network.training import Trainer, TrainingSettings
from labelwise.network.tree_network import TreeNetwork, held
from labelwise.network.tree_training import TreeTrainer, stages
from labelwise.progress import silent
from labelwise.registry import make_method
from labelwise.settings import override
from labelwise.trees.tree import LabelTree

QUICK = ("training.epochs=3", "words.width=16", "encoder.units=8", "training.batch=16", "mlp=[8]", "training.judge_steps=0")
SMALL = ("tree.use=always", "tree.leaf=4", "tree.top=3")


def method(name="attention-xml", *more):
    return make_method(name, override({}, [*QUICK, *SMALL, *more]))


@pytest.fixture(scope="module")
def world():
    return make_world(documents=120, labels=40, words=20)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tiny.bert(tmp_path_factory.mktemp("bert"))
    return (f"encoder.checkpoint={folder}", "encoder.segment=32", "training.learning_rate=0.003", "training.head_rate=3")


def flat_network(labels, decoder="dot", attention="auto", dropout=0.0):
    torch.manual_seed(3)
    given = NetworkSettings(
        decoder=decoder, attention=attention, mlp=(5,), encoder=EncoderSettings(units=3, cell="lstm", dropout=dropout)
    )
    network = build(given, torch.randn(20, 4), labels)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight) * 0.5)
    return network


def tree_of(*sizes, random=np.random.default_rng(5)):
    """A tree with so many nodes per level, children given out at random, each node at least one."""
    parents, above = [], 1
    for size in sizes:
        extra = random.integers(above, size=size - above)
        parents.append(np.sort(np.append(np.arange(above), extra)).astype(np.int32))
        above = size
    return LabelTree(tuple(parents), random.permutation(above).astype(np.int32))


def some_tokens(documents=6, longest=7):
    random = np.random.default_rng(2)
    lengths = torch.from_numpy(random.integers(0, longest + 1, documents))
    numbers = torch.from_numpy(random.integers(1, 20, (documents, longest)))
    return Tokens(numbers * (torch.arange(longest) < lengths[:, None]), lengths)


def grown(*sizes, top=3, shared=True, discount=1.0, **parts):
    flat = flat_network(sizes[-1], **parts)
    network = TreeNetwork.over(flat, tree_of(*sizes), top=top, shared=shared, discount=discount).eval()
    for weight in (*network.above.parameters(), *network.encoders.parameters()):  # no two clusters and no two encoders alike
        torch.nn.init.normal_(weight)
    return network


def gold_of(network, documents=6, most=3):
    random, labels = np.random.default_rng(8), len(network.tree.labels)
    return torch.from_numpy(np.sort(random.integers(0, labels + 1, (documents, most)), axis=1))  # the last number is padding


@pytest.mark.parametrize(
    ("decoder", "attention"), [("dot", "auto"), ("mlp", "auto"), ("dot", "projected"), ("tanh", "projected")]
)
@pytest.mark.parametrize("chunk", [10, 1 << 22], ids=["in chunks", "at once"])
def test_logits_and_gradients_of_candidates_are_the_columns_of_the_flat_network(monkeypatch, decoder, attention, chunk):
    monkeypatch.setattr("labelwise.network.decoders.CHUNK", {"cpu": chunk})
    network, tokens = flat_network(30, decoder, attention), some_tokens()
    candidates = torch.randint(30, (6, 11))
    weights = torch.rand(6, 11)
    found = []
    for some in (False, True):
        network.zero_grad()
        if some:
            network.label_encoder.sparse = True
            states = network.token_encoder(tokens)
            logits = network.decoder.among(network.attention, states, network.label_encoder, candidates, tokens.lengths)
        else:
            logits = network(tokens).gather(1, candidates)
        (logits * weights).sum().backward()
        gradients = {name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None}
        found.append((logits.detach(), gradients))
    (flat, dense), (among, sparse) = found
    torch.testing.assert_close(among, flat, atol=1e-6, rtol=1e-6)
    assert sparse["label_encoder.query"].is_sparse
    assert dense.keys() == sparse.keys()
    for name, gradient in sparse.items():
        torch.testing.assert_close(gradient.to_dense(), dense[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("shared", "discount"), [(True, 1), (False, 1), (True, 0.5)])
def test_chances_are_products_of_sigmoids_along_the_path_and_only_children_of_the_best_are_reached(shared, discount):
    network, tokens = grown(4, 9, 40, top=2, shared=shared, discount=discount), some_tokens()
    found = list(network.walk(tokens))
    chances = torch.ones(6, 1)
    kept = [{0} for _ in range(6)]
    encoders = [*network.encoders, network.token_encoder] if not shared else [network.token_encoder] * 3
    for parents, level, encoder, reached in zip(network.tree.parents, network.levels, encoders, found, strict=True):
        logits = level.decoder(level.attention, encoder(tokens), level.label_encoder(), tokens.lengths)
        chances = chances[:, parents] ** discount * logits.sigmoid()
        for row in range(6):
            nodes = {node for node, parent in enumerate(parents) if parent in kept[row]}
            real = reached.real[row]
            assert sorted(reached.nodes[row, real].tolist()) == sorted(nodes)
            torch.testing.assert_close(reached.chances[row, real], chances[row, reached.nodes[row, real]])
            assert not reached.chances[row, ~real].any()
            kept[row] = set(sorted(nodes, key=lambda node, row=row: -chances[row, node])[:2])


def test_in_training_true_clusters_come_first_and_the_best_others_fill_up():
    network, tokens = grown(12, 60, top=4), some_tokens()
    gold = gold_of(network)
    first, second = network.walk(tokens, gold)
    parents = network.tree.parents[1]
    for row in range(6):
        true = {int(parents[node]) for node in gold[row] if node < 60}
        ranked = first.chances[row].argsort(descending=True).tolist()
        wanted = {*true, *[node for node in ranked if node not in true][: 4 - len(true)]}
        assert {int(parents[node]) for node in second.nodes[row, second.real[row]]} == wanted


def test_more_true_clusters_than_are_kept_leave_the_likeliest_of_them():
    network, tokens = grown(12, 60, top=2), some_tokens()
    gold = torch.arange(60).expand(6, -1).contiguous()
    first, second = network.walk(tokens, gold)
    for row in range(6):
        best = set(first.chances[row].topk(2).indices.tolist())
        assert {int(network.tree.parents[1][node]) for node in second.nodes[row, second.real[row]]} == best


def test_the_loss_is_that_of_real_candidates_summed_over_levels_that_are_trained():
    network, tokens = grown(6, 30, top=3), some_tokens()
    gold = gold_of(network)
    means = []
    for reached, true in zip(network.walk(tokens, gold), network.ancestors(gold), strict=True):
        losses = []
        for row in range(6):
            for node, real, logit in zip(*(values[row].tolist() for values in reached[:3]), strict=True):
                if real:
                    chance = 1 / (1 + np.exp(-logit))
                    losses.append(-np.log(chance if node in true[row].tolist() else 1 - chance))
        means.append(np.mean(losses))
    assert network.loss_along(tokens, gold).item() == pytest.approx(sum(means), rel=1e-5)
    network.frozen = 1
    assert network.loss_along(tokens, gold).item() == pytest.approx(means[1], rel=1e-5)


def test_below_one_single_cluster_stands_the_flat_network():
    flat, tokens = flat_network(30, "mlp"), some_tokens()
    tree = LabelTree((np.zeros(1, dtype=np.int32), np.zeros(30, dtype=np.int32)), np.arange(30, dtype=np.int32))
    top, last = TreeNetwork.over(flat, tree, top=32, shared=True).eval().walk(tokens)
    assert last.nodes.tolist() == [list(range(30))] * 6
    torch.testing.assert_close(last.logits, flat(tokens), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(last.chances, top.chances * flat(tokens).sigmoid(), atol=1e-6, rtol=1e-6)


@given(
    gold=st.lists(st.lists(st.integers(0, 8), max_size=5, unique=True), min_size=1, max_size=5),
    nodes=st.lists(st.integers(0, 8), min_size=1, max_size=9),
)
def test_gold_labels_are_padded_and_found_among_candidates(gold, nodes):
    matrix = np.zeros((len(gold), 9), dtype=bool)
    for row, labels in enumerate(gold):
        matrix[row, labels] = True
    examples = Examples([np.ones(1, dtype=np.int32)] * len(gold), csr_array(matrix), [""] * len(gold))
    numbers = examples.numbers(np.arange(len(gold)))
    assert [[number for number in row if number < 9] for row in numbers.tolist()] == [sorted(labels) for labels in gold]
    found = held(numbers, torch.tensor(nodes).expand(len(gold), -1))
    assert found.tolist() == [[node in labels for node in nodes] for labels in gold]


@settings(deadline=None)
@given(touched=st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=6), wide=st.booleans())
def test_each_row_goes_as_adam_takes_it_in_the_steps_that_touch_it(touched, wide):
    torch.manual_seed(0)
    start = torch.randn(5, 3) if wide else torch.randn(5)
    table = torch.nn.Parameter(start.clone())
    alone = [torch.nn.Parameter(row.clone()) for row in start]
    ours = RowAdam([table], lr=0.1, eps=1e-7, fused=True)
    theirs = [torch.optim.Adam([row], lr=0.1, eps=1e-7) for row in alone]
    for step, rows in enumerate(touched):
        slopes = torch.randn(start.shape) * (step + 1)
        numbers = torch.tensor(sorted(rows))
        ours.zero_grad()
        (Rows.apply(table, numbers) * slopes[numbers]).sum().backward()
        ours.step()
        for row in rows:
            alone[row].grad = slopes[row]
            theirs[row].step()
    torch.testing.assert_close(table.detach(), torch.stack([row.detach() for row in alone]))


class Largest(TorchDispatchMode):
    """The most numbers in one tensor that an operation makes; weights and what belongs to them may be as large as they are."""

    def __init__(self, old):
        super().__init__()
        self.old, self.numbers = {tensor.untyped_storage().data_ptr() for tensor in old}, 0

    def __torch_dispatch__(self, function, types, given=(), more=None):
        made = function(*given, **(more or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                values = tensor._values() if tensor.is_sparse else tensor
                if values.untyped_storage().data_ptr() not in self.old:
                    self.numbers = max(self.numbers, values.untyped_storage().nbytes() // 4)
        return made


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_a_step_and_a_prediction_make_no_tensor_as_large_as_the_labels_whatever_the_batch(decoder):
    labels, random = 50_000, np.random.default_rng(1)
    sizes = [64, 1000]
    parents = [np.sort(np.arange(size) % above) for above, size in zip([1, *sizes], [*sizes, labels], strict=True)]
    tree = LabelTree(tuple(level.astype(np.int32) for level in parents), np.arange(labels, dtype=np.int32))
    network = TreeNetwork.over(flat_network(labels, decoder), tree, top=4, shared=True)
    gold = csr_array((np.ones(96, dtype=bool), (np.repeat(np.arange(32), 3), random.integers(labels, size=96))), (32, labels))
    examples = Examples([random.integers(1, 20, 6).astype(np.int32) for _ in range(32)], gold, [""] * 32)
    given = TrainingSettings(batch=32, clip_queue=True)
    trainer = TreeTrainer(network, given, examples, None, seed=1, device=torch.device("cpu"), progress=silent)
    trainer.norms = torch.tensor(trainer.state.norms)
    trainer._step(np.arange(32))  # moments are made
    moments = [value for state in trainer.optimizer.state.values() for value in state.values()]
    before, came = network.label_encoder.query.detach().clone(), []
    for found in network.walk(examples.tokens(np.arange(32)), examples.numbers(np.arange(32))):
        came = found.nodes[found.real].unique()
    with Largest([*network.parameters(), *network.buffers(), *moments]) as largest:
        trainer._step(np.arange(32))
        list(network.walk(examples.tokens(np.arange(32))))
    assert 0 < largest.numbers < labels
    moved = (network.label_encoder.query != before).any(1).nonzero()[:, 0]
    assert torch.equal(moved, came)
    rested = trainer.optimizer.state[network.label_encoder.query]["step"] == 0
    assert rested.sum() > labels - 2 * len(came)


def test_a_tree_is_made_of_the_last_clusters_and_levels_above_until_these_are_few():
    def levels(labels, halvings, **given):
        parents = [np.arange(2**level, dtype=np.int32) // 2 for level in range(1, halvings + 1)]
        halved = LabelTree(
            (*parents, np.sort(np.arange(labels, dtype=np.int32) % 2**halvings)), np.arange(labels, dtype=np.int32)
        )
        tree = with_levels(halved, **given)
        assert np.array_equal(tree.labels, halved.labels)
        for above, nodes in zip(tree.parents, tree.parents[1:], strict=False):
            assert np.bincount(nodes, minlength=len(above)).min() > 0
        return [len(nodes) for nodes in tree.parents]

    assert levels(670_091, 17, first=2048, arity=8) == [2**11, 2**14, 2**17, 670_091]  # the authors' for Amazon-670K
    assert levels(501_070, 13, first=8192, arity=64) == [2**13, 501_070]  # and for Wiki-500K
    assert levels(4_271, 7, first=8192, arity=8) == [2**7, 4_271]
    assert levels(9, 3, first=1, arity=8) == [8, 9]
    assert levels(3, 0, first=1, arity=8) == [3]


@pytest.mark.parametrize("kind", ["apart", "levels", "joint"])
def test_a_stage_trains_its_levels_and_leaves_those_that_are_done(kind):
    network = grown(4, 8, 40, shared=kind != "apart", decoder="mlp", dropout=0.5)
    for stage in stages(network, kind):
        part = stage.network.train()
        trained = {weight for weight in part.parameters() if weight.requires_grad}
        if kind == "apart":
            assert trained == {*part.token_encoder.parameters(), *part.levels[-1].parameters()}
            assert [level.training for level in part.above] == [False] * stage.level
            assert [encoder.training for encoder in part.encoders] == [False] * stage.level
        else:
            assert trained == {*part.parameters()}
            assert all(module.training for module in part.modules())
        if stage.level and kind != "joint":  # it starts from what the level above has learned
            before = [*part.above[-1].decoder.parameters(), *(part.encoders[-1].parameters() if kind == "apart" else ())]
            now = [*part.decoder.parameters(), *(part.token_encoder.parameters() if kind == "apart" else ())]
            assert all(torch.equal(one, other) for one, other in zip(before, now, strict=True))
        with torch.no_grad():
            for weight in trained:
                weight.add_(torch.rand_like(weight))
    assert stage.level == 2


def rp(model, world):
    return evaluate(model, world).groups["all"]["rp@5"]


def test_a_tree_learns_nearly_what_a_flat_network_learns():
    world = make_world(documents=600, labels=60, words=30)
    fast = ("encoder.kind=convolution", "encoder.units=32", "decoder=dot", "labels.start=prior")
    learn = (*fast, "training.epochs=12", "training.learning_rate=0.01", "training.average_from=0")
    flat = rp(method("attention-xml", *learn, "tree.use=never").fit(world.train, world.dev), world)
    assert flat > 0.6
    for kind in ("apart", "joint"):
        tree = method("attention-xml", *learn, "tree.top=6", f"tree.stages={kind}").fit(world.train, world.dev)
        assert [len(nodes) for nodes in tree._fitted.network.tree.parents][:-1] == [16]
        assert rp(tree, world) > flat - 0.06


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("attention-xml", ("training.judge_steps=4", "training.average_from=1", "tree.first=4", "tree.arity=2")),
        ("bert-tree", ("tree.stages=levels",)),
    ],
)
@pytest.mark.parametrize("minutes", [0, 10], ids=["each step", "each epoch"])
def test_killed_and_resumed_training_ends_in_the_same_model(world, bert, tmp_path, monkeypatch, name, more, minutes):
    left = [6, 9, 4]  # steps to each kill, the last one first

    def mortal(self, batch, work=Trainer._step):
        if left and left[-1] == 0:
            left.pop()
            raise KeyboardInterrupt
        if left:
            left[-1] -= 1
        return work(self, batch)

    def fitted(work=None):
        own = bert if name == "bert-tree" else ()
        model = method(name, *own, *more, f"training.checkpoint_minutes={minutes}", "training.epochs=2")
        model.work = work
        return model.fit(world.train, world.dev)

    whole = fitted()
    monkeypatch.setattr(Trainer, "_step", mortal)
    while left:
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path)
    resumed = fitted(tmp_path)
    told = [[{**look, "documents_per_second": 0} for look in model.history] for model in (whole, resumed)]
    assert told[0] == told[1]
    assert {look["level"] for look in told[0]} == set(range(1, len(whole._fitted.network.levels) + 1))
    for one, other in zip(*(model._fitted.network.state_dict().values() for model in (whole, resumed)), strict=True):
        assert torch.equal(one, other)


def test_training_that_ended_is_not_repeated(world, tmp_path, monkeypatch):
    models = []
    for _ in range(2):
        models.append(method("attention-xml", "training.judge_steps=2", "training.patience=1", "training.learning_rate=0.1"))
        models[-1].work = tmp_path
        models[-1].fit(world.train, world.dev)
        monkeypatch.setattr(Trainer, "_step", None)
    assert models[0].history[-1]["step"] % 6  # it ended within an epoch
    assert models[0].history == models[1].history


def test_steps_in_parts_are_the_same_steps(world):
    settings = ("encoder.dropout=0", "encoder.state_dropout=0", "tree.top=99", "training.epochs=2", "tree.stages=joint")
    whole, parts = (method("attention-xml", *settings, f"training.accumulate={n}").fit(world.train) for n in (1, 3))
    assert parts.predict(world.test).dense() == pytest.approx(whole.predict(world.test).dense(), abs=1e-4)


def test_biases_of_all_levels_may_start_at_the_log_odds(world):
    settings = ("decoder=dot", "labels.start=prior", "tree.stages=joint", "training.epochs=1", "training.learning_rate=0.000001")
    network = method("attention-xml", *settings).fit(world.train)._fitted.network
    for level, nodes in zip(network.levels, network.tree.members(world.train.gold()), strict=True):
        counts = nodes.toarray().sum(axis=0)
        odds = (counts + 0.5) / (len(world.train) - counts + 0.5)
        assert level.label_encoder.bias.tolist() == pytest.approx(np.log(odds), abs=1e-3)


@pytest.mark.parametrize("kind", ["joint", "levels", "apart"])
def test_a_transformer_on_a_tree_learns_and_is_stored_once_where_levels_share_it(world, bert, tmp_path, kind):
    model = method("bert-tree", *bert, f"tree.stages={kind}").fit(world.train, world.dev)
    last = [look for look in model.history if look["level"] == 2]
    assert last[-1]["loss"] < last[0]["loss"]
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert np.array_equal(loaded.predict(world.test).dense(), model.predict(world.test).dense())
    assert len(loaded._fitted.network.encoders) == (1 if kind == "apart" else 0)


def test_dev_scores_are_those_of_the_evaluation(world):
    seen = set(world.train.gold().indices.tolist())
    kept = LabelSet([label for column, label in enumerate(world.labels) if column in seen])
    train, dev = world.train.with_labels(kept), world.dev.with_labels(kept)
    model = method().fit(train, dev)
    best = [look for look in model.history if look["best"]][-1]
    measured = evaluate(model, Splits(train, dev, dev)).groups["all"]
    assert best["dev"]["ndcg"] == pytest.approx(measured["ndcg@5"], abs=1e-6)


def test_labels_without_a_training_document_score_0_and_scores_are_sparse(world):
    model = method("attention-xml", "tree.top=99").fit(world.train)
    scores = model.predict(world.test)
    assert scores.sparse
    unseen = np.bincount(world.train.gold().indices, minlength=len(world.labels)) == 0
    assert unseen.any()
    assert not scores.dense()[:, unseen].any()
    assert (scores.dense()[:, ~unseen] > 0).all()  # all clusters are kept
    assert (np.diff(method().fit(world.train).predict(world.test).values.indptr) <= 3 * 4).all()


def test_an_explanation_has_the_score_of_the_whole_path(world):
    model = method("attention-xml", "decoder=dot").fit(world.train)
    scores = model.predict(world.test[:1])
    (label, score), *_ = scores.top(1)[0]
    found = model.explain(world.test[0], label)
    assert found.score == pytest.approx(score, abs=1e-6)
    network = model._fitted.network
    node = network.tree.labels.tolist().index(world.labels.column(label.id))
    logit = sum(span.weight for span in found.spans) + network.label_encoder.bias[node].item()
    assert 1 / (1 + np.exp(-logit)) >= score
    assert model.explain(world.test[0], Label("new", "word")).score == 0


def test_a_tree_is_used_from_20000_labels_on(world, monkeypatch):
    few = method("attention-xml", "tree.use=auto", "training.epochs=1").fit(world.train)
    assert not few.predict(world.test).sparse
    monkeypatch.setattr("labelwise.methods.neural_tree.MANY", 40)
    many = method("attention-xml", "tree.use=auto", "training.epochs=1").fit(world.train)
    assert many.predict(world.test).sparse


def test_more_candidates_than_there_are_labels_are_all_of_them(world):
    seen = int((world.train.gold().sum(0) > 0).sum())
    scores = method("attention-xml", "tree.top=1000", "training.epochs=1").fit(world.train).predict(world.test)
    assert (np.diff(scores.values.indptr) == seen).all()


def test_labels_that_fit_into_one_cluster_have_no_tree_and_it_is_said(world):
    with pytest.warns(UserWarning, match=r"tree\.leaf=64 holds all \d+ labels with a training document.*lower tree\.leaf"):
        model = method("attention-xml", "tree.leaf=64").fit(world.train)
    flat = method("attention-xml", "tree.use=never").fit(world.train)
    assert np.array_equal(model.predict(world.test).dense(), flat.predict(world.test).dense())


def test_documents_without_a_known_word_are_no_reason_to_lose_their_labels():
    labels = LabelSet([Label(str(number), "x") for number in range(8)])
    texts = ["owl", "duck", "fish", "lake", "?", "!", "?!", "..."]
    corpus = Corpus([Document(str(number), text, (str(number),)) for number, text in enumerate(texts)], labels)
    model = method("attention-xml", "tree.leaf=2", "tree.top=4").fit(corpus)
    assert sorted(model._fitted.network.tree.labels.tolist()) == list(range(8))
    assert np.isfinite(model.predict(corpus).dense()).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "labels.encoder=centroid",
            r"labels\.encoder=centroid has no vectors for clusters; choose learned, or set tree\.use=never",
        ),
        ("attention=first", r"attention=first reads the same for all labels; choose label in a tree, or set tree\.use=never"),
        ("training.unseen=negatives", r"training\.unseen=negatives, but .* in no tree; choose masked, or set tree\.use=never"),
        ("tree.arity=3", r"tree\.arity.*3"),
        ("tree.top=0", r"tree\.top.*0"),
    ],
)
def test_parts_that_do_not_fit_a_tree_are_refused(world, more, message):
    with pytest.raises(BadSettings, match=message):
        method("attention-xml", "decoder=dot", more).fit(world.train)


def test_development_documents_with_unseen_labels_only_are_refused(world):
    unseen = np.flatnonzero(np.bincount(world.train.gold().indices, minlength=len(world.labels)) == 0)
    dev = Corpus([Document("x", "a text", (world.labels.ids[unseen[0]],))], world.labels, world.info)
    with pytest.raises(BadCorpus, match=r"no development document has a label of a training document, .*monitor=ndcg"):
        method().fit(world.train, dev)


def test_a_corpus_without_labels_is_refused(world):
    bare = Corpus([Document("x", "a text")], world.labels)
    with pytest.raises(BadCorpus, match="nothing to learn"):
        method().fit(bare)


def test_a_model_without_its_tree_does_not_load(world, tmp_path):
    method("attention-xml", "training.epochs=1").fit(world.train).save(tmp_path / "model")
    (tmp_path / "model" / "tree.npz").unlink()
    sums = json.loads((tmp_path / "model" / "checksums.json").read_text())
    assert "tree.npz" in json.dumps(sums)
    with pytest.raises(Exception, match=r"tree\.npz"):
        load(tmp_path / "model")
