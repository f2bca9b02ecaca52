"""The paper's label-wise attention networks by name: which parts each of them has (SPEC 1.1, 1.2, 1.7 to 1.12, 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from labelwise.methods.base import ZeroShot
from labelwise.methods.neural import Network
from labelwise.methods.neural_tree import TreeMethod, TreeNetworkSettings
from labelwise.network.composition import EncoderSettings, LabelSettings, NetworkSettings, WordSettings
from labelwise.network.training import TrainingSettings

ELMO = "elmo_2x4096_512_2048cnn_2xhighway"  # the original model by its published name: a folder to be there
AXML_WORDS = WordSettings(max_length=500, newlines=False)
AXML_ENCODER = EncoderSettings(cell="lstm", start="learned", units=256, dropout=0.2, state_dropout=0.5, dropped="values")
AXML_TRAINING = TrainingSettings(
    batch=40,
    eps=1e-8,
    clip_value=0,
    clip_queue=True,
    epochs=30,
    patience=51,
    judge_steps=100,
    average_from=10,
    monitor="ndcg",
    unseen="masked",
)


def _convolution() -> EncoderSettings:
    return EncoderSettings(kind="convolution")


@dataclass(frozen=True)
class BigruLwanSettings(NetworkSettings):
    """GRU states, learned labels."""

    encoder: EncoderSettings = field(default_factory=lambda: EncoderSettings(dropout=0.3))


class BigruLwan(Network):
    """Every label has learned vectors to read GRU states with and to judge what it read."""

    name: ClassVar[str] = "bigru-lwan"
    Settings: ClassVar[type] = BigruLwanSettings


@dataclass(frozen=True)
class BigruLwanElmoSettings(NetworkSettings):
    """GRU states over words in their context, learned labels."""

    encoder: EncoderSettings = field(default_factory=lambda: EncoderSettings(dropout=0.3, elmo=ELMO))


class BigruLwanElmo(Network):
    """As bigru-lwan, with ELMo's vectors of words in their context beside the word vectors."""

    name: ClassVar[str] = "bigru-lwan-elmo"
    Settings: ClassVar[type] = BigruLwanElmoSettings


@dataclass(frozen=True)
class CnnLwanSettings(NetworkSettings):
    """Convolution states, learned labels."""

    encoder: EncoderSettings = field(default_factory=_convolution)


class CnnLwan(Network):
    """As bigru-lwan, over convolutions of neighbouring words."""

    name: ClassVar[str] = "cnn-lwan"
    Settings: ClassVar[type] = CnnLwanSettings


@dataclass(frozen=True)
class AttentionXmlSettings(TreeNetworkSettings):
    """LSTM states, learned queries, one network that judges for all labels; sizes and training of its authors for EUR-Lex."""

    decoder: Literal["auto", "dot", "tanh", "mlp"] = "mlp"
    words: WordSettings = AXML_WORDS
    encoder: EncoderSettings = AXML_ENCODER
    training: TrainingSettings = AXML_TRAINING


class AttentionXml(TreeMethod):
    """Every label has a learned vector to read LSTM states with; one network judges what each has read (You et al. 2019).

    From 20,000 labels on they hang in a tree, and only those below the best clusters are scored.
    """

    name: ClassVar[str] = "attention-xml"
    Settings: ClassVar[type] = AttentionXmlSettings


@dataclass(frozen=True)
class CBigruLwanSettings(NetworkSettings):
    """Centroids of names."""

    labels: LabelSettings = field(default_factory=lambda: LabelSettings(encoder="centroid"))


class CBigruLwan(Network, ZeroShot):
    """A label is the mean vector of the words of its name, and nothing of it is learned."""

    name: ClassVar[str] = "c-bigru-lwan"
    Settings: ClassVar[type] = CBigruLwanSettings


@dataclass(frozen=True)
class DcBigruLwanSettings(NetworkSettings):
    """Centroids, refined by dense layers."""

    labels: LabelSettings = field(default_factory=lambda: LabelSettings(encoder="centroid", refine="dense"))


class DcBigruLwan(Network, ZeroShot):
    """As c-bigru-lwan, the mean vector refined by two dense layers."""

    name: ClassVar[str] = "dc-bigru-lwan"
    Settings: ClassVar[type] = DcBigruLwanSettings


@dataclass(frozen=True)
class DnBigruLwanSettings(NetworkSettings):
    """Node vectors, refined by dense layers."""

    labels: LabelSettings = field(default_factory=lambda: LabelSettings(encoder="node2vec", refine="dense"))


class DnBigruLwan(Network, ZeroShot):
    """As dc-bigru-lwan, with vectors of the label's place in the hierarchy instead of the mean."""

    name: ClassVar[str] = "dn-bigru-lwan"
    Settings: ClassVar[type] = DnBigruLwanSettings


@dataclass(frozen=True)
class DncBigruLwanSettings(NetworkSettings):
    """Centroids and node vectors, refined by dense layers."""

    labels: LabelSettings = field(default_factory=lambda: LabelSettings(encoder="concat", refine="dense"))


class DncBigruLwan(Network, ZeroShot):
    """As dc-bigru-lwan, with mean vector and node vector side by side."""

    name: ClassVar[str] = "dnc-bigru-lwan"
    Settings: ClassVar[type] = DncBigruLwanSettings


@dataclass(frozen=True)
class GcBigruLwanSettings(NetworkSettings):
    """Centroids, refined over the hierarchy."""

    labels: LabelSettings = field(default_factory=lambda: LabelSettings(encoder="centroid", refine="graph"))


class GcBigruLwan(Network, ZeroShot):
    """As c-bigru-lwan, the mean vector refined by two graph layers over parents and children."""

    name: ClassVar[str] = "gc-bigru-lwan"
    Settings: ClassVar[type] = GcBigruLwanSettings


@dataclass(frozen=True)
class GncBigruLwanSettings(NetworkSettings):
    """Node vectors, refined over the hierarchy."""

    labels: LabelSettings = field(default_factory=lambda: LabelSettings(encoder="node2vec", refine="graph"))


class GncBigruLwan(Network, ZeroShot):
    """As gc-bigru-lwan, with node vectors instead of the mean."""

    name: ClassVar[str] = "gnc-bigru-lwan"
    Settings: ClassVar[type] = GncBigruLwanSettings


@dataclass(frozen=True)
class CCnnLwanSettings(NetworkSettings):
    """Convolutions, centroids of names."""

    encoder: EncoderSettings = field(default_factory=_convolution)
    labels: LabelSettings = field(default_factory=lambda: LabelSettings(encoder="centroid"))


class CCnnLwan(Network, ZeroShot):
    """As c-bigru-lwan, over convolutions of neighbouring words."""

    name: ClassVar[str] = "c-cnn-lwan"
    Settings: ClassVar[type] = CCnnLwanSettings


@dataclass(frozen=True)
class GcCnnLwanSettings(NetworkSettings):
    """Convolutions, centroids refined over the hierarchy."""

    encoder: EncoderSettings = field(default_factory=_convolution)
    labels: LabelSettings = field(default_factory=lambda: LabelSettings(encoder="centroid", refine="graph"))


class GcCnnLwan(Network, ZeroShot):
    """As gc-bigru-lwan, over convolutions of neighbouring words."""

    name: ClassVar[str] = "gc-cnn-lwan"
    Settings: ClassVar[type] = GcCnnLwanSettings
