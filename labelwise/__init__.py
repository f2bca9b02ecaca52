"""Labelwise: the right handful of labels, out of thousands, for a document.

Names are resolved on first use, so that `import labelwise` imports neither numpy nor torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Corpus": "corpus",
    "CorpusInfo": "corpus",
    "Document": "corpus",
    "Groups": "corpus",
    "Splits": "corpus",
    "Label": "labels",
    "LabelSet": "labels",
    "Hierarchy": "hierarchy",
    "Scores": "scores",
    "Calibration": "calibration",
    "Report": "report",
    "Comparison": "comparison",
    "Study": "studies.study",
    "LabelwiseError": "errors",
    "calibrate": "calibration",
    "evaluate": "evaluation",
    "find_recipe": "recipe",
    "load": "methods.base",
    "make_method": "registry",
    "make_world": "datasets.worlds",
    "read_corpus": "jsonl",
    "read_labels": "jsonl",
    "reproduce": "reproduction",
    "tune": "tuning.search",
    "write_corpus": "jsonl",
    "describe": "statistics",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'labelwise' has no attribute {name!r}")
    return getattr(import_module(f"labelwise.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return __all__
