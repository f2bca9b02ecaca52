"""Training the levels of a tree, one after the other or together: each stage is a training with a checkpoint of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from labelwise.errors import BadCorpus
from labelwise.network.batches import Examples
from labelwise.network.devices import precision
from labelwise.network.training import Scored, Trainer, TrainingSettings
from labelwise.network.tree_network import TreeNetwork, held

Stages = Literal["apart", "joint", "levels"]


class Stage(NamedTuple):
    """The levels of one training, the last of which it is judged by."""

    name: str
    level: int
    network: TreeNetwork


def stages(network: TreeNetwork, kind: Stages) -> Iterator[Stage]:
    """The trainings that make up that of a tree; each is to be done before the next is asked for."""
    depth = network.tree.depth
    for level in [depth - 1] if kind == "joint" else range(depth):
        part = network.cut(level + 1, frozen=level if kind == "apart" else 0)
        if level and kind != "joint":
            part.begin()
        yield Stage("" if kind == "joint" else f"level {level + 1} of {depth}", level, part)


def train_tree(
    network: TreeNetwork,
    kind: Stages,
    settings: TrainingSettings,
    train: Examples,
    dev: Examples | None,
    *,
    budget: float,
    begun: float,
    **how: Any,
) -> list[dict[str, Any]]:
    """Train stage after stage and give the history of all; time is shared out evenly, and what was read counts in the first."""
    nodes, judged = (None if some is None else network.tree.members(some.gold) for some in (train, dev))
    if judged is not None and not judged[-1].nnz and settings.monitor != "loss":
        raise BadCorpus(
            f"no development document has a label of a training document, so training.monitor={settings.monitor} says nothing; "
            "train without development documents, or with others"
        )
    history, share = [], budget / (1 if kind == "joint" else network.tree.depth)
    learned = [weight for weight in network.parameters() if weight.requires_grad]
    for stage in stages(network, kind):
        own, seen = _examples(train, nodes, stage.level), _examples(dev, judged, stage.level)
        assert own is not None
        trainer = TreeTrainer(stage.network, settings, own, seen, budget=share, begun=begun, stage=stage.name, **how)
        history += [{"level": stage.level + 1, **line} for line in trainer.run()]
        begun = time.monotonic()
    for weight in learned:  # torch multiplies otherwise, in the last bit, where no gradient is wanted
        weight.requires_grad_(True)
    return history


def _examples(examples: Examples | None, nodes: list[csr_array] | None, level: int) -> Examples | None:
    return None if examples is None or nodes is None else examples.with_gold(nodes[level])


class TreeTrainer(Trainer):
    """Trains some levels of a tree; development documents are scored by way of the clusters that the network finds itself."""

    network: TreeNetwork

    def _loss(self, examples: Examples, rows: np.ndarray) -> Tensor:
        """Mean binary cross-entropy over documents and candidates, summed over levels."""
        tokens, gold = examples.tokens(rows), examples.numbers(rows)
        with precision(self.settings.precision, self.device):
            return self.network.loss_along(tokens, gold)

    def _scoring(self, examples: Examples) -> Callable[[np.ndarray], Scored]:
        def score(rows: np.ndarray) -> Scored:
            gold, (*_, found) = examples.numbers(rows), self.network.walk(examples.tokens(rows))
            entries = int(found.real.sum())
            return Scored(found.chances, (held(gold, found.nodes) & found.real).float(), found.loss(gold) * entries, entries)

        return score
