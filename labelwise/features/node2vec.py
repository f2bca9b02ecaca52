"""Label vectors from names and hierarchy: node2vec with a text encoder (Kotitsas et al. 2019; SPEC 3).

Random walks over the undirected hierarchy say which labels belong together; a bidirectional GRU over the words of their names
learns to say it too. Any label with a name has a vector then, also one that no walk reached. Each label plays two roles,
centre and context of a window, with word vectors for each and one GRU for both.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch.nn.functional import embedding, logsigmoid
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from labelwise.errors import BadSettings
from labelwise.hierarchy import Hierarchy
from labelwise.labels import LabelSet
from labelwise.progress import Progress, silent
from labelwise.settings import Range

MADE = 1  # part of what vectors are called in the cache; another number once others are made of the same labels
UNKNOWN = 1  # the number of every word that training did not see; 0 is padding
PAIRS = 1 << 17  # pairs that are made at once
ROWS = 1 << 13  # labels that are encoded at once

_CLEANED = str.maketrans("/", " ", "\"\\'.,?;*!%^&_+()]{}:<=>@[")


@dataclass(frozen=True)
class NodeSettings:
    """How label vectors are learned from the hierarchy."""

    walks: Annotated[int, Range(1, 1000)] = 10
    """Walks that start at each label."""
    length: Annotated[int, Range(3, 10_000)] = 40
    """Labels of a walk; at least 2 * window + 1."""
    window: Annotated[int, Range(1, 1000)] = 10
    """Labels on each side of a centre that count as its context."""
    negatives: Annotated[int, Range(1, 100)] = 2
    """Labels drawn at random against each pair."""
    width: Annotated[int, Range(1, 10_000)] = 100
    """Components of the vector of one role."""
    combine: Literal["concat", "average"] = "concat"
    """What becomes of the vectors of the two roles; concat makes twice the width."""
    learning_rate: Annotated[float, Range(1e-6, 1.0, log=True)] = 1e-4
    """Step size of Adam."""
    batch: Annotated[int, Range(1, 2**24)] = 128
    """Pairs of a step."""
    epochs: Annotated[int, Range(1, 1000)] = 1
    """Passes over the walks."""
    p: Annotated[float, Range(0.05, 20.0, log=True)] = 1.0
    """High values keep a walk from going straight back."""
    q: Annotated[float, Range(0.05, 20.0, log=True)] = 1.0
    """High values keep a walk near the label before."""

    root: bool = False
    """Walk over one more node above the top labels, so that a hierarchy of many trees is connected."""


class NodeEncoder:
    """Names of labels to vectors."""

    def __init__(self, network: _Network, words: Sequence[str], settings: NodeSettings) -> None:
        self.settings = settings
        self.losses: list[float] = []  # means over parts of the training
        self._network = network
        self._words = {word: number for number, word in enumerate(words, UNKNOWN + 1)}

    @property
    def width(self) -> int:
        """Components of a label's vector."""
        return self.settings.width * (2 if self.settings.combine == "concat" else 1)

    @classmethod
    def fit(
        cls, labels: LabelSet, settings: NodeSettings, *, seed: int, device: str = "cpu", progress: Progress = silent
    ) -> Self:
        """Walk over the largest connected part of the hierarchy, and learn which labels stand close in the walks."""
        if settings.length < 2 * settings.window + 1:
            raise BadSettings(
                f"length: walks of {settings.length} labels are too short for a window of {settings.window}; "
                f"raise length to {2 * settings.window + 1} or lower window"
            )
        random = np.random.default_rng(seed)
        links, nodes = _largest_part(labels, settings.root)
        spelt = [*(label.name for label in labels), ""]  # the root has no name
        if len(nodes) < 2:
            warnings.warn("no label has a parent, so there is nothing to walk on: label vectors stay random", stacklevel=2)
            nodes = np.arange(len(labels))
        words = dict.fromkeys(word for node in nodes for word in clean_words(spelt[node]))
        encoder = cls(_Network(len(words) + 2, settings.width, random).to(device), list(words), settings)
        if links.nnz:
            names, order = encoder._names([spelt[node] for node in nodes])
            place = np.empty(len(order), dtype=np.int32)
            place[order] = np.arange(len(order))
            encoder._learn(place[random_walks(links, settings, random)], names, random, progress)
        return encoder

    def encode(self, labels: LabelSet) -> np.ndarray:
        """(labels, width) float32, from the names alone."""
        names, order = self._names([label.name for label in labels])
        vectors = np.empty((len(labels), 2, self.settings.width), dtype=np.float32)
        with torch.no_grad():
            for start in range(0, len(order), ROWS):
                rows = self._network(names[2 * start : 2 * (start + ROWS)])
                vectors[order[start : start + ROWS]] = rows.cpu().numpy().reshape(-1, 2, self.settings.width)
        return vectors.reshape(len(labels), self.width) if self.settings.combine == "concat" else vectors.mean(axis=1)

    def tensors(self) -> tuple[dict[str, Tensor], list[str]]:
        """What training has made: tensors by name, and the words."""
        return {name: tensor.detach().cpu() for name, tensor in self._network.state_dict().items()}, list(self._words)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], words: Sequence[str], settings: NodeSettings) -> Self:
        """The encoder whose `tensors` these are."""
        network = _Network(len(words) + 2, settings.width, np.random.default_rng(0))
        network.load_state_dict(tensors)
        return cls(network, words, settings)

    def _names(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(2 * texts, longest) word numbers by falling length, a row for each role, and the text of each pair of rows."""
        numbers = [[self._words.get(word, UNKNOWN) for word in clean_words(text)] or [UNKNOWN] for text in texts]
        lengths = np.array([len(row) for row in numbers], dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        names = np.zeros((len(texts), lengths.max(initial=1)), dtype=np.int64)
        for row, text in enumerate(order):
            names[row, : lengths[text]] = numbers[text]
        roles = np.stack([names, np.where(names, names + len(self._words) + 2, 0)], axis=1)
        return roles.reshape(2 * len(texts), names.shape[1]), order

    def _learn(self, walks: np.ndarray, names: np.ndarray, random: np.random.Generator, progress: Progress) -> None:
        """Skip-gram with negative sampling; a node's key is twice its number, plus one as context."""
        given = self.settings
        optimizer = torch.optim.Adam(self._network.parameters(), lr=given.learning_rate, fused=True)
        shares = noise_shares(walks)
        for part in _batches(walks, given, progress):
            losses = []
            for centres, contexts in part:
                drawn = np.searchsorted(shares, random.random((given.negatives, len(centres))), side="right")
                keys = np.concatenate([2 * centres[None], 2 * contexts[None] + 1, 2 * drawn + 1])
                distinct, places = np.unique(keys, return_inverse=True)
                vectors = self._network(names[distinct])
                rows = torch.from_numpy(places.reshape(keys.shape)).to(vectors.device)
                centre, *others = (embedding(row, vectors) for row in rows)  # (pairs, width) each
                scores = torch.stack([(other * centre).sum(-1) for other in others])  # (1 + negatives, pairs)
                loss = -(logsigmoid(scores[0]) + logsigmoid(-scores[1:]).sum(0)).mean()
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                losses.append(loss.detach())
            self.losses.append(float(torch.stack(losses).mean()))


class _Network(nn.Module):
    """Word vectors of both roles, and the encoder over them."""

    def __init__(self, words: int, width: int, random: np.random.Generator) -> None:
        super().__init__()
        centre = random.uniform(-0.5 / width, 0.5 / width, (words, width))
        table = np.concatenate([centre, np.zeros((words, width))]).astype(np.float32)
        self.table = nn.Parameter(torch.from_numpy(table))  # centre words, then context words
        # Made without weights, so that torch draws nothing: what others draw later does not depend on this.
        self.gru = nn.GRU(width, width, bidirectional=True, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            for weight in self.gru.parameters():
                weight.copy_(torch.from_numpy(random.uniform(-1e-4, 1e-4, tuple(weight.shape))))

    def forward(self, names: np.ndarray) -> Tensor:
        """(names, width): the largest of state forth + state back + word vector over the words of each name, longest first."""
        by_place = names.T  # (longest, names)
        real = by_place > 0
        sizes = torch.from_numpy(np.trim_zeros(real.sum(axis=1)))  # names that have a first, a second, ... word
        words = embedding(torch.from_numpy(by_place[real]).to(self.table.device), self.table)
        states = self.gru(PackedSequence(words, sizes))[0].data  # (words of all names, 2 * width)
        forth, back = states.chunk(2, dim=1)
        steps, _ = pad_packed_sequence(PackedSequence(forth + back + words, sizes), padding_value=-torch.inf)
        return steps.max(dim=0).values


def clean_words(name: str) -> list[str]:
    """The words of a name without punctuation; hyphens stay, and a slash parts words (SPEC 5.3, for node2vec)."""
    return name.lower().translate(_CLEANED).split()


def random_walks(links: csr_array, settings: NodeSettings, random: np.random.Generator) -> np.ndarray:
    """(walks * nodes, length), each a path along links that starts anywhere; all walks of a round go on together.

    Grover & Leskovec 2016: the chance of a neighbour is 1/p where it is the node before, 1 where it is linked to the node
    before, else 1/q. Neighbours are drawn alike, and refused by chance.
    """
    degree = np.diff(links.indptr)
    nodes = len(degree)
    edges = np.repeat(np.arange(nodes), degree) * nodes + links.indices  # sorted, as links are
    back, far = 1 / settings.p, 1 / settings.q
    walks = np.empty((settings.walks, nodes, settings.length), dtype=np.int32)
    for walk in walks:
        walk[:, 0] = random.permutation(nodes)
        for step in range(1, settings.length):
            waiting = np.arange(nodes)
            while len(waiting):
                here = walk[waiting, step - 1]
                chosen = links.indices[links.indptr[here] + (random.random(len(here)) * degree[here]).astype(np.int64)]
                walk[waiting, step] = chosen
                if step == 1 or back == far == 1:
                    break
                before = walk[waiting, step - 2].astype(np.int64)
                link = before * nodes + chosen
                near = edges[np.searchsorted(edges, link).clip(max=len(edges) - 1)] == link
                chance = np.where(chosen == before, back, np.where(near, 1, far)) / max(back, 1, far)
                waiting = waiting[random.random(len(here)) >= chance]
    return walks.reshape(-1, settings.length)


def window_pairs(walks: np.ndarray, window: int) -> np.ndarray:
    """(2, pairs) centres and contexts, for centres with a full window on both sides; no node is its own context."""
    windows = np.lib.stride_tricks.sliding_window_view(walks, 2 * window + 1, axis=1)  # (walks, centres, 2 * window + 1)
    contexts = np.delete(windows, window, axis=2)
    centres = np.broadcast_to(windows[:, :, window, None], contexts.shape)
    apart = centres != contexts
    return np.stack([centres[apart], contexts[apart]])


def noise_shares(walks: np.ndarray) -> np.ndarray:
    """(nodes,) where the share of each node in the random draws ends, 1 for the last: by its count to the power 0.75."""
    ends = np.cumsum(np.bincount(walks.ravel()) ** 0.75)
    return ends / ends[-1]


def _batches(walks: np.ndarray, settings: NodeSettings, progress: Progress) -> Iterator[Iterator[np.ndarray]]:
    """Parts of the training, each some (2, batch) centres and contexts, in the order of the walks."""
    each = 2 * settings.window * (walks.shape[1] - 2 * settings.window)
    step = -(-max(PAIRS, settings.batch) // each)
    starts = [start for _ in range(settings.epochs) for start in range(0, len(walks), step)]
    rest = np.zeros((2, 0), dtype=walks.dtype)
    for number, start in enumerate(progress(starts, "learn label vectors", len(starts)), 1):
        pairs = np.concatenate([rest, window_pairs(walks[start : start + step], settings.window)], axis=1)
        full = pairs.shape[1] - (pairs.shape[1] % settings.batch if number < len(starts) else 0)
        rest = pairs[:, full:]
        if full:
            yield (pairs[:, place : place + settings.batch] for place in range(0, full, settings.batch))


def _largest_part(labels: LabelSet, root: bool) -> tuple[csr_array, np.ndarray]:
    """The undirected links of the largest connected part of the hierarchy, and the columns of its labels."""
    links = Hierarchy(labels).neighbours(root=root)
    _, part = connected_components(links, directed=False)
    nodes = np.flatnonzero(part == np.bincount(part, minlength=1).argmax())
    return csr_array(links[nodes][:, nodes]), nodes
