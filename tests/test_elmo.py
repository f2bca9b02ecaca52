"""A made model against loops over letters, words and gates in numpy; a published one against its vectors, where those are at hand."""

import json
import os
from copy import deepcopy
from pathlib import Path

import h5py
import numpy as np
import pytest
import tiny
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from labelwise.errors import BadFile, BadModel
from labelwise.network import elmo as module
from labelwise.network.elmo import Elmo, ScalarMix

OPTIONS, cell = tiny.ELMO, tiny.elmo_cell
PLAIN = {
    "lstm": {"dim": 5, "projection_dim": 4, "n_layers": 3, "cell_clip": None, "proj_clip": None, "use_skip_connections": False},
    "char_cnn": {**OPTIONS["char_cnn"], "activation": "tanh", "n_highway": 0},
}
DOCUMENTS = [["Grey", "herons", "fish", "."], [], ["naïveté", "at", "at", "the", "hydroelectric", "Lake"], ["fish"]]


def batch(elmo, documents):
    return pad_sequence([elmo.spell(words) for words in documents], batch_first=True), torch.tensor([*map(len, documents)])


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return Elmo.read(tiny.elmo(tmp_path_factory.mktemp("elmo")))


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def slow_word(weights, options, letters):
    """The vector of a word: every window of every filter, one after the other."""
    most = options["max_characters_per_token"]
    numbers = [258, *letters[: most - 2], 259]
    seen = weights["char_embed"][numbers + [260] * (most - len(numbers))]
    found = []
    for place, (span, _) in enumerate(options["filters"]):
        windows = [seen[start : start + span] for start in range(most - span + 1)]
        values = [np.einsum("sl,sln->n", window, weights[f"CNN/W_cnn_{place}"][0]) for window in windows]
        found.append(np.max(values, axis=0) + weights[f"CNN/b_cnn_{place}"])
    vector = np.concatenate(found)
    vector = np.tanh(vector) if options["activation"] == "tanh" else np.maximum(vector, 0)
    for place in range(options["n_highway"]):
        gate, fresh = (
            vector @ weights[f"CNN_high_{place}/W_{name}"] + weights[f"CNN_high_{place}/b_{name}"]
            for name in ("carry", "transform")
        )
        vector = sigmoid(gate) * np.maximum(fresh, 0) + (1 - sigmoid(gate)) * vector
    return vector @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]


def slow_steps(weights, options, vectors, direction, layer, state):
    """One LSTM layer over vectors in the order of reading, gates i, j, f, o as in TensorFlow."""
    (hidden, memory), found = state, []
    for vector in vectors:
        gates = np.concatenate([vector, hidden]) @ weights[cell(direction, layer, "W_0")] + weights[cell(direction, layer, "B")]
        i, j, f, o = np.split(gates, 4)
        memory = sigmoid(f + 1) * memory + sigmoid(i) * np.tanh(j)
        memory = np.clip(memory, *(limit * (options["cell_clip"] or np.inf) for limit in (-1, 1)))
        hidden = (sigmoid(o) * np.tanh(memory)) @ weights[cell(direction, layer, "W_P_0")]
        hidden = np.clip(hidden, *(limit * (options["proj_clip"] or np.inf) for limit in (-1, 1)))
        found.append(hidden)
    return np.array(found), (hidden, memory)


def slow_layers(options, words, states=None):
    """(layers, words, 2 × projection) of one document, and the states at its end by direction and layer."""
    weights = {name: values.astype(np.float64) for name, values in tiny.elmo_weights(options).items()}
    recurrent = options["lstm"]
    spelt = [[256], *(list(word.encode()) for word in words), [257]]
    vectors = np.array([slow_word(weights, options["char_cnn"], letters) for letters in spelt])
    empty = np.zeros(recurrent["projection_dim"]), np.zeros(recurrent["dim"])
    sides, ends = [], {}
    for direction, turn in enumerate((slice(None), slice(None, None, -1))):
        layers = [vectors[turn]]
        for layer in range(recurrent["n_layers"]):
            start = states[direction, layer] if states else empty
            found, ends[direction, layer] = slow_steps(weights, recurrent, layers[-1], direction, layer, start)
            layers.append(found + layers[-1] if layer and recurrent["use_skip_connections"] else found)
        sides.append(np.array(layers)[:, turn])
    return np.concatenate(sides, axis=-1)[:, 1:-1], ends


