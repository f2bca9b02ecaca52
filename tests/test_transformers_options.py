"""Options of the authors' code, against the transformers library: sections as segments, and the first state in every average."""

from dataclasses import replace
from itertools import chain, groupby

import numpy as np
import pytest
import tiny
import torch
from checkpoints import assert_explained, batch, encoder, fitted, folder, head, library, library_states, method, scores
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from labelwise.corpus import Corpus, Document
from labelwise.errors import BadSettings
from labelwise.features.subwords import Subwords
from labelwise.methods.base import load
from labelwise.methods.readers import SubwordReader
from labelwise.network.composition import EncoderSettings, NetworkSettings, build
from labelwise.network.reading import FirstTokens
from labelwise.network.token_encoders import Tokens
from labelwise.progress import silent

SECTIONS, AVERAGE = "encoder.segmentation=sections", "average_first=true"
WORDS = st.sampled_from([*tiny.WORDS.split(), "heronry", "unknown"])
BREAKS = st.sampled_from([" ", " ", " ", "\n", "\n\n", "\n \n", "\n\n\t\n\n"])
PAGES = st.lists(st.tuples(WORDS, BREAKS), min_size=1, max_size=40).map(lambda pairs: "".join(map("".join, pairs)).rstrip())
GIVEN = st.lists(PAGES, max_size=4).map(tuple)
PAGE = "owls hunt\n\n\ntwo grey herons stand in the deep dark lake\n \na duck\nswims\n\nagain\n\nand again"

few_examples = settings(max_examples=25)
both_kinds = pytest.mark.parametrize("kind", ["bert", "roberta"])


def sections_of(text: str) -> list[str]:
    """Lines up to the next blank one belong together."""
    return ["\n".join(lines) for real, lines in groupby(text.split("\n"), lambda line: bool(line.strip())) if real]


def segments_of(kind: str, sections: list[str], size: int) -> list[list[int]]:
    tokenizer, _ = library(kind)
    rows = [tokenizer(section, add_special_tokens=False)["input_ids"][: size - 2] for section in sections]
    return [[tokenizer.cls_token_id, *row, tokenizer.sep_token_id] for row in rows]


