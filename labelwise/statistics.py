"""What a corpus is like (SPEC 7.4): sizes, words, labels per document, groups, levels, GAP, density, fragmentation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from labelwise.corpus import Corpus, Groups, Splits, count_labels
from labelwise.errors import BadFile, MissingExtra
from labelwise.hierarchy import Hierarchy
from labelwise.progress import Progress, silent
from labelwise.storage import read_json, write_bytes

SAMPLE = 2000  # documents that GAP is measured on when a label set is too large for all of them
FULL_GAP = 1 << 31  # label × node distances up to which it takes all


@dataclass(frozen=True)
class Statistics:
    """The figures of one corpus."""

    corpus: str
    documents: dict[str, int]
    words_mean: float
    words_median: float
    labels: int
    labels_used: int
    labels_per_document: float
    unlabelled_documents: int
    few: int
    groups: dict[str, int]
    test_groups: dict[str, int]
    levels: list[int]
    several_parents: int
    cycles: list[list[str]]
    gap: float | None
    gap_documents: int
    density: float
    fragmentation: float | None = None

    def json(self) -> str:
        """The figures as one JSON object."""
        return json.dumps({key: value for key, value in asdict(self).items() if value is not None}, ensure_ascii=False, indent=2)

    def text(self) -> str:
        """The figures in words."""
        sampled = (
            ""
            if self.gap_documents >= sum(self.documents.values()) - self.unlabelled_documents
            else f" (sample of {self.gap_documents:,} documents)"
        )
        rows = [
            ("documents", ", ".join(f"{split} {count:,}" for split, count in self.documents.items())),
            ("words per document", f"{self.words_mean:.1f} (median {self.words_median:.0f})"),
            ("labels", f"{self.labels_used:,} in use of {self.labels:,}"),
            (
                "labels per document",
                f"{self.labels_per_document:.2f}"
                + (f"; {self.unlabelled_documents:,} without" if self.unlabelled_documents else ""),
            ),
            (f"groups (few = 1 to {self.few})", ", ".join(f"{name} {count:,}" for name, count in self.groups.items())),
            ("groups in test", ", ".join(f"{name} {count:,}" for name, count in self.test_groups.items())),
            ("levels", f"{len(self.levels)}: " + ", ".join(f"{count:,}" for count in self.levels)),
            ("several parents", f"{self.several_parents:,} labels"),
            ("cycles", "; ".join(" → ".join(cycle) for cycle in self.cycles) or "none"),
            ("GAP", "none" if self.gap is None else f"{self.gap:.3f}{sampled}"),
            ("label density", f"{self.density:.6f}"),
        ]
        if self.fragmentation is not None:
            rows.append(("fragmentation ratio", f"{self.fragmentation:.3f}"))
        width = max(len(name) for name, _ in rows)
        return "\n".join([f"corpus {self.corpus}", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def describe(splits: Splits, *, few: int | None = None, tokenizer: Path | None = None, progress: Progress = silent) -> Statistics:
    """Measure a corpus; `tokenizer`, a tokenizer.json or a folder with one, adds the fragmentation ratio."""
    from labelwise.gap import density, gap

    cutter = _load_tokenizer(tokenizer) if tokenizer else None
    groups, hierarchy = Groups.of(splits, few), Hierarchy(splits.labels)
    total = sum(len(corpus) for corpus in splits)
    texts = (document.text for corpus in splits for document in corpus)
    words = np.fromiter((len(text.split()) for text in progress(texts, "count words", total)), dtype=np.int64, count=total)
    gold = csr_array(vstack([corpus.gold() for corpus in splits], format="csr"))
    sizes = np.diff(gold.indptr)
    sample = _gap_sample(gold)
    in_test = count_labels(splits.test) > 0
    return Statistics(
        corpus=splits.info.name,
        documents={name: len(corpus) for name, corpus in splits._asdict().items()},
        words_mean=float(words.mean()),
        words_median=float(np.median(words)),
        labels=len(splits.labels),
        labels_used=int(groups.all.sum()),
        labels_per_document=float(sizes.mean()),
        unlabelled_documents=int((sizes == 0).sum()),
        few=groups.threshold,
        groups={name: int(mask.sum()) for name, mask in groups.masks().items() if name != "all"},
        test_groups={name: int((mask & in_test).sum()) for name, mask in groups.masks().items() if name != "all"},
        levels=np.bincount(hierarchy.levels)[1:].tolist(),
        several_parents=int((np.diff(hierarchy.parents.indptr) > 1).sum()),
        cycles=hierarchy.cycles,
        gap=float(np.nanmean(gap(sample, hierarchy, progress=progress))) if sample.nnz else None,
        gap_documents=int((np.diff(sample.indptr) > 0).sum()),
        density=density(gold, max(1, int(groups.all.sum()))),
        fragmentation=_fragmentation(splits, words, cutter, progress) if cutter else None,
    )


def plot(splits: Splits, path: Path, *, few: int | None = None, force: bool = False) -> None:
    """Draw label frequency and depth into an image file; its ending chooses the format."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plots need matplotlib: pip install 'labelwise[plot]'") from None
    groups, hierarchy = Groups.of(splits, few), Hierarchy(splits.labels)
    colours = {"frequent": "#1f6f8b", "few": "#e08e45", "zero": "#b23a48"}
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    order = np.argsort(-groups.counts[groups.all], kind="stable")
    counts, names = groups.counts[groups.all][order], groups.names()[groups.all][order]
    for name, colour in colours.items():
        places = np.flatnonzero(names == name)
        shown = np.maximum(counts[places], 0.5)  # a log axis has no 0
        left.plot(places + 1, shown, ".", color=colour, markersize=4, label=f"{name} ({len(places):,})")
    left.set(xscale="log", yscale="log", xlabel="label, by frequency", ylabel="training documents", title="Label frequency")
    left.axhline(groups.threshold, color="#888888", linewidth=0.8, linestyle=":")
    left.legend(frameon=False)
    levels, bottom = np.arange(1, hierarchy.depth + 1), np.zeros(hierarchy.depth)
    for name, colour in {**colours, "unused": "#cccccc"}.items():
        height = np.bincount(hierarchy.levels[groups.names() == name], minlength=hierarchy.depth + 1)[1:]
        right.bar(levels, height, bottom=bottom, color=colour, label=name)
        bottom += height
    right.set(xlabel="level", ylabel="labels", title="Depth", xticks=levels)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    image = BytesIO()
    try:
        figure.savefig(image, dpi=150, format=path.suffix.removeprefix(".") or "png")
    except ValueError as error:
        raise BadFile(f"{path}: {error}") from None
    write_bytes(path, image.getvalue(), force=force)


