"""The one contract of all methods, and the model folder they are saved in.

A method's constructor stores settings; `fit` does the work and returns self; `predict` returns Scores over the columns of
the corpus it is given, which may hold labels that `fit` never saw. Abilities are asked by isinstance, never by flags.
"""

from __future__ import annotations

import tomllib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable
from zipfile import BadZipFile

import numpy as np

from labelwise import __version__
from labelwise.corpus import Corpus, Document
from labelwise.errors import BadModel, LabelwiseError
from labelwise.jsonl import read_labels, write_labels
from labelwise.labels import Label, LabelSet
from labelwise.progress import Progress
from labelwise.registry import method_class
from labelwise.scores import Scores
from labelwise.settings import make
from labelwise.storage import new_folder, to_toml, verify_checksums

FORMAT = 1


class Method(Protocol):
    """A way to classify; once fitted, a model."""

    name: ClassVar[str]
    Settings: ClassVar[type]
    settings: Any

    def __init__(self, settings: Any = ...) -> None: ...
    def fit(self, train: Corpus, dev: Corpus | None = None, *, progress: Progress | None = None) -> Self:
        """Learn from the training documents."""

    def predict(self, corpus: Corpus) -> Scores:
        """Score every label of the corpus's label set for every document."""

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write the model as a folder, whole or not at all."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model back."""


class ZeroShot:
    """A method that scores labels `fit` never saw."""


@runtime_checkable
class Resumable(Protocol):
    """A method that keeps unfinished work in a folder, and goes on from there."""

    work: Path | None


@runtime_checkable
class Watched(Protocol):
    """A method that learns in rounds and tells of each; whoever watches may raise to end the training."""

    watch: Callable[[dict[str, Any]], None] | None


@runtime_checkable
class Elsewhere(Protocol):
    """A method that may work on another device, so that the processor is free meanwhile; it uses torch."""

    def elsewhere(self) -> bool:
        """Whether it does on this machine."""


@runtime_checkable
class Remembers(Protocol):
    """A method that is slow to read documents, and can remember what it read while it is asked about them several times."""

    def remembering(self, corpus: Corpus, progress: Progress) -> AbstractContextManager[None]:
        """That while."""


@runtime_checkable
class Taught(Protocol):
    """A method whose scores may have been fitted to development documents, which then flatter it."""

    def taught_by(self, dev: Corpus) -> bool:
        """Whether these documents did that."""

    def cross_taught(self, dev: Corpus, progress: Progress) -> Iterator[tuple[Corpus, Scores]]:
        """Batches of documents, with the scores that they would have if they had taught it nothing."""


class Decides:
    """A method that decides for itself how to go about a corpus."""

    why: str  # what it chose, and the reason, once it is fitted


@runtime_checkable
class Explains(Protocol):
    """A method that can say which words spoke for a label."""

    @abstractmethod
    def explain(self, document: Document, label: Label) -> Explanation:
        """The weight of each word of the document for the label."""


class Span(NamedTuple):
    """A piece of the text that spoke for (above 0) or against a label."""

    start: int
    end: int
    weight: float


@dataclass(frozen=True)
class Explanation:
    """Why a label was given: pieces of the document's text with their weights."""

    label: Label
    score: float
    spans: tuple[Span, ...]
    sources: tuple[tuple[str, float], ...] = ()  # what the log-odds of the score are the sum of, where a method can tell


class SavedModel(NamedTuple):
    """What every model folder holds."""

    settings: dict[str, Any]
    labels: LabelSet
    folder: Path

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of NAME.npz, which must be there."""
        path = self.folder / f"{name}.npz"
        try:
            with np.load(path, allow_pickle=False) as stored:
                return {key: stored[key] for key in stored.files}
        except (OSError, ValueError, BadZipFile) as error:
            raise BadModel(f"{path}: missing or damaged ({error}); copy or train the model again") from None


@contextmanager
def model_folder(folder: Path, method: Method, labels: LabelSet, *, force: bool = False) -> Iterator[Path]:
    """A folder to write a model's own files into; settings, labels and checksums are written for it."""
    with new_folder(Path(folder), "model", force=force) as draft:
        header = {"format": FORMAT, "method": method.name, "version": __version__, "settings": asdict(method.settings)}
        if trained_on := getattr(method, "trained_on", ""):  # the checksum of a corpus, where somebody has set it
            header["trained_on"] = trained_on
        (draft / "model.toml").write_text(to_toml(header), encoding="utf-8")
        write_labels(labels, draft / "labels.jsonl")
        yield draft


def read_model(folder: Path) -> SavedModel:
    """Settings and labels of a model folder; every file is checked against its checksum."""
    header = read_header(folder)
    verify_checksums(folder)
    return SavedModel(header["settings"], read_labels(folder / "labels.jsonl"), folder)


def read_header(folder: Path) -> dict[str, Any]:
    """What `model.toml` says: format, method, version, settings."""
    path = folder / "model.toml"
    if not path.is_file():
        raise BadModel(f"{folder}: not a model folder (no model.toml); train one with `labelwise train`")
    try:
        header = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadModel(f"{path}: damaged: {error}") from None
    number, settings = header.get("format"), header.setdefault("settings", {})
    if not isinstance(number, int) or not isinstance(header.get("method"), str) or not isinstance(settings, dict):
        raise BadModel(f"{path}: damaged: it needs format (a number), method (a name) and settings")
    if number > FORMAT:
        raise BadModel(f"{path}: written in format {number}, this version reads up to {FORMAT}; upgrade labelwise")
    return header


def load(folder: Path | str) -> Method:
    """Any fitted model from its folder."""
    folder = Path(folder)
    header = read_header(folder)
    method: Method = method_class(header["method"]).load(folder)
    return method


def settings_from(kind: type, saved: SavedModel, folder: Path) -> Any:
    """The settings a model was saved with."""
    return make(kind, saved.settings, where=f"{folder / 'model.toml'}: settings.")


def fitted(method: Method, labels: LabelSet | None) -> LabelSet:
    """The labels a method was fitted on, or an error that says to fit it."""
    if labels is None:
        raise LabelwiseError(f"{method.name}: not fitted yet; call fit(train) first, or load a saved model")
    return labels
