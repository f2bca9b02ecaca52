"""Transformer methods against the transformers library itself, called document by document and segment by segment."""

import json
from shutil import copytree, rmtree

import numpy as np
import pytest
import tiny
import torch
import transformers
from checkpoints import (
    KINDS,
    QUICK,
    TEXTS,
    assert_explained,
    batch,
    encoder,
    fitted,
    folder,
    head,
    library,
    library_segments,
    library_states,
    method,
    scores,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from labelwise.corpus import Corpus, Document
from labelwise.errors import BadSettings
from labelwise.features.subwords import Subwords, quiet
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import load
from labelwise.methods.bert import BertLwanSettings
from labelwise.network.composition import build
from labelwise.network.reading import FirstTokens
from labelwise.network.steps import share_of_step, step_sizes
from labelwise.network.training import TrainingSettings
from labelwise.network.transformer import read_transformer, segment_length
from labelwise.registry import make_method
from labelwise.settings import make, override

NOT_RECOMPUTED = {"mpnet", "albert"}
any_kind = pytest.mark.parametrize("kind", KINDS)
few_examples = settings(max_examples=15)
LINES = st.lists(st.sampled_from([*tiny.WORDS.split(), "heronry", "unknown"]), min_size=1, max_size=40).map(" ".join)


def rows_of_numbers(longest: int):
    return st.lists(st.lists(st.integers(5, 60), min_size=1, max_size=longest), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("name", "kind"), [("bert-base", "bert"), ("roberta-base", "roberta"), ("sci-bert", "bert"), ("clinical-bert", "bert")]
)
def test_the_first_state_and_not_the_pooler_is_judged(splits, name, kind):
    model = method(name, kind, "encoder.frozen=99").fit(splits.train)
    _, weights, biases = head(model)
    firsts = [library_states(library(kind)[1], library_segments(kind, text, 24, 1)[0])[0] for text in TEXTS]
    expected = torch.sigmoid(torch.stack(firsts) @ weights.T + biases)
    assert np.allclose(scores(model, TEXTS, splits.train.labels), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_document_is_cut_as_the_library_truncates_it(kind):
    ours, (tokenizer, _) = Subwords.read(str(folder(kind))), library(kind)
    for text in TEXTS:
        expected = tokenizer(text, truncation=True, max_length=24, split_special_tokens=True)["input_ids"]
        assert ours.segments(ours.numbers([text], 22)[0], 24, 1).tolist() == expected


@pytest.mark.parametrize("segments", [1, 3])
def test_labels_read_all_states_of_all_segments(splits, segments):
    model = method("bert-base-lwan", "bert", "encoder.frozen=99", "encoder.segment=8", f"encoder.segments={segments}")
    queries, weights, biases = head(model.fit(splits.train))
    found = scores(model, TEXTS, splits.train.labels)
    for row, text in zip(found, TEXTS, strict=True):
        parts = library_segments("bert", text, 8, segments)
        states = torch.cat([library_states(library("bert")[1], part) for part in parts])  # (length, width)
        for score, query, weight, bias in zip(row, queries, weights, biases, strict=True):
            read = (states @ query).softmax(0) @ states
            assert score == pytest.approx(torch.sigmoid(read @ weight + bias).item(), abs=1e-5)


def test_segments_are_read_alone_and_the_largest_of_their_first_states_is_judged(splits):
    model = method("hier-sci-bert", "bert", "encoder.frozen=99", "encoder.segment=8")
    assert model.settings.encoder.segments == 8
    _, weights, biases = head(model.fit(splits.train))
    long = "two grey herons hunt fishes " * 20  # more than eight segments
    for text, row in zip([*TEXTS, long], scores(model, [*TEXTS, long], splits.train.labels), strict=True):
        firsts = [library_states(library("bert")[1], part)[0] for part in library_segments("bert", text, 8, 8)]
        largest = torch.stack(firsts).amax(0)
        assert np.allclose(row, torch.sigmoid(weights @ largest + biases), atol=1e-5)


def test_segments_that_a_document_has_not_do_not_count():
    ours, theirs, reading = encoder("bert"), library("bert")[1], FirstTokens(8)

    @given(rows_of_numbers(30), st.integers(0, 60), st.integers(0, 20))
    def check(rows, filling, more):
        tokens = batch(rows, filling, more)
        with torch.no_grad():
            found = reading.dot(ours(tokens), torch.zeros(1, 16), torch.eye(16), tokens.lengths)
        for row, largest in zip(rows, found, strict=True):
            firsts = [library_states(theirs, row[start : start + 8])[0] for start in range(0, len(row), 8)]
            assert torch.allclose(largest, torch.stack(firsts).amax(0), atol=1e-5)

    check()


@any_kind
def test_padding_is_never_seen_and_states_are_those_of_the_library(kind):
    ours, (tokenizer, theirs) = encoder(kind), library(kind)
    fillings = st.sampled_from([0, 1, 7, tokenizer.pad_token_id])

    @few_examples
    @given(rows_of_numbers(20), fillings, st.integers(0, 9))
    def check(rows, filling, more):
        with torch.no_grad():
            found = ours(batch(rows, filling, more))
        for row, states in zip(rows, found, strict=True):
            alone = [library_states(theirs, row[start : start + 8]) for start in range(0, len(row), 8)]
            assert torch.allclose(states[: len(row)], torch.cat(alone), atol=2e-5)
            assert not states[len(row) :].any()

    check()


@any_kind
def test_an_encoder_reads_as_much_at_once_as_it_can(kind):
    _, theirs = library(kind)
    longest = segment_length(theirs, 0)
    row = [5 + place % 50 for place in range(tiny.LONGEST)]
    assert longest == tiny.LONGEST
    with torch.no_grad():
        found = encoder(kind, longest)(batch([row, row[:9]]))
    assert torch.allclose(found[0], library_states(theirs, row), atol=2e-5)
    assert torch.allclose(found[1, :9], library_states(theirs, row[:9]), atol=2e-5)
    with pytest.raises(BadSettings, match=r"encoder\.segment=65, but this .* takes 64 tokens at once; 0 means as many"):
        segment_length(theirs, tiny.LONGEST + 1)


def test_places_are_counted_from_behind_the_padding_of_their_table_not_of_the_tokenizer():
    config = transformers.RobertaConfig(vocab_size=50, max_position_embeddings=12, pad_token_id=1, **tiny.SHAPE)
    assert segment_length(transformers.RobertaModel(config), 0) == 10


@pytest.mark.parametrize("kind", ["SqueezeBert", "IBert"])
def test_families_that_want_a_pooler_or_have_tables_of_their_own_can_be_used(kind, splits, tmp_path):
    tiny.bert_tokenizer(tmp_path)
    size = len(json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"])
    more = {"embedding_size": 16, **{f"{part}_groups": 1 for part in ("q", "k", "v", "post_attention", "intermediate", "output")}}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=size, max_position_embeddings=tiny.LONGEST + 2, pad_token_id=0, **tiny.SHAPE, **(more if "Sq" in kind else {})
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path)
    model = method("bert-base-lwan", "bert", f"encoder.checkpoint={tmp_path}").fit(splits.train, splits.dev)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(splits.test).dense(), model.predict(splits.test).dense())


@any_kind
def test_an_encoder_works_by_naming_its_folder_which_may_be_gone_later(kind, splits, tmp_path):
    place = copytree(folder(kind), tmp_path / "checkpoint")
    model = method("bert-base", kind, f"encoder.checkpoint={place}").fit(splits.train)
    model.save(tmp_path / "model")
    rmtree(place)
    again = load(tmp_path / "model")
    found = scores(again, TEXTS, splits.train.labels)
    assert np.array_equal(found, scores(model, TEXTS, splits.train.labels))
    with quiet():
        theirs = transformers.AutoModel.from_pretrained(folder(kind)).eval()
    before = theirs.get_input_embeddings().weight.clone()
    theirs.load_state_dict(again._fitted.network.token_encoder.model.state_dict(), strict=False)
    assert not torch.equal(before, theirs.get_input_embeddings().weight)  # it was trained
    _, weights, biases = head(again)
    firsts = torch.stack([library_states(theirs, library_segments(kind, text, 24, 1)[0])[0] for text in TEXTS])
    assert np.allclose(found, torch.sigmoid(firsts @ weights.T + biases), atol=1e-5)


@any_kind
def test_a_head_of_the_checkpoint_is_left_out_and_all_else_is_kept(kind):
    ours, theirs = read_transformer(str(folder(kind))).state_dict(), library(kind)[1].state_dict()
    stored = load_file(folder(kind) / "model.safetensors")
    assert len(stored) > len(ours)
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name])
    assert not any("pooler" in name for name in ours)