def _gap_sample(gold: csr_array) -> csr_array:
    """All documents, or a fixed random sample of them where the hierarchy is too large for that."""
    if len(np.unique(gold.indices)) * gold.shape[1] <= FULL_GAP or gold.shape[0] <= SAMPLE:
        return gold
    rows = np.random.default_rng(0).choice(gold.shape[0], SAMPLE, replace=False)
    return csr_array(gold[np.sort(rows)])


def _fragmentation(splits: Splits, words: np.ndarray, tokenizer: Any, progress: Progress) -> float:
    """Sub-words over words of the whole corpus, special tokens not counted."""
    pieces = 0
    batches = [part for corpus in splits for part in corpus.batches(1000)]
    for batch in progress(batches, "cut sub-words", len(batches)):
        pieces += _count_pieces(batch, tokenizer)
    return pieces / int(words.sum())


def _count_pieces(batch: Corpus, tokenizer: Any) -> int:
    encodings = tokenizer.encode_batch([document.text for document in batch], add_special_tokens=False)
    return sum(len(encoding.ids) for encoding in encodings)


def _load_tokenizer(path: Path) -> Any:
    try:
        from tokenizers import BertWordPieceTokenizer, Tokenizer
    except ImportError:
        raise MissingExtra("--tokenizer needs the tokenizers library: pip install 'labelwise[neural]'") from None
    file = path / "tokenizer.json" if path.is_dir() else path
    vocabulary = path / "vocab.txt"
    if not file.is_file() and vocabulary.is_file():
        config = path / "tokenizer_config.json"
        lower = bool(read_json(config).get("do_lower_case", True)) if config.is_file() else True
        tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=lower)
        tokenizer.no_truncation()
        return tokenizer
    if not file.is_file():
        raise BadFile(f"{file}: no such file; --tokenizer takes a tokenizer.json, or a folder with one or with a vocab.txt")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises a bare Exception
        raise BadFile(f"{file}: not a tokenizer: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
