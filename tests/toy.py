"""The one toy corpus of the tests: a zoo small enough to check by hand."""

from __future__ import annotations

from labelwise.corpus import Corpus, CorpusInfo, Document, Splits
from labelwise.labels import Label, LabelSet

LABELS = LabelSet(
    [
        Label("animal", "animals"),
        Label("bird", "birds", ("animal",), ("fowl",)),
        Label("fish", "fishes", ("animal",)),
        Label("owl", "owls", ("bird",), description="birds of the night"),
        Label("place", "places"),
        Label("lake", "lakes", ("place",)),
        Label("duck", "ducks", ("bird", "lake")),
        Label("heron", "grey herons", ("bird",)),
    ]
)


def documents(*rows: tuple[str, str]) -> list[Document]:
    return [Document(f"d{number}", text, tuple(labels.split())) for number, (text, labels) in enumerate(rows)]


INFO = CorpusInfo("zoo", k=2, few=2)
TRAIN = documents(
    ("Owls hunt at night. An owl sees well.", "owl"),
    ("A duck swims on the lake.", "duck lake"),
    ("Owls and ducks are birds.", "owl duck bird"),
    ("The lake is full of fishes.", "lake fish"),
    ("Fishes of the deep lake", "fish lake"),
    ("An owl in the dark wood", "owl"),
)
DEV = documents(("Ducks again, on another lake", "duck lake"))
TEST = documents(
    ("Two owls by the lake", "owl lake"), ("Grey herons stand in the lake.", "heron lake"), ("One fish, no place named", "fish")
)


def zoo() -> Splits:
    return Splits(Corpus(TRAIN, LABELS, INFO), Corpus(DEV, LABELS, INFO), Corpus(TEST, LABELS, INFO))