def close(found, expected):
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("options", [OPTIONS, PLAIN], ids=["clips, skips and highways", "none of them"])
@pytest.mark.parametrize("steps", [64, 3])
def test_layers_are_those_of_loops_over_letters_words_and_gates(tmp_path, monkeypatch, options, steps):
    monkeypatch.setattr(module, "STEPS", steps)
    monkeypatch.setattr(module, "WORDS", steps)
    elmo = Elmo.read(tiny.elmo(tmp_path, options))
    layers = elmo(*batch(elmo, DOCUMENTS))
    assert layers.shape == (elmo.depth, 4, 6, elmo.width)
    assert (elmo.depth, elmo.width) == (options["lstm"]["n_layers"] + 1, 2 * options["lstm"]["projection_dim"])
    for row, words in enumerate(DOCUMENTS):
        close(layers[:, row, : len(words)], slow_layers(options, words)[0])
        assert not layers[:, row, len(words) :].any()


def test_states_carry_each_document_of_a_batch_over_to_the_same_of_the_next(elmo):
    later = [["the", "end"], ["and", "on", "it", "goes"], ["."], ["a", "lake"]]
    characters, lengths = batch(elmo, DOCUMENTS)
    _, states = elmo.run(elmo.words(characters), lengths)
    before = deepcopy(states)
    characters, lengths = batch(elmo, later)
    layers, _ = elmo.run(elmo.words(characters), lengths, states)
    for row, (words, more) in enumerate(zip(DOCUMENTS, later, strict=True)):
        close(layers[:, row, : len(more)], slow_layers(OPTIONS, more, slow_layers(OPTIONS, words)[1])[0])
    assert all(torch.equal(old, new) for pair in zip(before, states, strict=True) for old, new in zip(*pair, strict=True))


@given(st.lists(st.lists(st.text(max_size=12), max_size=6), min_size=1, max_size=4), st.integers(0, 3))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_document_has_the_same_vectors_whoever_shares_its_batch(elmo, documents, padding):
    characters, lengths = batch(elmo, documents)
    layers = elmo(torch.nn.functional.pad(characters, (0, 0, 0, padding)), lengths)
    assert layers.shape[2] == characters.shape[1] + padding
    for row, words in enumerate(documents):
        alone = elmo(*batch(elmo, [words]))
        close(layers[:, row, : len(words)], alone[:, 0])
        assert not layers[:, row, len(words) :].any()


def test_letters_are_bytes_between_the_marks_of_a_word_all_raised_by_one(elmo):
    words = ["né", "", "abcdefghi", "éééé"]
    assert elmo.spell(words).tolist() == [
        [259, 0x6E + 1, 0xC3 + 1, 0xA9 + 1, 260, 261, 261, 261, 261],
        [259, 260, 261, 261, 261, 261, 261, 261, 261],
        [259, *(ord(letter) + 1 for letter in "abcdefg"), 260],
        [259, *[0xC3 + 1, 0xA9 + 1] * 3, 0xC3 + 1, 260],
    ]
    assert elmo.boundaries.tolist() == [[259, mark, 260, *[261] * 6] for mark in (257, 258)]
    assert elmo.spell([]).shape == (0, 9)


def test_half_a_surrogate_pair_has_no_letters(elmo):
    assert torch.equal(elmo.spell(["a\ud800b"]), elmo.spell(["ab"]))


