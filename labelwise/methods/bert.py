"""Transformers by name: the paper's rows (SPEC 1.3 to 1.5), and zero-shot ones that it leaves for future work.

Any encoder that the transformers library can load takes the place of BERT: name its folder in `encoder.checkpoint`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from labelwise.methods.base import ZeroShot
from labelwise.methods.neural import Network
from labelwise.methods.neural_tree import ClusterSettings, TreeMethod, TreeNetworkSettings
from labelwise.network.composition import EncoderSettings, LabelSettings, NetworkSettings
from labelwise.network.training import TrainingSettings

Attention = Literal["auto", "label", "projected", "first", "segments"]

BERT = EncoderSettings(kind="transformer", checkpoint="bert-base-uncased")
ROBERTA = replace(BERT, checkpoint="roberta-base")
SCI_BERT = replace(BERT, checkpoint="allenai/scibert_scivocab_uncased")
HIER_SCI_BERT = replace(SCI_BERT, segments=8)
CLINICAL_BERT = replace(BERT, checkpoint="emilyalsentzer/Bio_ClinicalBERT")
# First vectors of sub-words are short and have little in common. Times states, whose length is normalised, all of a state goes
# into saying no to nearly all labels, so they are projected. Beside node vectors, ten times as long, they would not count.
C = LabelSettings(encoder="centroid_proj", length=1.0)
DC = LabelSettings(encoder="centroid", refine="dense")
DNC = LabelSettings(encoder="concat", refine="dense", length=1.0)
GC = LabelSettings(encoder="centroid", refine="graph")
FINE_TUNING = TrainingSettings(batch=8, learning_rate=2e-5, clip_value=0, epochs=20, patience=2)

FINE_TUNING_TREE = replace(FINE_TUNING, head_rate=10, monitor="ndcg", unseen="masked")
PRIOR = LabelSettings(start="prior")  # a label is seen where its cluster is; from 0 a bias would need many such steps
TOGETHER = ClusterSettings(use="always", stages="joint")


@dataclass(frozen=True)
class BertLwanSettings(NetworkSettings):
    """BERT's states, learned labels that read all of them."""

    encoder: EncoderSettings = BERT
    training: TrainingSettings = FINE_TUNING


class BertLwan(Network):
    """Every label has learned vectors to read BERT's states with and to judge what it read."""

    name: ClassVar[str] = "bert-base-lwan"
    Settings: ClassVar[type] = BertLwanSettings


@dataclass(frozen=True)
class BertSettings(BertLwanSettings):
    """BERT's first state."""

    attention: Attention = "first"


class Bert(Network):
    """A linear layer over BERT's first state."""

    name: ClassVar[str] = "bert-base"
    Settings: ClassVar[type] = BertSettings


@dataclass(frozen=True)
class RobertaSettings(BertSettings):
    """RoBERTa's first state."""

    encoder: EncoderSettings = ROBERTA


class Roberta(Network):
    """A linear layer over RoBERTa's first state."""

    name: ClassVar[str] = "roberta-base"
    Settings: ClassVar[type] = RobertaSettings


@dataclass(frozen=True)
class SciBertSettings(BertSettings):
    """SciBERT's first state."""

    encoder: EncoderSettings = SCI_BERT


class SciBert(Network):
    """As bert-base, with a vocabulary of scientific texts."""

    name: ClassVar[str] = "sci-bert"
    Settings: ClassVar[type] = SciBertSettings


@dataclass(frozen=True)
class ClinicalBertSettings(BertSettings):
    """Clinical-BERT's first state."""

    encoder: EncoderSettings = CLINICAL_BERT


class ClinicalBert(Network):
    """As bert-base, trained further on hospital records."""

    name: ClassVar[str] = "clinical-bert"
    Settings: ClassVar[type] = ClinicalBertSettings


@dataclass(frozen=True)
class HierSciBertSettings(BertLwanSettings):
    """First states of up to eight segments."""

    attention: Attention = "segments"
    encoder: EncoderSettings = HIER_SCI_BERT


class HierSciBert(Network):
    """As sci-bert for long documents: the largest of the first states of up to eight segments."""

    name: ClassVar[str] = "hier-sci-bert"
    Settings: ClassVar[type] = HierSciBertSettings


@dataclass(frozen=True)
class BertTreeSettings(TreeNetworkSettings):
    """BERT's states, learned labels and clusters that read all of them."""

    encoder: EncoderSettings = BERT
    labels: LabelSettings = PRIOR
    training: TrainingSettings = FINE_TUNING_TREE
    tree: ClusterSettings = TOGETHER


class BertTree(TreeMethod):
    """As bert-base-lwan on a label tree: clusters and labels read the same states, labels only below the best clusters."""

    name: ClassVar[str] = "bert-tree"
    Settings: ClassVar[type] = BertTreeSettings


@dataclass(frozen=True)
class CBertLwanSettings(BertLwanSettings):
    """Centroids of names, projected."""

    labels: LabelSettings = C


class CBertLwan(Network, ZeroShot):
    """A label is the mean of BERT's own vectors of the sub-words of its name, through one linear layer that all labels share."""

    name: ClassVar[str] = "c-bert-base-lwan"
    Settings: ClassVar[type] = CBertLwanSettings


@dataclass(frozen=True)
class DcBertLwanSettings(BertLwanSettings):
    """Centroids, refined by dense layers."""

    labels: LabelSettings = DC


class DcBertLwan(Network, ZeroShot):
    """A label is the mean of BERT's own vectors of the sub-words of its name, refined by two dense layers."""

    name: ClassVar[str] = "dc-bert-base-lwan"
    Settings: ClassVar[type] = DcBertLwanSettings


@dataclass(frozen=True)
class DncBertLwanSettings(BertLwanSettings):
    """Centroids and node vectors, refined by dense layers."""

    labels: LabelSettings = DNC


class DncBertLwan(Network, ZeroShot):
    """As dc-bert-base-lwan, with mean vector and node vector side by side, both of length 1."""

    name: ClassVar[str] = "dnc-bert-base-lwan"
    Settings: ClassVar[type] = DncBertLwanSettings


@dataclass(frozen=True)
class GcBertLwanSettings(BertLwanSettings):
    """Centroids, refined over the hierarchy."""

    labels: LabelSettings = GC


class GcBertLwan(Network, ZeroShot):
    """As dc-bert-base-lwan, the mean vector refined by two graph layers over parents and children."""

    name: ClassVar[str] = "gc-bert-base-lwan"
    Settings: ClassVar[type] = GcBertLwanSettings