@any_kind
def test_frozen_parts_have_no_gradient_and_all_others_have_one(kind):
    lowest = ("embedding", "relative_attention_bias")
    first = ("layer.0.", "layers.0.", "albert_layer_groups.0.")
    for frozen, parts in enumerate([(), lowest, (*lowest, *first)]):
        tokens, ours = batch([[5, 6, 7, 8], [9, 10]]), encoder(kind, frozen=frozen).train()
        states = ours(tokens)
        (states * torch.randn(states.shape, requires_grad=True)).sum().backward()
        for name, weight in ours.model.named_parameters():
            assert (weight.grad is None) == any(part in name for part in parts), name


def test_training_changes_what_is_not_frozen(splits):
    stored = load_file(folder("bert") / "model.safetensors")
    model = method("bert-base-lwan", "bert", "encoder.frozen=2").fit(splits.train)
    for name, weight in model._fitted.network.token_encoder.model.named_parameters():
        kept = name.startswith(("embeddings.", "encoder.layer.0."))
        assert torch.equal(weight, stored[f"bert.{name}"]) == kept, name


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - NOT_RECOMPUTED))
def test_recomputing_layers_gives_the_same_gradients(kind):
    gradients, calls = [], []
    for recompute in (False, True):
        ours = encoder(kind, recompute=recompute).train()
        ours.levels()[1].register_forward_pre_hook(lambda *_, made=recompute: calls.append(made))
        torch.manual_seed(0)  # of dropout
        states = ours(batch([[5, 6, 7, 8], [9, 10], list(range(5, 25))]))
        (states * torch.arange(16)).sum().backward()
        gradients.append({name: weight.grad for name, weight in ours.model.named_parameters()})
    assert calls.count(True) == 2 * calls.count(False) > 0
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-4, atol=1e-4), name


