"""Walks and pairs are compared with slow versions and with the chances of the paper; what is learned with what must be close."""

import warnings
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from test_training import method
from torch import nn

from labelwise.datasets.worlds import make_world
from labelwise.errors import BadSettings
from labelwise.features import node2vec as module
from labelwise.features.node2vec import NodeEncoder, NodeSettings, clean_words, noise_shares, random_walks, window_pairs
from labelwise.hierarchy import Hierarchy
from labelwise.labels import Label, LabelSet

SMALL = NodeSettings(walks=3, length=9, window=2, width=6, batch=64)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Over tensors this small, threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cliques(size: int = 5) -> LabelSet:
    """Two cliques of labels with one link between them, and three labels that stand alone; no two names share a word."""
    ids = [f"{side}{number}" for side in "ab" for number in range(size)]
    parents = [tuple(other for other in ids[:place] if other[0] == id[0]) or ids[:place][:1] for place, id in enumerate(ids)]
    names = [f"{id} {id}x {id}y" if place % 3 else id for place, id in enumerate(ids)]
    linked = [Label(id, name, tuple(above)) for id, name, above in zip(ids, names, parents, strict=True)]
    return LabelSet([Label("z0", "a1"), *linked, Label("z1", "never seen"), Label("z2", "!?")])


def links_of(edges: list[tuple[int, int]], nodes: int) -> csr_array:
    both = np.array([*edges, *((b, a) for a, b in edges)]).T
    links = csr_array((np.ones(both.shape[1], dtype=bool), both), shape=(nodes, nodes))
    links.sort_indices()
    return links


TRIANGLE_WITH_TAIL = links_of([(0, 1), (1, 2), (0, 2), (2, 3)], 4)


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.25, 4), (4, 0.25)])
def test_walks_start_at_every_node_and_follow_links(p, q):
    settings = NodeSettings(walks=5, length=7, window=3, p=p, q=q)
    walks = random_walks(TRIANGLE_WITH_TAIL, settings, np.random.default_rng(1))
    assert walks.shape == (20, 7)
    assert TRIANGLE_WITH_TAIL.toarray()[walks[:, :-1], walks[:, 1:]].all()
    starts = walks[:, 0].reshape(5, 4)
    assert np.sort(starts, axis=1).tolist() == [[0, 1, 2, 3]] * 5
    assert len({tuple(start) for start in starts.tolist()}) > 1, "the order is shuffled anew in each round"


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.5, 4), (5, 0.2)])
def test_steps_have_the_chances_of_the_paper(p, q):
    settings = NodeSettings(walks=1000, length=7, window=3, p=p, q=q)
    walks = random_walks(TRIANGLE_WITH_TAIL, settings, np.random.default_rng(2))
    steps = Counter(map(tuple, np.lib.stride_tricks.sliding_window_view(walks, 3, axis=1).reshape(-1, 3).tolist()))
    linked = TRIANGLE_WITH_TAIL.toarray()
    for before, here in np.argwhere(linked).tolist():
        weights = {
            ahead: 1 / p if ahead == before else 1 if linked[before, ahead] else 1 / q for ahead in np.flatnonzero(linked[here])
        }
        seen = sum(steps[before, here, ahead] for ahead in weights)
        for ahead, weight in weights.items():
            chance = weight / sum(weights.values())
            allowed = 5 * np.sqrt(chance * (1 - chance) / seen) + 1e-9
            assert steps[before, here, ahead] / seen == pytest.approx(chance, abs=allowed)


def slow_pairs(walks: list[list[int]], window: int) -> list[tuple[int, int]]:
    return [
        (walk[place], walk[other])
        for walk in walks
        for place in range(window, len(walk) - window)
        for other in range(place - window, place + window + 1)
        if walk[other] != walk[place]
    ]


@given(st.integers(1, 3), st.integers(0, 4), st.data())
def test_pairs_have_a_full_window_on_both_sides(window, more, data):
    walk = st.lists(st.integers(0, 4), min_size=2 * window + 1 + more, max_size=2 * window + 1 + more)
    walks = data.draw(st.lists(walk, min_size=1, max_size=4))
    assert list(zip(*window_pairs(np.array(walks), window).tolist(), strict=True)) == slow_pairs(walks, window)


@pytest.mark.parametrize(("batch", "epochs"), [(1, 1), (7, 2), (64, 1), (10**6, 3)])
def test_every_pair_of_every_epoch_is_in_one_batch(monkeypatch, batch, epochs):
    monkeypatch.setattr(module, "PAIRS", 30)
    settings = NodeSettings(walks=2, length=9, window=2, batch=batch, epochs=epochs)
    walks = random_walks(TRIANGLE_WITH_TAIL, settings, np.random.default_rng(3))
    batches = [pairs for part in module._batches(walks, settings, module.silent) for pairs in part]
    assert np.concatenate(batches, axis=1).T.tolist() == [list(pair) for pair in slow_pairs(walks.tolist(), 2)] * epochs
    assert {pairs.shape[1] for pairs in batches[:-1]} <= {batch}


