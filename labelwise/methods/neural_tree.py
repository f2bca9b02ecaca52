"""Networks on label trees, for label sets too large to score whole: ATTENTION-XML with its tree, and transformers on one.

The tree is Parabel's, cut to a few levels; a network over its clusters says which labels are scored at all. A label without a
training document is in no tree and scores 0. Where labels are few, the same method is a flat network.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from scipy.sparse import csr_array, hstack

from labelwise.corpus import Corpus, Document
from labelwise.errors import BadSettings
from labelwise.features.tfidf import Tfidf, TfidfSettings
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import Explanation, SavedModel
from labelwise.methods.neural import Build, Fitted, Network
from labelwise.network.batches import Examples
from labelwise.network.composition import NetworkSettings, Parts
from labelwise.network.label_encoders import LabelVectors
from labelwise.network.network import LabelNetwork
from labelwise.network.tree_network import Reached, TreeNetwork
from labelwise.network.tree_training import train_tree
from labelwise.progress import Progress
from labelwise.scores import Scores
from labelwise.settings import Range, cores
from labelwise.trees.clustering import balanced_tree, label_vectors
from labelwise.trees.tree import LabelTree

MANY = 20_000  # labels from which on a tree is worth its trouble: AttentionXML's authors have none below


@dataclass(frozen=True)
class ClusterSettings:
    """By way of which clusters labels are scored."""

    use: Literal["auto", "always", "never"] = "auto"
    """Whether labels hang in a tree: auto from 20,000 labels on."""
    leaf: Annotated[int, Range(2, 10_000)] = 64
    """Most labels of a cluster of the last level; labels that fit into one have no tree."""
    first: Annotated[int, Range(1, 1_000_000, log=True)] = 8192
    """Most clusters of the first level, all of which are scored for every document; more clusters get levels above them."""
    arity: Literal[2, 4, 8, 16, 32, 64] = 8
    """Clusters below one of a level above."""
    top: Annotated[int, Range(1, 100_000, log=True)] = 32
    """Clusters of a level whose children are scored; in training the true ones come first."""
    discount: Annotated[float, Range(0.0, 1.0)] = 1.0
    """The power that the chance of a cluster has in those of its children: 1 for plain products along the path, 0 for none."""
    stages: Literal["apart", "joint", "levels"] = "apart"
    """An encoder for each level, trained one after the other; or one for all, trained on all at once or on ever more levels."""
    features: TfidfSettings = field(default_factory=TfidfSettings)


@dataclass(frozen=True)
class TreeNetworkSettings(NetworkSettings):
    """A network, and the clusters above its labels."""

    tree: ClusterSettings = field(default_factory=ClusterSettings)


class TreeMethod(Network):
    """A label-wise attention network that scores labels by way of clusters where its settings say so."""

    settings: TreeNetworkSettings

    @torch.no_grad()
    def predict(self, corpus: Corpus) -> Scores:
        """Scores of the labels below the best clusters, sparse; dense where there is no tree."""
        network = self._ready()[0].network
        if not isinstance(network, TreeNetwork):
            return super().predict(corpus)
        columns = self._columns(network, corpus.labels)
        rows, places, scores = [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.float32)]
        for batch, found in self._in_batches(corpus, lambda tokens: _last(network, tokens)):
            nodes, chances = columns[found.nodes.cpu().numpy()], found.chances.cpu().numpy()
            wanted = found.real.cpu().numpy() & (nodes >= 0)
            rows.append(np.repeat(batch.astype(np.int32), wanted.sum(axis=1)))
            places.append(nodes[wanted])
            scores.append(chances[wanted])
        pairs = np.concatenate(rows), np.concatenate(places)
        matrix = csr_array((np.concatenate(scores), pairs), shape=(len(corpus), len(corpus.labels)))
        matrix.sort_indices()
        return Scores(matrix, corpus.labels)

    def explain(self, document: Document, label: Label) -> Explanation:
        """Each token's attention times what the label makes of it; the score is that of the whole path."""
        found = super().explain(document, label)
        if not isinstance(self._ready()[0].network, TreeNetwork):
            return found
        score = self.predict(Corpus([document], LabelSet([Label(label.id, label.name)])))
        return replace(found, score=float(score.dense()[0, 0]))

    def _network(self, train: Corpus, build: Build, progress: Progress) -> LabelNetwork:
        given = self.settings.tree
        if given.use == "never" or (given.use == "auto" and len(train.labels) < MANY):
            return super()._network(train, build, progress)
        self._require_fit()
        tree = self._make_tree(train, progress)
        if tree.depth == 1:
            warnings.warn(
                f"tree.leaf={given.leaf} holds all {len(tree.labels):,} labels with a training document, so there is no tree and "
                "all of them are scored; lower tree.leaf to have one",
                stacklevel=3,
            )
            return super()._network(train, build, progress)
        return self._over(tree, build)

    def _train(self, model: Fitted, train: Examples, dev: Examples | None, **how: Any) -> list[dict[str, Any]]:
        network, given = model.network, self.settings
        if not isinstance(network, TreeNetwork):
            return super()._train(model, train, dev, **how)
        if given.labels.start == "prior":
            for level, nodes in zip(network.levels, network.tree.members(train.gold), strict=True):
                level.label_encoder.start_at(np.bincount(nodes.indices, minlength=nodes.shape[1]), len(train))
        return train_tree(network, given.tree.stages, given.training, train, dev, **how)

    def _write(self, model: Fitted, draft: Path) -> None:
        super()._write(model, draft)
        if isinstance(model.network, TreeNetwork):
            tree = model.network.tree
            levels = {f"parents_{number}": parents for number, parents in enumerate(tree.parents)}
            np.savez_compressed(draft / "tree.npz", labels=tree.labels, **levels)  # type: ignore[arg-type]

    def _saved_network(self, saved: SavedModel, build: Build) -> LabelNetwork:
        if not (saved.folder / "tree.npz").is_file():
            return super()._saved_network(saved, build)
        arrays = saved.arrays("tree")
        labels = arrays.pop("labels")
        return self._over(LabelTree(tuple(arrays[f"parents_{number}"] for number in range(len(arrays))), labels), build)

    def _over(self, tree: LabelTree, build: Build) -> TreeNetwork:
        given = self.settings.tree
        shared = given.stages != "apart"
        return TreeNetwork.over(build(len(tree.labels)), tree, top=given.top, shared=shared, discount=given.discount)

    def _make_tree(self, train: Corpus, progress: Progress) -> LabelTree:
        given = self.settings
        rows = Tfidf(given.tree.features).fit_transform((document.text for document in train), progress=progress)
        gold = train.gold()
        vectors = label_vectors(rows, gold)
        # A label whose documents have no known word has one feature, that it has none: else it would be in no tree.
        bare = (np.bincount(gold.indices, minlength=gold.shape[1]) > 0) & (np.diff(vectors.indptr) == 0)
        vectors = csr_array(hstack([vectors, csr_array(bare[:, None].astype(np.float32))], format="csr"))
        halved = balanced_tree(vectors, max_leaf=given.tree.leaf, seed=given.seed, threads=cores(given.threads))
        return with_levels(halved, first=given.tree.first, arity=given.tree.arity)

    def _require_fit(self) -> None:
        """Say so where the parts of the network cannot go by candidates."""
        given, parts = self.settings, Parts(self.settings)
        way = "or set tree.use=never to score all labels"
        if not parts.learned:
            raise BadSettings(f"labels.encoder={given.labels.encoder} has no vectors for clusters; choose learned, {way}")
        if parts.attention not in ("label", "projected"):
            raise BadSettings(f"attention={parts.attention} reads the same for all labels; choose label in a tree, {way}")
        if given.training.unseen == "negatives":
            raise BadSettings(f"training.unseen=negatives, but labels without a document are in no tree; choose masked, {way}")

    def _encode(self, labels: LabelSet, device: torch.device) -> tuple[LabelVectors, np.ndarray]:
        network = self._ready()[0].network
        if not isinstance(network, TreeNetwork):
            return super()._encode(labels, device)
        columns = self._columns(network, labels)
        nodes = np.flatnonzero(columns >= 0)
        return network.label_encoder(torch.from_numpy(nodes).to(device)), columns[nodes]

    def _columns(self, network: TreeNetwork, wanted: LabelSet) -> np.ndarray:
        """(nodes of the last level,), the column of each label among those wanted, -1 for others."""
        known = self._ready()[0].labels
        if wanted == known:
            return network.tree.labels
        ids = (known.ids[label] for label in network.tree.labels)
        return wanted.columns(ids).astype(np.int32)


def with_levels(halved: LabelTree, *, first: int, arity: int) -> LabelTree:
    """Of a tree that was halved to the end, the last clusters, and levels above them until there are at most `first` nodes."""
    step, kept = arity.bit_length() - 1, [halved.depth - 1]
    while 2 ** kept[0] > first and kept[0] > step:
        kept.insert(0, kept[0] - step)
    parents = [(np.arange(2**level) >> (level - above)).astype(np.int32) for above, level in pairwise([0, *kept]) if level]
    return LabelTree((*parents, halved.parents[-1]), halved.labels)


def _last(network: TreeNetwork, tokens: Any) -> Reached:
    *_, found = network.walk(tokens)
    return found
