"""`best`: what our measurements recommend for a corpus and a machine, decided when it is fitted (docs/best.md).

One classifier per label, the labels' own names in the text and documents like it need no GPU, and blend well. Where there is a
GPU and a transformer can be had, labels that are read and learned join them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from labelwise.corpus import Corpus, Document, count_labels
from labelwise.errors import BadModel, BadSettings, MissingExtra
from labelwise.methods.base import Decides
from labelwise.methods.ensemble import Ensemble, EnsembleSettings
from labelwise.methods.members import Member
from labelwise.registry import make_method
from labelwise.settings import Range, cores

# Words × labels that one classifier per label gets through in a second on a core (crs: documents × words × labels, 50 s on 2).
PAIRS = 39_972 * 160 * 5_585 / 50 / 2
TOKENS = 4_000  # sub-words that a core reads in a second with a transformer of MiniLM's size: 2 cores read 7,700 to 9,100
SIZE = 10_800_000  # of its weights, embeddings not counted
PATIENCE = 30.0  # minutes that it may take where no budget is given
MANY = 20_000  # documents from which on batches may be larger
READ = 225_000  # documents that a transformer reads in training, all epochs together
FEW_PASSES = 6  # epochs up to which steps may be larger
ALIKE = 100_000  # documents up to which each is compared with all others
BEGINNING, LONG = 40, 100  # words that texts are judged by once more, and the mean length above which they are
SHARE = 0.8  # of the budget that the transformer gets
READING = 1 / 3  # of the time that reading may take where it is not trained; scoring what was read takes about as long
LEAST = 500  # documents to learn from, else it is not worth the while
KEPT, TRAINED = 256, 512  # sub-words of a document that a transformer reads if it is kept as it is, or trained
ON_CPU = {"learning_rate": 3e-4, "sampled": 512, "judged": 1000}  # a look at all of eurlex's takes as long as an epoch
KEPT_READ = 20_000  # documents whose states are gone through in training on a CPU, all epochs together
LABELS_ON_CPU = {"text": ("name",), "text_only": 0.0}  # synonyms and a loss by text gave nothing where a transformer is kept


@dataclass(frozen=True)
class BestSettings(EnsembleSettings):
    """What to decide by."""

    members: tuple[str, ...] = ()
    """Methods, recipes or model folders to blend; none leaves the choice to `best`."""
    weights: Literal["search", "regression", "equal"] = "regression"
    rerank: bool = True
    seed: Annotated[int, Range(0, 2**32 - 1)] = 1
    """Seed of every member that `best` chooses; of members that are named, that of the first, and the second's is one more."""
    checkpoint: str = "thenlper/gte-small"
    """Transformer that reads documents and labels: a folder, or, where there is a GPU, a name on the model hub."""
    device: str = "auto"
    """auto (CUDA, then MPS, then CPU), cpu, cuda or mps."""
    budget: Annotated[float, Range(0.0, 1e6)] = 0.0
    """Minutes for training, 0 for no limit: slow members are left out, read fewer documents, or do fewer epochs."""
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

    @property
    def _threads(self) -> int:
        return cores(self.settings.threads)

    @property
    def _asked(self) -> dict[str, Any]:
        given = self.settings
        return {"threads": given.threads or None, "device": None if given.device == "auto" else given.device}

    def _members(self, train: Corpus, dev: Corpus | None) -> list[Member]:
        given = self.settings
        if given.members:
            if given.budget or given.checkpoint != BestSettings.checkpoint:
                raise BadSettings("best: budget and checkpoint are for members that best chooses; drop them, or members")
            self.why = "members as given"
            return super()._members(train, dev)
        if any((given.given.frequent, given.given.few, given.given.zero)):
            raise BadSettings("best: given: weights are those of members, and best chooses these; name members, or drop them")
        chosen = choose(given, train, dev)
        self.why = chosen.why
        return [Member(make_method(name, own)) for name, own in chosen.members]


