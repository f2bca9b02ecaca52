"""Label encoders: a query and an output vector for each label, learned, or made from what is known of the label.

Described labels hold no parameter per label, so labels added after training are scored like all others (SPEC 1.6-1.12).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional

from labelwise.network.rows import Rows

Refinement = Literal["none", "dense", "graph"]
Merge = Literal["none", "dense", "deep"]


class LabelVectors(NamedTuple):
    """What a network knows of each label."""

    query: Tensor  # (labels, key width)
    output: Tensor  # (labels, output width)
    bias: Tensor | None = None  # (labels,)

    def at(self, places: Tensor | slice) -> LabelVectors:
        """Those of some labels."""
        return LabelVectors(self.query[places], self.output[places], None if self.bias is None else self.bias[places])

    def spread(self, places: Tensor) -> LabelVectors:
        """Those of each document's own labels, (batch, candidates, …) each, from places (batch, candidates)."""
        # Not by indexing, whose gradient is added up in an order that varies, on a CPU too.
        query, output = functional.embedding(places, self.query), functional.embedding(places, self.output)
        bias = None if self.bias is None else functional.embedding(places, self.bias[:, None])[..., 0]
        return LabelVectors(query, output, bias)


class LabelEncoder(nn.Module, ABC):
    """Labels to vectors."""

    width: int  # of queries
    output_width: int
    unit = False  # whether it wants states of length 1

    def gentle(self) -> Iterable[Tensor]:
        """Weights that take the small steps of the token encoder."""
        return ()

    @abstractmethod
    def forward(self, candidates: Tensor | None = None) -> LabelVectors:
        """The vectors of all labels, or of the columns asked for."""


class LearnedLabels(LabelEncoder):
    """Query, output and bias are parameters of each label (SPEC 1.1).

    Where all labels read the same there are no queries, and where all judge the same neither outputs nor biases.
    """

    def __init__(self, labels: int, width: int, *, queries: bool = True, outputs: bool = True) -> None:
        super().__init__()
        self.width, self.output_width = width if queries else 0, width if outputs else 0
        self.query = nn.Parameter(torch.empty(labels, self.width))
        self.output = nn.Parameter(torch.empty(labels, self.output_width))
        for vectors in (self.query, self.output):
            if vectors.numel():
                nn.init.xavier_uniform_(vectors)
        self.bias = nn.Parameter(torch.zeros(labels)) if outputs else None
        self.register_buffer("trained", torch.ones(labels, dtype=torch.bool))  # those left out of training are not scored
        self.sparse = False  # whether a step needs a few labels only, and has gradients for these only

    trained: Tensor

    def like(self, labels: int) -> LearnedLabels:
        """The same for other labels, with first values of their own."""
        return LearnedLabels(labels, max(self.width, self.output_width), queries=self.width > 0, outputs=self.output_width > 0)

    def start_at(self, counts: np.ndarray, documents: int) -> None:
        """Let biases start at the log-odds of each label's share of the training documents."""
        assert self.bias is not None
        odds = (counts + 0.5) / (documents - counts + 0.5)
        with torch.no_grad():
            self.bias.copy_(torch.from_numpy(np.log(odds)))

    def forward(self, candidates: Tensor | None = None) -> LabelVectors:
        """The parameters themselves."""
        vectors = LabelVectors(self.query, self.output, self.bias)
        return vectors if candidates is None else vectors.at(candidates)

    def rows(self, labels: Tensor) -> LabelVectors:
        """The parameters of some labels, ascending and each once; with sparse gradients where these are wanted."""
        tables = self.query, self.output, self.bias
        if self.sparse:
            return LabelVectors(*(None if x is None else Rows.apply(x, labels) for x in tables))  # type: ignore[arg-type, no-untyped-call]
        return self(labels)


class Facts(NamedTuple):
    """What is known of the labels of a label set; nothing in here is trained."""

    sources: tuple[Tensor, ...]  # (labels, width) each: centroids of the names' words, node vectors
    neighbours: tuple[Tensor, ...] = ()  # (labels, labels) sparse, the mean over parents and that over children, for graphs

    def to(self, device: torch.device) -> Facts:
        """The same on another device."""
        return Facts(*(tuple(tensor.to(device) for tensor in part) for part in self))


