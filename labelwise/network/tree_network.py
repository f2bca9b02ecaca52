"""Label networks on the levels of a label tree: each level scores only children of the best nodes above (SPEC 2.4).

A walk goes from the top down. The first level scores all of its nodes; from there on the candidates are the children of the
`top` nodes with the largest chance, which is the product of sigmoids along the path, those above to the power of `discount`. In
training the true nodes come first, so that every level sees its positives. No tensor is as large as documents times labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from labelwise.network.decoders import Decoder
from labelwise.network.label_encoders import LearnedLabels
from labelwise.network.network import LabelNetwork
from labelwise.network.reading import Attention
from labelwise.network.token_encoders import TokenEncoder, Tokens
from labelwise.trees.tree import LabelTree


class Level(nn.Module):
    """The nodes of one level: how they read states, and how they judge what they read."""

    def __init__(self, label_encoder: LearnedLabels, attention: Attention, decoder: Decoder) -> None:
        super().__init__()
        self.label_encoder, self.attention, self.decoder = label_encoder, attention, decoder


class Reached(NamedTuple):
    """What a level says of the nodes that a walk came to, (batch, candidates) each."""

    nodes: Tensor
    real: Tensor  # False in slots without a node: clusters have as many slots as the largest has children
    logits: Tensor
    chances: Tensor  # products of sigmoids along the path, 0 where there is no node

    def loss(self, gold: Tensor) -> Tensor:
        """Mean binary cross-entropy over documents and candidates; slots without a node do not count."""
        losses = binary_cross_entropy_with_logits(self.logits.float(), held(gold, self.nodes).float(), reduction="none")
        return (losses * self.real).sum() / self.real.sum()


class TreeNetwork(LabelNetwork):
    """A label network whose labels are the last level of a tree, below networks over clusters.

    Levels have token encoders of their own, or share the last one. The first `frozen` levels are done: they are not trained.
    """

    def __init__(
        self, encoders: Sequence[TokenEncoder], levels: Sequence[Level], tree: LabelTree, top: int, discount: float = 1.0
    ) -> None:
        last = levels[-1]
        super().__init__(encoders[-1], last.label_encoder, last.attention, last.decoder)
        self.encoders, self.above = nn.ModuleList(encoders[:-1]), nn.ModuleList(levels[:-1])
        self.tree, self.top, self.discount, self.frozen = tree, top, discount, 0
        self.slots = [int(np.diff(tree.children(number)).max()) for number in range(tree.depth)]  # children of the largest node
        for number in range(1, tree.depth):
            levels[number].label_encoder.sparse = True
            starts, parents = tree.children(number), np.append(tree.parents[number], len(tree.parents[number - 1]))
            self.register_buffer(f"starts_{number}", torch.from_numpy(starts), persistent=False)
            self.register_buffer(f"parents_{number}", torch.from_numpy(parents.astype(np.int64)), persistent=False)

    @classmethod
    def over(cls, network: LabelNetwork, tree: LabelTree, *, top: int, shared: bool, discount: float = 1.0) -> Self:
        """A network for the last level, and ones like it for the levels above."""
        labels = network.label_encoder
        assert isinstance(labels, LearnedLabels)
        sizes = [len(nodes) for nodes in tree.parents[:-1]]
        levels = [Level(labels.like(size), deepcopy(network.attention), deepcopy(network.decoder)) for size in sizes]
        encoders = [] if shared else [deepcopy(network.token_encoder) for _ in sizes]
        last = Level(labels, network.attention, network.decoder)
        return cls([*encoders, network.token_encoder], [*levels, last], tree, top, discount)

    @property
    def levels(self) -> list[Level]:
        """All levels, from the top."""
        assert isinstance(self.label_encoder, LearnedLabels)
        return [*self.above, Level(self.label_encoder, self.attention, self.decoder)]

    def cut(self, depth: int, frozen: int = 0) -> TreeNetwork:
        """The first levels alone, made of the same parts; some of them done."""
        encoders = [*self.encoders, self.token_encoder][:depth]
        parents = self.tree.parents[:depth]
        tree = LabelTree(parents, np.arange(len(parents[-1]), dtype=np.int32))
        found = TreeNetwork(encoders, self.levels[:depth], tree, self.top, self.discount)
        found.frozen = frozen
        for part in found._done():
            part.requires_grad_(False)
        return found

    def begin(self) -> None:
        """Let the last level start from what the one above has learned, but for its label vectors."""
        above = self.levels[-2]
        pairs: list[tuple[nn.Module, nn.Module]] = [(above.attention, self.attention), (above.decoder, self.decoder)]
        if len(self.encoders):
            pairs.append((self.encoders[-1], self.token_encoder))
        for learned, new in pairs:
            new.load_state_dict(learned.state_dict())

    def train(self, mode: bool = True) -> Self:
        """Levels that are done stay as they are in prediction."""
        super().train(mode)
        for part in self._done():
            part.eval()
        return self

    def walk(self, tokens: Tokens, gold: Tensor | None = None) -> Iterator[Reached]:
        """What each level says, from the top; with the true nodes of the last level, (batch, most), theirs come first."""
        true = self.ancestors(gold) if gold is not None else [None] * self.tree.depth
        encoders, states, reached = [*self.encoders, self.token_encoder], None, None
        for number, level in enumerate(self.levels):
            if states is None or len(encoders) > 1:
                states = encoders[number](tokens)  # (batch, length, width)
            given = level.attention, states
            if reached is None:
                logits = level.decoder(*given, level.label_encoder(), tokens.lengths)
                nodes = torch.arange(logits.shape[1], device=logits.device).expand_as(logits)
                real, chances = torch.ones_like(nodes, dtype=torch.bool), torch.ones_like(logits, dtype=torch.float32)
            else:
                nodes, real, chances = self._children(number, reached, true[number - 1])
                logits = level.decoder.among(*given, level.label_encoder, nodes, tokens.lengths)
            reached = Reached(nodes, real, logits, chances**self.discount * logits.detach().float().sigmoid() * real)
            yield reached

    def loss_along(self, tokens: Tokens, gold: Tensor) -> Tensor:
        """The losses of all levels that are trained, added up; gold nodes of the last level, (batch, most)."""
        true = self.ancestors(gold)
        losses = [found.loss(nodes) for found, nodes in zip(self.walk(tokens, gold), true, strict=True)]
        return torch.stack(losses[self.frozen :]).sum()

    def ancestors(self, gold: Tensor) -> list[Tensor]:
        """(batch, most) per level, the nodes above those of the last level, ascending."""
        found = [gold]
        for number in range(self.tree.depth - 1, 0, -1):
            found.insert(0, self.get_buffer(f"parents_{number}")[found[0]])
        return found

    def _children(self, number: int, above: Reached, gold: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Nodes of a level below the best of the level above, whether they are there, and the chances of their parents."""
        order = above.chances if gold is None else above.chances + (held(gold, above.nodes) & above.real)
        best = order.topk(min(self.top, order.shape[1]), dim=1).indices
        parents, real, chances = (values.gather(1, best) for values in (above.nodes, above.real, above.chances))
        starts, slots = self.get_buffer(f"starts_{number}"), self.slots[number]
        first, end = starts[parents][..., None], starts[parents + 1][..., None]
        nodes = first + torch.arange(slots, device=parents.device)  # (batch, top, slots)
        real = real[..., None] & (nodes < end)
        # Where there is no child the first one stands again, which is a candidate already: no other row is touched.
        nodes = torch.where(real, nodes, first.clamp(max=len(self.tree.parents[number]) - 1))
        return nodes.flatten(1), real.flatten(1), chances.repeat_interleave(slots, 1)

    def _done(self) -> list[nn.Module]:
        return [*self.encoders[: self.frozen], *self.above[: self.frozen]]


def held(gold: Tensor, nodes: Tensor) -> Tensor:
    """(batch, candidates), whether each candidate is one of the document's gold nodes, (batch, most) and ascending."""
    places = torch.searchsorted(gold, nodes.contiguous()).clamp(max=gold.shape[1] - 1)
    return gold.gather(1, places) == nodes