def test_the_library_says_nothing_of_caches_where_layers_are_recomputed(monkeypatch):
    said = []
    monkeypatch.setattr(transformers.utils.generic.logger, "warning_once", said.append)
    encoder("bert", recompute=True).train()(batch([[5, 6, 7, 8]]))
    assert not said


@pytest.mark.parametrize("kind", sorted(NOT_RECOMPUTED))
def test_what_the_library_cannot_recompute_is_refused(kind):
    with pytest.raises(BadSettings, match=rf"encoder\.recompute=true, but .* cannot recompute a {kind}"):
        encoder(kind, recompute=True)


def test_step_sizes_fall_with_depth_and_the_head_has_its_own():
    given = make(BertLwanSettings, {"encoder": {"segment": 8}, "labels": {"encoder": "centroid"}})
    network = build(given, torch.zeros(5, 16), 3, transformer=(read_transformer(str(folder("bert"))), 0))
    found = step_sizes(network, TrainingSettings(learning_rate=1e-3, layer_rate=0.5, head_rate=5))
    rates = {weight: group["lr"] for group in found for weight in group["params"]}
    by_hand = {"embeddings": 0.25e-3, "encoder.layer.0": 0.5e-3, "encoder.layer.1": 1e-3}
    for name, weight in network.named_parameters():
        _, _, inner = name.partition("token_encoder.model.")
        expected = next(rate for part, rate in by_hand.items() if inner.startswith(part)) if inner else 5e-3
        assert rates.pop(weight) == pytest.approx(expected), name
    assert not rates