def words_of(kind: str, text: str, sections: list[str], size: int, parts: list[list[float]]) -> list[tuple[int, int, float]]:
    """Each word with the sum over its sub-words, by the library's offsets."""
    found: dict[int, tuple[int, int, float]] = {}
    place = 0
    for section, own in zip(sections, parts, strict=True):
        place = text.index(section, place)
        offsets = library(kind)[0](section, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"][: size - 2]
        for (_, end), part in zip(offsets, own[1:-1], strict=True):
            begin = max(section.rfind(blank, 0, end) for blank in " \n") + 1
            found[place + begin] = (place + begin, place + end, found.get(place + begin, (0, 0, 0.0))[2] + part)
        place += len(section)
    return list(found.values())


def slopes(kind: str, rows: list[list[int]], judge) -> tuple[float, list[list[float]]]:
    """A number that is made from the states of segments, and the slope by each sub-word's vector times the vector."""
    theirs, vectors = library(kind)[1], []

    def keep(module, inputs, output):
        output.retain_grad()
        vectors.append(output)

    hook = theirs.get_input_embeddings().register_forward_hook(keep)
    logit = judge([theirs(input_ids=torch.tensor([row])).last_hidden_state[0] for row in rows])
    hook.remove()
    logit.backward()
    return logit.item(), [(vector.grad * vector)[0].sum(-1).tolist() for vector in vectors]


@both_kinds
def test_labels_attend_to_the_states_of_the_first_sections_and_words_keep_their_place(kind):
    model, labels = fitted("bert-base-lwan", kind, 3, SECTIONS)
    query, weight, bias = (part[labels.column("owl")] for part in head(model))

    @few_examples
    @given(PAGES)
    def check(text):
        sections = sections_of(text)[:3]
        rows = segments_of(kind, sections, 8)
        states = torch.cat([library_states(library(kind)[1], row) for row in rows])
        parts = (states @ query).softmax(0) * (states @ weight)
        split = [part.tolist() for part in parts.split([len(row) for row in rows])]
        found = model.explain(Document("d", text, ()), labels[labels.column("owl")])
        assert_explained(found, torch.sigmoid(parts.sum() + bias).item(), words_of(kind, text, sections, 8, split))

    check()


@both_kinds
@pytest.mark.parametrize("kept", ["true", "false"])
def test_the_largest_of_the_first_states_of_sections_is_judged_and_explained_by_slopes(kind, kept):
    model, labels = fitted("hier-sci-bert", kind, 3, SECTIONS, f"encoder.kept={kept}")
    _, weight, bias = (part[labels.column("owl")] for part in head(model))

    @few_examples
    @given(PAGES)
    def check(text):
        sections = sections_of(text)[:3]
        logit, parts = slopes(
            kind,
            segments_of(kind, sections, 8),
            lambda states: torch.stack([own[0] for own in states]).amax(0) @ weight + bias,
        )
        found = model.explain(Document("d", text, ()), labels[labels.column("owl")])
        assert_explained(found, torch.sigmoid(torch.tensor(logit)).item(), words_of(kind, text, sections, 8, parts))

    check()


def test_sections_that_a_document_comes_with_are_read_instead_and_shown_where_the_text_has_them(splits):
    model, labels = fitted("bert-base-lwan", "bert", 3, SECTIONS)
    query, weight, bias = (part[labels.column("owl")] for part in head(model))
    label = labels[labels.column("owl")]

    @few_examples
    @given(st.lists(PAGES, min_size=1, max_size=4), st.sampled_from(["\n\n", " ", ""]), st.booleans())
    def check(sections, between, cleaned):
        text, read = between.join(sections), sections[:3]
        rows = segments_of("bert", read, 8)
        states = torch.cat([library_states(library("bert")[1], row) for row in rows])
        parts = (states @ query).softmax(0) * (states @ weight)
        split = [part.tolist() for part in parts.split([len(row) for row in rows])]
        words = words_of("bert", text, read, 8, split)
        if cleaned:  # nothing in the text looks like the sections
            text, words = text.upper(), []
        found = model.explain(Document("d", text, (), tuple(sections)), label)
        assert_explained(found, torch.sigmoid(parts.sum() + bias).item(), words)

    check()
    documents = [Document(f"d{place}", "owls", (), tuple(sections_of(PAGE))) for place in range(2)]
    assert np.allclose(model.predict(Corpus(documents, labels)).dense(), scores(model, [PAGE] * 2, labels), atol=1e-6)
    trained = method("hier-sci-bert", "bert", SECTIONS)
    whole, cut = (Corpus([replace(one, sections=own) for one in splits.train], labels) for own in ((), ("owls", "again")))
    assert trained.fit(whole).history[-1]["loss"] != trained.fit(cut).history[-1]["loss"]


@pytest.mark.parametrize("name", ["bert-base-lwan", "hier-sci-bert"])
def test_documents_of_few_and_many_sections_are_scored_together_as_alone(name, tmp_path):
    model, labels = fitted(name, "bert", 4, SECTIONS)
    texts = [PAGE, "", "owls", "\n\n".join(["a bird"] * 9), PAGE[::-1], "two\n\ngrey herons " * 3]
    together = scores(model, texts, labels)
    for text, row in zip(texts, together, strict=True):
        assert np.allclose(scores(model, [text], labels)[0], row, atol=1e-6)
    model.save(tmp_path / "model")
    assert np.array_equal(scores(load(tmp_path / "model"), texts, labels), together)


@both_kinds
def test_sections_without_a_word_are_skipped_and_those_without_a_sub_word_have_no_segment(kind):
    reader = fitted("bert-base-lwan", kind, 3, SECTIONS)[0]._fitted.reader
    (found,) = reader.numbers([Document("d", "\n\nowls\n \n\n\t\n\ntwo ducks\n\n\x00\n\nagain\n\n")])
    sections = ["owls", "two ducks", "\x00"] if kind == "roberta" else ["owls", "two ducks"]
    assert found.tolist() == list(chain(*segments_of(kind, sections, 8)))
    for empty in (Document("d", ""), Document("d", "\n\n \n\n\t\n"), Document("d", "owls", (), ("", " \n"))):
        assert reader.numbers([empty])[0].tolist() == [reader.subwords.first, reader.subwords.last]
        assert reader.parts(empty) == []


@both_kinds
@few_examples
@given(st.lists(st.builds(Document, st.just("d"), PAGES | st.just(""), st.just(()), GIVEN), min_size=1, max_size=4))
def test_a_corpus_is_read_from_the_cache_as_documents_are_read(kind, documents):
    reader = fitted("bert-base-lwan", kind, 3, SECTIONS)[0]._fitted.reader
    for _ in range(2):
        cached = reader.corpus_numbers(documents, silent)
        assert [row.tolist() for row in cached] == [row.tolist() for row in reader.numbers(documents)]


@both_kinds
@pytest.mark.parametrize("firsts", [False, True])
def test_states_and_gradients_of_sections_are_those_of_sections_read_alone(kind, firsts):
    ours, (tokenizer, theirs) = encoder(kind, sections=True, firsts=firsts), library(kind)
    begin = tokenizer.cls_token_id
    sections = st.lists(st.lists(st.integers(5, 60), max_size=7).map(lambda row: [begin, *row]), min_size=1, max_size=4)

    @few_examples
    @given(st.lists(sections, min_size=1, max_size=3), st.sampled_from([begin, 7]), st.integers(0, 9))
    def check(documents, filling, more):
        tokens = batch([list(chain(*rows)) for rows in documents], filling, more)
        found = ours(tokens)
        alone = [[theirs(input_ids=torch.tensor([row])).last_hidden_state[0] for row in rows] for rows in documents]
        for states, length, own in zip(found, tokens.lengths, alone, strict=True):
            expected = [state[:1].expand_as(state) if firsts else state for state in own]
            assert torch.allclose(states[:length], torch.cat(expected), atol=2e-5)
            assert not states[length:].any()
        if firsts:
            read = FirstTokens(1).dot(found, torch.zeros(1, 16), torch.eye(16), tokens.lengths)
            largest = [torch.stack([state[0] for state in own]).amax(0) for own in alone]
            ours.zero_grad()
            theirs.zero_grad()
            (read * torch.arange(16)).sum().backward()
            (torch.stack(largest) * torch.arange(16)).sum().backward()
            for name, weight in ours.model.named_parameters():
                assert torch.allclose(weight.grad, theirs.get_parameter(name).grad, rtol=1e-3, atol=1e-3), name

    check()


def test_a_token_that_both_begins_and_ends_texts_is_refused_for_sections():
    read = Subwords.read(str(folder("bert")))
    alike = Subwords(read._tokenizer, ["[CLS]", "[CLS]", "[PAD]"], None)
    given = NetworkSettings(encoder=EncoderSettings(kind="transformer", checkpoint="made", segment=8, segmentation="sections"))
    with pytest.raises(BadSettings, match=r"made: one token both begins and ends texts.* encoder\.segmentation=consecutive"):
        SubwordReader(alike, np.zeros((0, 16)), library("bert")[1], given)


def averages(states: torch.Tensor, query: torch.Tensor, projected: torch.Tensor | None = None) -> torch.Tensor:
    """(labels, width): label by label, what it attends to and the first state, halved."""
    keys = states if projected is None else projected
    return torch.stack([((keys @ one).softmax(0) @ states + states[0]) / 2 for one in query])


@pytest.mark.parametrize("segments", [1, 3])
def test_what_a_label_reads_is_averaged_with_the_first_state(segments):
    model, labels = fitted("bert-base-lwan", "bert", segments, AVERAGE, SECTIONS)
    query, weight, bias = head(model)
    texts = [PAGE, "owls", "", "grey herons " * 9]
    for text, row in zip(texts, scores(model, texts, labels), strict=True):
        parts = segments_of("bert", sections_of(text)[:segments] or [""], 8)
        states = torch.cat([library_states(library("bert")[1], part) for part in parts])
        expected = torch.sigmoid((averages(states, query) * weight).sum(1) + bias)
        assert np.allclose(row, expected, atol=1e-5)


@pytest.mark.parametrize("decoder", ["dot", "tanh", "mlp"])
@pytest.mark.parametrize("name", ["bert-base-lwan", "dc-bert-base-lwan"])
def test_every_decoder_judges_the_average(name, decoder):
    more = () if name == "bert-base-lwan" else ("labels.encoder=centroid", "labels.refine=none")
    model, labels = fitted(name, "bert", 1, AVERAGE, f"decoder={decoder}", *more)
    network, (vectors, _) = model._fitted.network, model._encode(labels, torch.device("cpu"))
    (row,) = segments_of("bert", [PAGE], 8)
    states = library_states(library("bert")[1], row)
    with torch.no_grad():
        keys = network.attention.keys(states)
        expected = torch.sigmoid(network.decoder.judge(averages(states, vectors.query, keys)[None], vectors))
    assert np.allclose(scores(model, [PAGE], labels), expected, atol=1e-5)


@pytest.mark.parametrize("decoder", ["dot", "tanh"])
def test_the_loss_of_averages_has_the_gradients_of_the_plain_equations(decoder):
    torch.manual_seed(0)
    given = NetworkSettings(average_first=True, decoder=decoder, encoder=EncoderSettings(units=4, dropout=0.0))
    network = build(given, torch.randn(9, 5), labels=6)
    tokens, targets = batch([[3, 4, 5, 6], [7, 8]]), torch.eye(6)[:2]
    weights = list(network.parameters())
    found = torch.autograd.grad(network.loss(tokens, targets), weights)
    states, vectors = network.token_encoder(tokens), network.label_encoder()
    read = torch.stack([averages(own[:length], vectors.query) for own, length in zip(states, tokens.lengths, strict=True)])
    loss = binary_cross_entropy_with_logits(network.decoder.judge(read, vectors), targets)
    for one, other in zip(found, torch.autograd.grad(loss, weights), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_averages_over_a_transformer_are_explained_by_slopes_and_over_words_add_up_to_the_logit():
    model, labels = fitted("bert-base-lwan", "bert", 1, AVERAGE)
    query, weight, bias = (part[labels.column("owl")] for part in head(model))
    text = "an owl sees two grey herons"
    logit, parts = slopes("bert", segments_of("bert", [text], 8), lambda rows: averages(rows[0], query[None])[0] @ weight + bias)
    found = model.explain(Document("d", text, ()), labels[labels.column("owl")])
    assert_explained(found, torch.sigmoid(torch.tensor(logit)).item(), words_of("bert", text, [text], 8, parts))

    network = build(NetworkSettings(average_first=True, encoder=EncoderSettings(units=4)), torch.randn(9, 5), labels=6).eval()
    tokens = Tokens(torch.tensor([[3, 4, 5]]), torch.tensor([3]))
    told = network.contributions(tokens, 1, network.label_encoder())
    assert sum(told.parts) == pytest.approx(network(tokens)[0, 1].item(), abs=1e-6)


@pytest.mark.parametrize(("name", "attention"), [("bert-base", "first"), ("hier-sci-bert", "segments")])
def test_there_is_no_average_where_labels_read_first_states_only(splits, name, attention):
    with pytest.raises(BadSettings, match=f"average_first=true means nothing with attention={attention}.* attention=label"):
        method(name, "bert", AVERAGE).fit(splits.train)