def test_random_labels_are_drawn_by_their_count_to_the_power_three_quarters():
    walks = np.array([[0, 2, 0, 2], [0, 1, 0, 3]])
    weights = np.array([4, 1, 2, 1]) ** 0.75
    assert np.diff(noise_shares(walks), prepend=0) == pytest.approx(weights / weights.sum())
    assert noise_shares(walks)[-1] == 1


def test_only_the_largest_connected_part_is_walked():
    labels = cliques()
    links, nodes = module._largest_part(labels, root=False)
    assert [labels[node].id for node in nodes] == [label.id for label in labels if label.id[0] != "z"]
    assert links.nnz == Hierarchy(labels).neighbours(root=False).nnz
    assert not links.diagonal().any()


def test_names_are_cleaned_as_for_node2vec():
    assert clean_words("Hepatitis B/C's <test> #5 50% ~x $3 A_b") == [
        "hepatitis",
        "b",
        "cs",
        "test",
        "#5",
        "50",
        "~x",
        "$3",
        "ab",
    ]
    assert clean_words(" Non-EU [trade]  ") == ["non-eu", "trade"]


def test_vectors_are_the_largest_state_and_word_vector_of_a_name():
    """One name at a time through torch's own GRU, without packing."""
    labels = LabelSet([Label("1", "one two three"), Label("2", "two"), Label("3", "three one"), Label("4", "four two", ("1",))])
    encoder = NodeEncoder.fit(LabelSet([*labels]), SMALL, seed=1)
    tensors, words = encoder.tensors()
    for tensor in tensors.values():
        tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(tensor.numel())))
    encoder = NodeEncoder.from_tensors(tensors, words, SMALL)
    network = nn.GRU(6, 6, bidirectional=True)
    network.load_state_dict({name.removeprefix("gru."): tensor for name, tensor in tensors.items() if name != "table"})
    assert words == ["one", "two", "three", "four"]  # those of the labels that walks reach
    for label, vector in zip(labels, encoder.encode(labels), strict=True):
        expected = []
        for first in (0, len(words) + 2):
            inputs = tensors["table"][[first + 2 + words.index(word) for word in label.name.split()]]
            forth, back = network(inputs[:, None])[0][:, 0].chunk(2, dim=1)
            expected += (forth + back + inputs).max(dim=0).values.tolist()
        assert vector == pytest.approx(expected, abs=1e-5)


def test_the_loss_starts_at_that_of_guessing_and_falls():
    (first,) = NodeEncoder.fit(cliques(), NodeSettings(walks=1, length=5, window=2, width=8, batch=10**6), seed=1).losses
    assert first == pytest.approx(3 * np.log(2), rel=1e-3)
    settings = NodeSettings(walks=20, length=9, window=2, width=8, batch=32, learning_rate=0.01, epochs=2)
    assert NodeEncoder.fit(cliques(), settings, seed=1).losses[-1] < 0.9 * first


@pytest.fixture(scope="module")
def learned(one_thread: None) -> tuple[LabelSet, np.ndarray]:
    labels = cliques()
    settings = NodeSettings(walks=20, length=9, window=2, width=8, batch=64, learning_rate=0.02, epochs=5)
    return labels, NodeEncoder.fit(labels, settings, seed=1).encode(labels)


def test_neighbours_end_up_closer_than_strangers(learned):
    labels, vectors = learned
    rows = vectors[[column for column, label in enumerate(labels) if label.id[0] in "ab"]]
    rows = rows - rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    close = (rows @ rows.T).reshape(2, 5, 2, 5).mean(axis=(1, 3))
    assert close[[0, 1], [0, 1]].min() > close[0, 1] + 0.5


def test_labels_outside_the_walks_get_vectors_of_their_words(learned):
    labels, vectors = learned
    settings = NodeSettings(walks=2, length=9, window=2, width=8)
    encoder = NodeEncoder.fit(labels, settings, seed=1)
    known, unseen, wordless = encoder.encode(LabelSet([Label("new", "A1, a1x/a1y"), Label("z1", "never"), Label("z2", "!?")]))
    assert known.tolist() == encoder.encode(labels)[labels.column("a1")].tolist()
    assert unseen.tolist() == wordless.tolist(), "words that training did not see are all one"
    assert np.isfinite(vectors).all()
    assert len({tuple(row) for row in vectors.tolist()}) == len(labels), "never seen is two words, !? none"