@given(st.floats(0, 1), st.booleans(), st.integers(1, 300))
def test_the_step_size_rises_and_falls_in_lines(warmup, decay, total):
    given, rise = TrainingSettings(warmup=warmup, decay=decay), warmup * total
    found = [share_of_step(given, done, total) for done in range(total)]
    end = 0.0 if decay else 1.0
    assert np.allclose(found, np.interp(range(total), [-1, rise, max(total, rise + 1e-9)], [0, 1, end]))
    assert min(found) > 0


def test_every_step_has_the_size_of_its_time_and_depth(splits, monkeypatch):
    sizes, step = [], torch.optim.Adam.step

    def told(self, *more):
        sizes.append({group["lr"] for group in self.param_groups})
        return step(self, *more)

    monkeypatch.setattr(torch.optim.Adam, "step", told)
    more = ("training.warmup=0.5", "training.decay=true", "training.layer_rate=0.1", "training.head_rate=10")
    method("bert-base", "bert", "training.epochs=2", *more).fit(splits.train)  # two epochs of three steps
    shares = [1 / 4, 2 / 4, 3 / 4, 1, 2 / 3, 1 / 3]
    for found, share in zip(sizes, shares, strict=True):
        assert sorted(found) == pytest.approx([rate * share for rate in (1e-5, 1e-4, 1e-3, 1e-2)])


def test_parameters_are_as_many_as_the_equations_say():
    labels, pooler = 4271, 768 * 768 + 768  # which the published number has and nothing uses
    with torch.device("meta"):
        model = transformers.BertModel(transformers.BertConfig())
        model.pooler = None
        network = build(BertLwanSettings(), torch.zeros(0, 768), labels, transformer=(model, 0))
    assert network.trainable() + pooler == 109_482_240 + 2 * labels * 768 + labels == 116_046_767


def parts_by_hand(kind: str, text: str, size: int, count: int, parts: list[list[float]]) -> list[tuple[int, int, float]]:
    """Each word of a line without punctuation with the sum over its sub-words, by the library's offsets."""
    tokenizer, _ = library(kind)
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"][: (size - 2) * count]
    found: dict[int, tuple[int, int, float]] = {}
    for (_, end), part in zip(offsets, [part for segment in parts for part in segment[1:-1]], strict=True):
        start = text[:end].rfind(" ") + 1
        found[start] = (start, end, found.get(start, (0, 0, 0.0))[2] + part)
    return list(found.values())


@pytest.mark.parametrize(("kind", "segments"), [("bert", 1), ("bert", 4), ("roberta", 4)])
def test_words_add_up_to_what_a_label_makes_of_the_states_it_reads(kind, segments):
    model, labels = fitted("bert-base-lwan", kind, segments)
    query, weight, bias = (part[labels.column("owl")] for part in head(model))

    @few_examples
    @given(LINES)
    def check(text):
        rows = library_segments(kind, text, 8, segments)
        states = torch.cat([library_states(library(kind)[1], row) for row in rows])
        parts = (states @ query).softmax(0) * (states @ weight)  # (length,), special tokens too
        split = [part.tolist() for part in parts.split([len(row) for row in rows])]
        found = model.explain(Document("d", text, ()), labels[labels.column("owl")])
        assert_explained(found, torch.sigmoid(parts.sum() + bias).item(), parts_by_hand(kind, text, 8, segments, split))

    check()


@pytest.mark.parametrize("kept", ["true", "false"])
@pytest.mark.parametrize(
    ("name", "kind", "segments"), [("bert-base", "bert", 1), ("roberta-base", "roberta", 1), ("hier-sci-bert", "bert", 4)]
)
def test_words_that_only_first_states_see_count_by_slope_times_vector(name, kind, segments, kept):
    model, labels = fitted(name, kind, segments, f"encoder.kept={kept}")
    _, weight, bias = (part[labels.column("owl")] for part in head(model))
    theirs = library(kind)[1]

    @few_examples
    @given(LINES)
    def check(text):
        rows, vectors = library_segments(kind, text, 8, segments), []

        def keep(module, inputs, output):
            output.retain_grad()
            vectors.append(output)

        hook = theirs.get_input_embeddings().register_forward_hook(keep)
        firsts = [theirs(input_ids=torch.tensor([row])).last_hidden_state[0, 0] for row in rows]
        hook.remove()
        logit = torch.stack(firsts).amax(0) @ weight + bias
        logit.backward()
        parts = [(vector.grad * vector)[0].sum(-1).tolist() for vector in vectors]
        found = model.explain(Document("d", text, ()), labels[labels.column("owl")])
        assert_explained(found, torch.sigmoid(logit).item(), parts_by_hand(kind, text, 8, segments, parts))

    check()