def choose(given: BestSettings, train: Corpus, dev: Corpus | None = None) -> Choice:
    """What to blend, by the size of the corpus, the machine and the time there is."""
    words, labels = sum(len(document.text.split()) for document in train), int((count_labels(train) > 0).sum())
    long, common = words > LONG * len(train), {"seed": given.seed, "threads": given.threads}
    minutes = (words + long * BEGINNING * len(train)) * labels / PAIRS / 60 / cores(given.threads)
    members: list[tuple[str, dict[str, Any]]] = [("linear", common), ("lexical", {})]
    why = ["one classifier per label, names of labels in the text"]
    if minutes > (given.budget or PATIENCE) / 2:
        members[0] = ("parabel", {**common, "branching": 16})
        why = [f"label trees (one classifier per label would take some {minutes:,.0f} minutes), names of labels in the text"]
    if len(train) <= ALIKE:
        members.append(("neighbours", {"threads": given.threads}))
        why[0] += ", labels of documents like it"
    if long:
        # What a text is about stands at its beginning, in a title often; what else it mentions follows.
        begin = {"features": {"beginning": BEGINNING}}
        members += [(name, own | begin) for name, own in members if name != "lexical"]
        why.append("all of these but names by the beginnings of the texts too")
    reader = _reader(given, train, dev)
    if isinstance(reader, str):
        why.append(f"no transformer: {reader}")
    else:
        members.insert(0, ("read-and-learned", {**common, **reader}))
        untrained = ", which is not trained itself" if reader["encoder"]["kept"] else ""
        documents = reader["training"].get("documents")
        some = f", from {documents:,} of {len(train):,} documents" if documents else ""
        why.insert(0, f"labels read and learned by {given.checkpoint}{untrained}{some}")
    return Choice(members, "; ".join(why))


def _reader(given: BestSettings, train: Corpus, dev: Corpus | None) -> dict[str, Any] | str:
    """Settings for labels that are read and learned, or why there are none; one that was asked for must be there."""
    try:
        transformer, longest, slow = _transformer(given)
    except (BadModel, MissingExtra) as error:
        if given.checkpoint != BestSettings.checkpoint:
            raise
        return str(error)
    encoder = {"checkpoint": given.checkpoint, "kept": slow, "segment": longest}
    training, labels = _trained(len(train)), {}  # labels as the method has them
    if slow:
        limit = given.budget or PATIENCE
        pace = 60 * TOKENS * cores(given.threads) * SIZE / _size(transformer)  # sub-words a minute
        whole, judged = (_subwords(corpus, longest) / pace for corpus in (train, dev or ()))
        documents = min(len(train), int(len(train) * (READING * limit - judged) / max(whole, 1e-9)))
        if documents < max(1, min(LEAST, len(train))):
            return f"on {cores(given.threads)} cores reading the documents would take some {whole + judged:,.0f} minutes"
        training = ON_CPU | {"epochs": _epochs(KEPT_READ, documents, 4, 8)}
        training |= {"documents": documents} if documents < len(train) else {}
        labels = LABELS_ON_CPU
    return {"device": given.device, "budget": SHARE * given.budget, "encoder": encoder, "training": training, "labels": labels}


def _transformer(given: BestSettings) -> tuple[Any, int, bool]:
    """It, how much of a document it reads, and whether it is too slow to be trained."""
    try:
        from labelwise.network.devices import choose_device
        from labelwise.network.transformer import read_transformer, segment_length
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed (pip install 'labelwise[neural]')") from None
    slow = choose_device(given.device).type == "cpu"
    if slow and not Path(given.checkpoint).is_dir():
        raise BadModel(
            f"there is no GPU, and {given.checkpoint} is no folder of one that could be used without training it "
            "(--set checkpoint=FOLDER)"
        )
    transformer: Any = read_transformer(given.checkpoint)
    return transformer, min(segment_length(transformer, 0), KEPT if slow else TRAINED), slow


def _subwords(documents: Iterable[Document], longest: int) -> float:
    """How many are read of these, with a usual share of them in words."""
    return sum(min(longest, len(document.text.split()) * 4 / 3) for document in documents)


def _trained(documents: int) -> dict[str, Any]:
    """How a transformer is trained on a GPU."""
    epochs = _epochs(READ, documents, 3, 12)
    return {
        "epochs": epochs,
        "batch": 128 if documents >= MANY else 64,
        "learning_rate": 2e-4 if epochs <= FEW_PASSES else 1e-4,
    }


def _epochs(read: int, documents: int, least: int, most: int) -> int:
    """Passes over the documents in which so many are read, or the nearest number that is sensible."""
    return min(most, max(least, round(read / max(1, documents))))


def _size(transformer: Any) -> int:
    """How many weights each word goes through."""
    return sum(weights.numel() for weights in transformer.parameters()) - transformer.get_input_embeddings().weight.numel()