@pytest.mark.parametrize("options", [OPTIONS, PLAIN], ids=["three layers", "four layers"])
@pytest.mark.parametrize(("documents", "places"), [(64, 1 << 15), (2, 1 << 15), (64, 7)])
def test_vectors_are_both_directions_of_each_layer_and_the_first_layer_once(tmp_path, monkeypatch, options, documents, places):
    monkeypatch.setattr(module, "DOCUMENTS", documents)
    monkeypatch.setattr(module, "PLACES", places)
    elmo, width = Elmo.read(tiny.elmo(tmp_path, options)), options["lstm"]["projection_dim"]
    with torch.autocast("cpu", torch.bfloat16):
        vectors = elmo.vectors(DOCUMENTS)
    assert all(found.dtype == np.float16 for found in vectors)
    for words, found in zip(DOCUMENTS, vectors, strict=True):
        layers = slow_layers(options, words)[0]
        halves = [half for layer in layers for half in (layer[:, :width], layer[:, width:])]
        np.testing.assert_array_equal(halves[0], halves[1])
        np.testing.assert_allclose(found, np.stack(halves[1:], axis=1), rtol=1e-3, atol=1e-5)
    assert elmo.vectors([]) == []


def test_only_the_four_scalars_of_the_mixture_are_trained(elmo):
    mix = ScalarMix(elmo.depth, elmo.width)
    assert not any(parameter.requires_grad for parameter in elmo.parameters())
    assert sum(parameter.numel() for parameter in mix.parameters() if parameter.requires_grad) == 4
    mix(torch.from_numpy(elmo.vectors(DOCUMENTS)[2])).square().sum().backward()
    assert all(parameter.grad.abs().min() > 0 for parameter in mix.parameters())


def test_a_mixture_is_the_mean_of_the_layers_until_it_is_trained(elmo):
    parts = torch.from_numpy(np.stack([elmo.vectors(DOCUMENTS)[2]] * 2))  # (batch, length, parts, projection)
    layers = torch.cat([parts[:, :, :1], parts], dim=2).float().view(2, 6, 3, -1).unbind(2)
    mix = ScalarMix(3, elmo.width)
    torch.testing.assert_close(mix(parts), sum(layers) / 3)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([1.0, 2, 4]).log())
        mix.scale.fill_(3.5)
    torch.testing.assert_close(mix(parts), 0.5 * layers[0] + layers[1] + 2 * layers[2])


def test_a_model_that_was_written_is_read_back_whole(tmp_path, elmo):
    path = tmp_path / "elmo.safetensors"
    path.write_bytes(elmo.content())
    again = Elmo.load(path)
    assert again.options == elmo.options
    assert again.content() == elmo.content()
    for one, other in zip(elmo.vectors(DOCUMENTS), again.vectors(DOCUMENTS), strict=True):
        np.testing.assert_array_equal(one, other)
    path.write_bytes(elmo.content()[:-9])
    with pytest.raises(BadModel, match=r"elmo\.safetensors: missing or damaged"):
        Elmo.load(path)


def test_files_are_found_under_their_published_names_or_where_they_are_said_to_be(tmp_path, elmo):
    expected = elmo(*batch(elmo, DOCUMENTS))
    options, weights = tmp_path / "elmo_small_options.json", tmp_path / "elmo_small_weights.hdf5"
    tiny.elmo(tmp_path, start="elmo_small_")
    for paths in [(tmp_path,), (options,), (str(options),), (options, weights), (tmp_path, weights)]:
        assert torch.equal(Elmo.read(*paths)(*batch(elmo, DOCUMENTS)), expected)
    tiny.elmo(tmp_path, start="other_")
    assert torch.equal(Elmo.read(options, str(weights))(*batch(elmo, DOCUMENTS)), expected)
    with pytest.raises(
        BadFile, match="one file .options.json is needed, but there are: elmo_small_options.json, other_options.json"
    ):
        Elmo.read(tmp_path)


def without(options, group, key):
    return {**options, group: {name: value for name, value in options[group].items() if name != key}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            (without(OPTIONS, group, key), rf"options\.json: {group}\.{key}: field required")
            for group in ("lstm", "char_cnn")
            for key in OPTIONS[group]
        ),
        ({}, "char_cnn: field required"),
        (
            {**OPTIONS, "char_cnn": {**OPTIONS["char_cnn"], "activation": "gelu"}},
            "char_cnn.activation: input should be 'relu' or 'tanh'",
        ),
        (
            {**OPTIONS, "char_cnn": {**OPTIONS["char_cnn"], "n_characters": 261}},
            "n_characters: input should be greater than or equal to 262",
        ),
    ],
)
def test_options_that_are_missing_or_out_of_range_are_named(tmp_path, options, message):
    (tmp_path / "options.json").write_text(json.dumps(options))
    with pytest.raises(BadFile, match=message):
        Elmo.read(tmp_path)


