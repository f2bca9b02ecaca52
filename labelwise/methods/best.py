"""`best`: what our measurements recommend for a corpus and a machine, decided when it is fitted (docs/best.md).

One classifier per label and the labels' own names in the text need no GPU, and blend well. Where there is a GPU and a transformer
can be had, labels that are read and learned join them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from labelwise.corpus import Corpus, count_labels
from labelwise.errors import BadModel, MissingExtra
from labelwise.methods.base import Decides
from labelwise.methods.ensemble import Ensemble, EnsembleSettings, Member
from labelwise.registry import make_method
from labelwise.settings import Range

# Words × labels that one classifier per label got through in a second: crs, 39,972 documents of 160 words, 5,585 labels, 77 s.
PAIRS = 39_972 * 160 * 5_585 / 77
PATIENCE = 30.0  # minutes that it may take where no budget is given
LONG = 20_000  # documents from which on fewer epochs do
SHARE = 0.8  # of the budget that the transformer gets


@dataclass(frozen=True)
class BestSettings(EnsembleSettings):
    """What to decide by."""

    members: tuple[str, ...] = ()
    """Methods, recipes or model folders to blend; none leaves the choice to `best`."""
    checkpoint: str = "sentence-transformers/all-MiniLM-L6-v2"
    """Transformer that reads documents and labels where there is a GPU: a folder, or a name on the model hub."""
    device: str = "auto"
    """auto (CUDA, then MPS, then CPU), cpu, cuda or mps."""
    budget: Annotated[float, Range(0.0, 1e6)] = 0.0
    """Minutes for training, 0 for no limit: slow members are left out, or do fewer epochs."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Processor cores to use, 0 for all."""


class Choice(NamedTuple):
    """Methods with settings of their own, and why these."""

    members: list[tuple[str, dict[str, Any]]]
    why: str


class Best(Ensemble, Decides):
    """The blend that our measurements recommend for this corpus on this machine; it says what it chose and why."""

    name: ClassVar[str] = "best"
    Settings: ClassVar[type] = BestSettings

    settings: BestSettings

    def __init__(self, settings: BestSettings = BestSettings()) -> None:
        super().__init__(settings)

    def _members(self, train: Corpus) -> list[Member]:
        given = self.settings
        if given.members:
            self.why = "members as given"
            return super()._members(train)
        chosen = choose(given, train)
        self.why = chosen.why
        return [Member(make_method(name, own)) for name, own in chosen.members]


def choose(given: BestSettings, train: Corpus) -> Choice:
    """What to blend, by the size of the corpus, the machine and the time there is."""
    words, labels = sum(len(document.text.split()) for document in train), int((count_labels(train) > 0).sum())
    minutes, common = words * labels / PAIRS / 60, {"seed": given.seed, "threads": given.threads}
    members: list[tuple[str, dict[str, Any]]] = [("linear", common), ("lexical", {})]
    why = ["one classifier per label, and names of labels in the text"]
    if minutes > (given.budget or PATIENCE) / 2:
        members[0] = ("parabel", {**common, "branching": 16})
        why = [f"label trees (one classifier per label would take some {minutes:,.0f} minutes), and names of labels in the text"]
    reader = _reader(given)
    if isinstance(reader, str):
        why.append(f"no transformer: {reader}")
    else:
        epochs = {"epochs": 6 if len(train) >= LONG else 12}
        members.insert(0, ("read-and-learned", {**common, **reader, "training": epochs}))
        why.insert(0, f"labels read and learned by {given.checkpoint}")
    return Choice(members, "; ".join(why))


def _reader(given: BestSettings) -> dict[str, Any] | str:
    """Settings for labels that are read and learned, or why there are none."""
    try:
        from labelwise.network.devices import choose_device
        from labelwise.network.transformer import read_transformer
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed (pip install 'labelwise[neural]')"
    if choose_device(given.device).type == "cpu":
        return "there is no GPU, and on a CPU training takes hours"
    try:
        read_transformer(given.checkpoint)
    except (BadModel, MissingExtra) as error:
        return str(error)
    return {"device": given.device, "budget": given.budget * SHARE, "encoder": {"checkpoint": given.checkpoint}}