@pytest.mark.parametrize(("combine", "width"), [("concat", 12), ("average", 6)])
def test_the_vectors_of_the_two_roles_are_joined_or_averaged(combine, width):
    settings = NodeSettings(walks=3, length=9, window=2, width=6, batch=64, combine=combine)
    encoder = NodeEncoder.fit(cliques(), settings, seed=1)
    vectors = encoder.encode(cliques())
    assert vectors.shape == (len(cliques()), width)
    assert encoder.width == width
    assert vectors.dtype == np.float32
    both = NodeEncoder.fit(cliques(), SMALL, seed=1).encode(cliques())
    assert vectors == pytest.approx(both if combine == "concat" else (both[:, :6] + both[:, 6:]) / 2, abs=1e-7)


def test_the_same_seed_gives_the_same_bits_and_torch_draws_nothing():
    state = torch.get_rng_state()
    once, again, other = (NodeEncoder.fit(cliques(), SMALL, seed=seed).encode(cliques()) for seed in (1, 1, 2))
    assert once.tobytes() == again.tobytes()
    assert once.tobytes() != other.tobytes()
    assert torch.equal(state, torch.get_rng_state())


def test_a_round_trip_through_tensors_changes_nothing(monkeypatch):
    encoder = NodeEncoder.fit(cliques(), SMALL, seed=1)
    tensors, words = encoder.tensors()
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())
    read = NodeEncoder.from_tensors(tensors, words, SMALL)
    monkeypatch.setattr(module, "ROWS", 3)  # encoding few labels at once changes nothing either
    assert read.encode(cliques()) == pytest.approx(encoder.encode(cliques()), abs=1e-7)


def test_training_starts_as_that_of_the_paper_does():
    with pytest.warns(UserWarning, match="stay random"):
        tensors, words = NodeEncoder.fit(LabelSet([Label("1", " ".join(map(str, range(300))))]), SMALL, seed=1).tensors()
    centre, context = tensors.pop("table").split(len(words) + 2)
    assert 0.49 / 6 < centre.abs().max() <= 0.5 / 6
    assert not context.any()
    assert all(5e-5 < tensor.abs().max() <= 1e-4 for tensor in tensors.values())


@pytest.mark.parametrize("labels", [[], [Label("1", "alone")], [Label("1", "one"), Label("2", "two"), Label("3", "")]])
def test_without_a_hierarchy_vectors_stay_random_with_a_warning(labels):
    with pytest.warns(UserWarning, match="no label has a parent, so there is nothing to walk on"):
        encoder = NodeEncoder.fit(LabelSet(labels), SMALL, seed=1)
    vectors = encoder.encode(LabelSet(labels))
    assert vectors.shape == (len(labels), 12)
    assert np.isfinite(vectors).all()
    assert encoder.losses == []
    assert len({tuple(row) for row in vectors.tolist()}) == len(labels)


def test_two_labels_are_enough_to_walk():
    labels = LabelSet([Label("1", "one"), Label("2", "two", ("1", "2"))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert NodeEncoder.fit(labels, SMALL, seed=1).losses


def test_walks_too_short_for_the_window_are_an_error_that_names_both():
    with pytest.raises(
        BadSettings, match="length: walks of 20 labels are too short for a window of 10; raise length to 21 or lower window"
    ):
        NodeEncoder.fit(cliques(), NodeSettings(length=20), seed=1)


def test_a_root_connects_what_stands_apart():
    labels = LabelSet([Label("a", "ant"), Label("b", "bee", ("a",)), Label("c", "cat"), Label("d", "dog", ("c",))])
    alone, joined = (
        NodeEncoder.fit(labels, NodeSettings(walks=2, length=9, window=2, width=4, root=root), seed=1) for root in (False, True)
    )
    assert len(alone.tensors()[1]) == 2
    assert len(joined.tensors()[1]) == 4


def test_networks_for_the_same_labels_share_what_was_learned(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path))
    world, learned, fit = make_world(documents=60, labels=20, words=20), [], NodeEncoder.fit

    def counted(*given, **more):
        learned.append(more["seed"])
        return fit(*given, **more)

    def vectors(name, *settings, seed=1):
        model = method(name, f"seed={seed}", "labels.nodes.walks=1", "labels.nodes.width=4", *settings)
        return model.fit(world.train, world.dev)._fitted.nodes.encode(world.train.labels)

    monkeypatch.setattr(NodeEncoder, "fit", counted)
    first = vectors("dn-bigru-lwan")
    np.testing.assert_array_equal(vectors("dnc-bigru-lwan", "training.learning_rate=0.01"), first)
    assert learned == [1]
    vectors("dn-bigru-lwan", seed=2)
    vectors("dn-bigru-lwan", "labels.nodes.negatives=3")
    assert learned == [1, 2, 1]
