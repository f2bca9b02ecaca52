"""Networks on the levels of a label tree: candidates, walks, stages, and that nothing grows with labels times documents."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labelwise.network.batches import Examples
from labelwise.network.composition import EncoderSettings, NetworkSettings, build
from labelwise.network.rows import RowAdam, Rows
from labelwise.network.token_encoders import Tokens
from labelwise.network.training import TrainingSettings
from labelwise.network.tree_network import TreeNetwork, held
from labelwise.network.tree_training import TreeTrainer, stages
from labelwise.progress import silent
from labelwise.trees.tree import LabelTree


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
