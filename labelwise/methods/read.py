"""Our own method: labels are read and learned (docs/read-and-learned.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from labelwise.methods.base import ZeroShot
from labelwise.methods.neural import Network
from labelwise.network.composition import EncoderSettings, LabelSettings, NetworkSettings
from labelwise.network.training import TrainingSettings

MINILM = EncoderSettings(kind="transformer", checkpoint="sentence-transformers/all-MiniLM-L6-v2", segment=384)
READ = LabelSettings(encoder="read", text=("name", "synonyms"), text_only=0.5)
TRAINING = TrainingSettings(
    batch=64,
    learning_rate=1e-4,
    head_rate=10.0,
    warmup=0.1,
    decay=True,
    clip_value=0,
    epochs=8,
    patience=99,
    monitor="ndcg",
    unseen="masked",
    sampled=2048,
)


@dataclass(frozen=True)
class ReadAndLearnedSettings(NetworkSettings):
    """A transformer that reads documents and labels."""

    encoder: EncoderSettings = MINILM
    labels: LabelSettings = READ
    training: TrainingSettings = TRAINING


class ReadAndLearned(Network, ZeroShot):
    """A label's text goes through the same transformer as the documents; training adds to it for the labels that it sees."""

    name: ClassVar[str] = "read-and-learned"
    Settings: ClassVar[type] = ReadAndLearnedSettings