def label_facts(sources: Sequence[np.ndarray], parents: csr_array | None, *, length: float = 0.0) -> Facts:
    """Facts from vectors per label, of one length if asked, and, for graphs, a matrix with a 1 from each label to each parent."""
    tensors = tuple(torch.from_numpy(np.ascontiguousarray(source, dtype=np.float32)) for source in sources)
    if length:
        tensors = tuple(length * functional.normalize(tensor, dim=-1) for tensor in tensors)
    return Facts(tensors, () if parents is None else (_mean_of(parents), _mean_of(csr_array(parents.T))))


class DescribedLabels(LabelEncoder):
    """Label vectors from facts: joined, merged where asked, and refined by two layers, dense or over the hierarchy.

    Dropping channels of all words of a name alike is the same as dropping components of their mean, so centroids are made once
    and every source gets plain dropout in training (SPEC 1.6, T-75).
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        refine: Refinement = "none",
        merge: Merge = "none",
        project: int = 0,
        merged: int = 0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.refine, self.dropout, self.facts = refine, dropout, None
        self.each = nn.ModuleList()  # one dense layer per source
        width = sum(widths)
        if merge == "deep":
            self.each.extend(dense(source, merged) for source in widths)
            width = merged * len(widths)
        self.merge = dense(width, merged) if merge != "none" else None
        width = merged if self.merge else width
        self.project = dense(width, project) if project else None
        self.width = project or width
        self.layers = nn.ModuleList(
            _GraphLayer(self.width, neighbours=refine == "graph") for _ in range(0 if refine == "none" else 2)
        )
        self.output_width = self.width * (1 if refine == "none" else 2)

    facts: Facts | None

    def describe(self, facts: Facts) -> None:
        """Say which labels there are; may be called again with others."""
        self.facts = facts

    def forward(self, candidates: Tensor | None = None) -> LabelVectors:
        """Queries are the unrefined vectors; outputs have the refined ones beside them."""
        if self.facts is None:
            raise RuntimeError("describe(facts) comes before the first use")
        sources = [functional.dropout(source, self.dropout, self.training) for source in self.facts.sources]
        if len(self.each):
            sources = [torch.tanh(layer(source)) for layer, source in zip(self.each, sources, strict=True)]
        vectors = torch.cat(sources, dim=-1)
        if self.merge is not None:
            vectors = torch.tanh(self.merge(vectors))
        if self.project is not None:
            vectors = self.project(vectors)
        refined = vectors
        for layer in self.layers:
            refined = layer(refined, self.facts)
        output = torch.cat([vectors, refined], dim=-1) if len(self.layers) else vectors
        found = LabelVectors(vectors, output)
        return found if candidates is None else found.at(candidates)


class _GraphLayer(nn.Module):
    """tanh(Ws u + mean over parents Wp u + mean over children Wc u + b); without neighbours a dense layer (SPEC 1.8, 1.9)."""

    def __init__(self, width: int, *, neighbours: bool) -> None:
        super().__init__()
        self.own = dense(width, width)
        self.from_parents = dense(width, width, bias=False) if neighbours else None
        self.from_children = dense(width, width, bias=False) if neighbours else None

    def forward(self, vectors: Tensor, facts: Facts) -> Tensor:
        total = self.own(vectors)
        if self.from_parents is not None and self.from_children is not None:
            parents, children = facts.neighbours
            total = total + _mean(parents, self.from_parents(vectors)) + _mean(children, self.from_children(vectors))
        return torch.tanh(total)


def dense(width: int, out: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer with Glorot's first weights and no first bias."""
    layer = nn.Linear(width, out, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _mean(matrix: Tensor, vectors: Tensor) -> Tensor:
    with torch.autocast(vectors.device.type, enabled=False):  # sparse products know float32 only
        return torch.sparse.mm(matrix, vectors.float())


def _mean_of(neighbours: csr_array) -> Tensor:
    """(labels, labels) sparse: each row divided by its number of neighbours; a row without any stays empty."""
    pairs = neighbours.tocoo()
    degrees = np.bincount(pairs.row, minlength=neighbours.shape[0])
    values = (1 / degrees[pairs.row]).astype(np.float32)
    places = torch.from_numpy(np.stack([pairs.row, pairs.col]).astype(np.int64))
    return torch.sparse_coo_tensor(places, torch.from_numpy(values), neighbours.shape, check_invariants=False).coalesce()