def test_options_that_are_not_json_are_refused(tmp_path):
    (tmp_path / "options.json").write_text("{lstm}")
    with pytest.raises(BadFile, match=r"options\.json: all of it: invalid json"):
        Elmo.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (cell(1, 1, "W_0"), np.zeros((7, 28)), rf"{cell(1, 1, 'W_0')} is \(7, 28\), but the options make it \(6, 28\)"),
        ("char_embed", np.zeros((262, 4)), r"char_embed is \(262, 4\), but the options make it \(261, 4\)"),
        ("CNN_proj/b_proj", None, r"CNN_proj/b_proj is missing, but the options make it \(3,\)"),
        ("CNN/W_cnn_0", None, r"CNN/W_cnn_0 is missing, but the options make it \(1, 1, 4, 2\)"),
    ],
)
def test_weights_that_do_not_fit_are_named_with_both_shapes(tmp_path, name, values, message):
    weights = {other: kept for other, kept in tiny.elmo_weights(OPTIONS).items() if other != name}
    tiny.elmo(tmp_path, weights=weights if values is None else weights | {name: values})
    with pytest.raises(BadFile, match=message):
        Elmo.read(tmp_path)


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(BadFile, match="nowhere: no such file or folder; name a folder with the options.json"):
        Elmo.read(tmp_path / "nowhere")
    with pytest.raises(BadFile, match="one file .options.json is needed, but there are: none"):
        Elmo.read(tmp_path)
    tiny.elmo(tmp_path)
    with pytest.raises(BadFile, match="no.hdf5: no such file"):
        Elmo.read(tmp_path, tmp_path / "no.hdf5")
    weights = tmp_path / "weights.hdf5"
    for content in (b"not hdf5", weights.read_bytes()[:5000]):
        weights.write_bytes(content)
        with pytest.raises(BadFile, match="weights.hdf5: not an HDF5 file, or a broken one"):
            Elmo.read(tmp_path)
    weights.unlink()
    with pytest.raises(BadFile, match="one file .weights.hdf5 is needed, but there are: none"):
        Elmo.read(tmp_path / "options.json")


@pytest.fixture(scope="module")
def published():
    folder = Path(os.environ.get("LABELWISE_DATA", "")) / "elmo-parity"
    if not folder.is_dir():
        pytest.skip("LABELWISE_DATA does not name a folder with elmo-parity in it, a published model and its vectors")
    return folder


def read_vectors(path):
    with h5py.File(path) as file:
        return {name: values[...] for name, values in file.items()}


def test_words_have_the_published_vectors(published):
    elmo, names = Elmo.read(published), (published / "vocab_test.txt").read_text().split("\n")
    characters = elmo.spell(names)
    characters[[names.index("<S>"), names.index("</S>")]] = elmo.boundaries
    expected = read_vectors(published / "elmo_token_embeddings.hdf5")["embedding"]
    np.testing.assert_allclose(elmo.words(characters).numpy(), expected, atol=1e-5)


def test_sentences_have_the_published_vectors_when_states_are_carried_from_batch_to_batch(published):
    elmo, states = Elmo.read(published), []
    columns = json.loads((published / "sentences.json").read_text())
    vectors = [read_vectors(published / f"lm_embeddings_{number}.hdf5") for number in range(len(columns))]
    for number, sentences in enumerate(zip(*columns, strict=True)):  # a batch has one sentence of each file
        characters, lengths = batch(elmo, [sentence.split() for sentence in sentences])
        layers, states = elmo.run(elmo.words(characters), lengths, states)
        for row, column in enumerate(vectors):
            expected = np.concatenate([*column[str(number)]], axis=-1)  # forward and backward, of the last layer
            np.testing.assert_allclose(layers[-1, row, : lengths[row]].numpy(), expected, atol=1e-5)
