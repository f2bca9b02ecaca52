"""What there is, by name: methods and data sets, each loaded only when it is used.

Plug-ins add methods through the entry-point group `labelwise.methods`, data sets through `labelwise.datasets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from labelwise.errors import MissingExtra, UnknownName, did_you_mean

if TYPE_CHECKING:
    from labelwise.methods.base import Method


class Entry(NamedTuple):
    """Where a thing lives, and what it is for in one line."""

    target: str
    summary: str

    def load(self) -> Any:
        """Import the thing itself."""
        module, _, name = self.target.partition(":")
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "safetensors", "transformers", "tokenizers"):
                raise
            raise MissingExtra(f"networks need {error.name}: pip install 'labelwise[neural]'") from None


METHODS = {
    "bonsai": Entry("labelwise.methods.tree:Bonsai", "wide and shallow label trees over TF-IDF features"),
    "parabel": Entry("labelwise.methods.tree:Parabel", "balanced binary label trees over TF-IDF features"),
    "linear": Entry("labelwise.methods.tree:Linear", "one linear classifier per label over TF-IDF features"),
    "bigru-lwan": Entry("labelwise.methods.lwan:BigruLwan", "label-wise attention over a GRU, labels learned"),
    "bigru-lwan-elmo": Entry("labelwise.methods.lwan:BigruLwanElmo", "bigru-lwan with ELMo's vectors of words in context"),
    "cnn-lwan": Entry("labelwise.methods.lwan:CnnLwan", "label-wise attention over convolutions, labels learned"),
    "attention-xml": Entry("labelwise.methods.lwan:AttentionXml", "label-wise attention over an LSTM, one judge for all labels"),
    "c-bigru-lwan": Entry("labelwise.methods.lwan:CBigruLwan", "labels described by the words of their names"),
    "dc-bigru-lwan": Entry("labelwise.methods.lwan:DcBigruLwan", "names, refined by dense layers"),
    "dn-bigru-lwan": Entry("labelwise.methods.lwan:DnBigruLwan", "places in the hierarchy, refined by dense layers"),
    "dnc-bigru-lwan": Entry("labelwise.methods.lwan:DncBigruLwan", "names and places in the hierarchy, refined by dense layers"),
    "gc-bigru-lwan": Entry("labelwise.methods.lwan:GcBigruLwan", "names, refined by parents and children"),
    "gnc-bigru-lwan": Entry("labelwise.methods.lwan:GncBigruLwan", "places in the hierarchy, refined by parents and children"),
    "c-cnn-lwan": Entry("labelwise.methods.lwan:CCnnLwan", "c-bigru-lwan over convolutions"),
    "gc-cnn-lwan": Entry("labelwise.methods.lwan:GcCnnLwan", "gc-bigru-lwan over convolutions"),
    "bert-base": Entry("labelwise.methods.bert:Bert", "a linear layer over BERT's first state"),
    "roberta-base": Entry("labelwise.methods.bert:Roberta", "a linear layer over RoBERTa's first state"),
    "sci-bert": Entry("labelwise.methods.bert:SciBert", "bert-base with a vocabulary of scientific texts"),
    "clinical-bert": Entry("labelwise.methods.bert:ClinicalBert", "bert-base, trained further on hospital records"),
    "hier-sci-bert": Entry("labelwise.methods.bert:HierSciBert", "sci-bert over segments of long documents"),
    "bert-base-lwan": Entry("labelwise.methods.bert:BertLwan", "label-wise attention over BERT, labels learned"),
    "read-and-learned": Entry("labelwise.methods.read:ReadAndLearned", "labels read by the documents' transformer, and learned"),
    "bert-tree": Entry("labelwise.methods.bert:BertTree", "label-wise attention over BERT, on a tree of many labels"),
    "c-bert-base-lwan": Entry("labelwise.methods.bert:CBertLwan", "BERT, labels described by the words of their names"),
    "dc-bert-base-lwan": Entry("labelwise.methods.bert:DcBertLwan", "BERT, names refined by dense layers"),
    "dnc-bert-base-lwan": Entry("labelwise.methods.bert:DncBertLwan", "BERT, names and places in the hierarchy"),
    "gc-bert-base-lwan": Entry("labelwise.methods.bert:GcBertLwan", "BERT, names refined by parents and children"),
    "best": Entry("labelwise.methods.best:Best", "what our measurements recommend for a corpus and a machine"),
    "ensemble": Entry("labelwise.methods.ensemble:Ensemble", "other models, blended by label group"),
    "lexical": Entry("labelwise.methods.lexical:Lexical", "label names and synonyms found in the text; needs no training"),
    "neighbours": Entry("labelwise.methods.neighbours:Neighbours", "labels of the training documents that are most like it"),
    "prior": Entry("labelwise.methods.prior:Prior", "every document gets the labels that training saw most"),
}

DATASETS = {
    "jsonl": Entry("labelwise.datasets.jsonl:read_jsonl", "any folder in Labelwise's own format, checked"),
    "eurlex57k": Entry("labelwise.datasets.eurlex57k:read_eurlex57k", "57,000 EU laws with EuroVoc concepts"),
    "mimic3": Entry("labelwise.datasets.mimic3:read_mimic3", "discharge summaries with ICD-9-CM codes"),
    "amazon13k": Entry("labelwise.datasets.amazon13k:read_amazon13k", "1.5 million products with their categories"),
    "skos": Entry("labelwise.datasets.skos:read_skos", "a label set from a SKOS thesaurus"),
    "annif": Entry("labelwise.datasets.annif:read_annif", "Annif's full-text folders and TSV corpora"),
    "xmc": Entry("labelwise.datasets.xmc:read_xmc", "the extreme-classification repository's sparse text files"),
}


def methods() -> dict[str, Entry]:
    """All methods, plug-ins included; our own names win."""
    return _plugins("labelwise.methods") | METHODS


def datasets() -> dict[str, Entry]:
    """All data set readers, plug-ins included."""
    return _plugins("labelwise.datasets") | DATASETS


def find(name: str, entries: Mapping[str, Entry], kind: str) -> Entry:
    """The entry of that name, or an error with the nearest name."""
    if name not in entries:
        raise UnknownName(f"there is no {kind} {name!r}{did_you_mean(name, entries)} (known: {', '.join(sorted(entries))})")
    return entries[name]


def method_class(name: str) -> Any:
    """The class of a method by name."""
    return find(name, methods(), "method").load()


def make_method(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """An unfitted method by name, its settings checked."""
    from labelwise.settings import make

    cls = method_class(name)
    method: Method = cls(make(cls.Settings, settings or {}, where=f"{name}: "))
    return method


def _plugins(group: str) -> dict[str, Entry]:
    return {
        point.name: Entry(point.value, f"plug-in of {point.dist.name if point.dist else 'unknown origin'}")
        for point in entry_points(group=group)
    }