@pytest.mark.parametrize("name", ["c-bert-base-lwan", "dc-bert-base-lwan", "dnc-bert-base-lwan", "gc-bert-base-lwan"])
def test_a_label_added_after_training_is_scored_by_its_name_and_place(splits, name):
    model, labels = method(name).fit(splits.train), splits.train.labels
    more = labels.extended([Label("owl2", "owls", ("bird",)), Label("lake2", "dark waters", ("place",))])
    found = scores(model, TEXTS, more)
    assert np.allclose(found[:, more.column("owl2")], found[:, more.column("owl")], atol=1e-6)
    assert not np.allclose(found[:, more.column("lake2")], found[:, more.column("lake")], atol=1e-3)
    explained = model.explain(Document("d", TEXTS[0], ()), more[more.column("owl2")])
    assert len(explained.spans) > 5


def test_a_label_is_the_mean_of_the_first_vectors_of_its_names_sub_words(splits):
    model = method("c-bert-base-lwan", "bert", "labels.encoder=centroid", "labels.length=0").fit(splits.train)
    tokenizer, theirs = library("bert")
    queries, outputs, bias = model._encode(splits.train.labels, torch.device("cpu"))[0]
    for label, query, output in zip(splits.train.labels, queries, outputs, strict=True):
        numbers = tokenizer(label.name, add_special_tokens=False)["input_ids"]
        mean = theirs.get_input_embeddings().weight[numbers].mean(0)
        assert torch.allclose(query, mean, atol=1e-6)
        assert torch.allclose(output, mean, atol=1e-6)
    assert bias is None


@pytest.mark.parametrize("name", ["c-bert-base-lwan", "dnc-bert-base-lwan"])
def test_described_labels_soon_know_more_than_how_often_they_occur(name, tmp_path):
    random, words = np.random.default_rng(1), tiny.WORDS.split()
    texts = [random.choice(words, 6, replace=False).tolist() for _ in range(300)]
    documents = [Document(f"d{place}", " ".join(text), tuple(text)) for place, text in enumerate(texts)]
    corpus = Corpus(
        documents, LabelSet([Label(word, word, tuple(words[:1]) if place else ()) for place, word in enumerate(words)])
    )
    steps = ("training.epochs=4", "training.batch=16", "training.learning_rate=0.003", "training.head_rate=3")
    settings = override(
        {}, [*QUICK, *steps, "encoder.dropout=0", f"encoder.checkpoint={tiny.bert(tmp_path)}", "encoder.segment=24"]
    )
    share = corpus.gold().sum(0) / len(corpus)
    least = -(share * np.log(share) + (1 - share) * np.log(1 - share)).mean()  # loss of whoever knows nothing of the texts
    assert make_method(name, settings).fit(corpus).history[-1]["loss"] < 0.75 * least


@pytest.mark.parametrize(("asked", "length"), [((), 1.0), (("labels.length=5",), 5.0)])
def test_mean_and_node_vector_of_a_label_are_of_one_length_unless_as_in_the_paper(splits, asked, length):
    model = method("dnc-bert-base-lwan", "bert", *asked).fit(splits.train)
    mean, node = model._encode(splits.train.labels, torch.device("cpu"))[0].query.split([16, 16], dim=1)
    assert torch.allclose(mean.norm(dim=1), torch.full((len(mean),), length), atol=1e-5)
    assert torch.allclose(node.norm(dim=1), torch.full((len(node),), length), atol=1e-5)
    assert not any(make_method(f"{kind}-bigru-lwan").settings.labels.length for kind in ("c", "dc", "dn", "dnc", "gc", "gnc"))
