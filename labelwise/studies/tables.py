"""The paper's Tables 1 to 7 and its in-text findings, from the results of a study; and what the paper lacks.

Scores are means over seeds with their spread and significance marks. A table that no run has anything for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from labelwise.comparison import Comparison
from labelwise.studies.results import Results, Run
from labelwise.studies.rows import ABLATIONS, OTHERS, SHUFFLED, ZONES, zone
from labelwise.tables import MISSING, Cell, Row, Table, Zone, percent

FAMILY = ("bigru-lwan", *(name for name in ZONES["zero-shot networks over words"] if "cnn" not in name))
PAIRS = {
    "learned labels": ("bigru-lwan", "cnn-lwan"),
    "names": ("c-bigru-lwan", "c-cnn-lwan"),
    "names, refined by parents and children": ("gc-bigru-lwan", "gc-cnn-lwan"),
}
LONG = ("attention-xml", *(name for name in ZONES["transfer learning"] if "bert" in name))
PRINTED = ("all", "frequent", "few")  # the groups whose scores the paper's finding on word order is about
GAINS = {"GC over DC": "gc-bigru-lwan", "DNC over DC": "dnc-bigru-lwan", "GNC over DC": "gnc-bigru-lwan"}
PLAIN = "dc-bigru-lwan"  # names without the hierarchy
SETTINGS = {
    "layers": "layers",
    "units": "units",
    "dropout": "encoder.dropout",
    "word dropout": "encoder.word_dropout",
    "batch": "training.batch",
    "step size": "training.learning_rate",
}


COMPILED = "The first evaluation of a tree in a process compiles its search, which takes some seconds."
NOTHING = Table("method", ((),), ())


class Titled(NamedTuple):
    """A table with what stands above it."""

    title: str
    table: Table


def study_tables(results: Results) -> list[Titled]:
    """All tables that there is something for, the main one first."""
    made = [
        Titled("Table 1. All, frequent, few-shot and zero-shot labels", _main(results)),
        Titled("Table 2. Long documents and fragmented words", _long_documents(results)),
        Titled("Table 3. Zero-shot methods by nDCG", family(results, "ndcg")),
        Titled("Table 4. Settings", _settings(results)),
        Titled("Table 5. GRU against CNN", pairs(results)),
        Titled("Table 6. Parameters and time", _sizes(results)),
        Titled("Table 7. Zero-shot methods by RP", family(results, "rp")),
        Titled("What word order is worth", _word_order(results)),
        Titled("What the hierarchy is worth to zero-shot labels", gained(results)),
        Titled("Corpora", _corpora(results)),
    ]
    return [one for number, one in enumerate(made) if one.table.rows or not number]


def gains(results: Results, group: str) -> Iterator[tuple[str, str, float, float]]:
    """(what is compared, corpus, GAP, gain in nDCG) of encoders that know the hierarchy, wherever both were run."""
    for name, method in GAINS.items():
        for corpus, facts in results.corpora.items():
            with_it, without = (results.score(row, corpus, group, "ndcg") for row in (method, PLAIN))
            if with_it is not None and without is not None and facts.statistics.gap is not None:
                yield name, corpus, facts.statistics.gap, with_it - without


def _main(results: Results) -> Table:
    """Scores, then the rows that have none with the reason."""
    told = [*_reasons(results), *_progress(results), *_left_out(results)]
    table = results.comparison.table() if results.comparison else Table("method", (("",),), ())
    ran = {report.method for report in results.reports}
    lost = {one.job.row: one.kind for one in results.failures if one.job.row not in ran | ABLATIONS.keys()}
    starts = {start for _, start, _ in table.spans(0)}
    zones = {one.title: one.rows for one in table.zones}
    for row, kind in lost.items():
        title = zone(results.rows[row])
        cells = tuple(Cell(kind) if column in starts else Cell() for column in range(len(table.heads[-1])))
        zones[title] = (*zones.get(title, ()), Row(row, cells))
    order, rank = [*ZONES, OTHERS], {row: number for number, row in enumerate(results.rows)}
    found = tuple(
        Zone(title, tuple(sorted(zones[title], key=lambda row: rank[row.name]))) for title in sorted(zones, key=order.index)
    )
    return replace(table, zones=found, notes=(*table.notes, *told))


def _reasons(results: Results) -> Iterator[str]:
    """What failed and what was not run, each reason once."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for job, kind, reason in results.failures:
        by_reason.setdefault((kind, reason), []).append(job.row if kind == "not run" else str(job))
    for (kind, reason), who in by_reason.items():
        yield f"{kind.capitalize()}: {'; '.join(dict.fromkeys(who))}: {reason}."


def _progress(results: Results) -> Iterator[str]:
    if results.waiting:
        now = f" (now: {results.running})" if results.running else ""
        yield f"Runs done: {len(results.runs)}; still to be done: {results.waiting}{now}."


def _left_out(results: Results) -> Iterator[str]:
    by_paths: dict[tuple[str, ...], list[str]] = {}
    for row, paths in (results.left_out or {}).items():
        by_paths.setdefault(paths, []).append(row)
    for paths, rows in by_paths.items():
        yield f"Left out for {', '.join(rows)}, where there is no such setting: {', '.join(paths)}."


def family(results: Results, metric: str) -> Table:
    """Few- and zero-shot labels, by methods that read names and hierarchy, beside the network that learns every label."""
    reports = [report for report in results.reports if results.rows[report.method] in FAMILY and report.method not in ABLATIONS]
    shown = {results.rows[report.method] for report in reports if "few" in report.groups or "zero" in report.groups}
    return Comparison(reports, metrics=[metric], groups=("few", "zero")).table() if shown - {FAMILY[0]} else NOTHING


def pairs(results: Results) -> Table:
    """The same labels over GRU states and over convolutions, wherever both were run."""
    ran = {report.method for report in results.reports}
    titles = {method: title for title, pair in PAIRS.items() if ran >= set(pair) for method in pair}
    reports = [report for report in results.reports if report.method in titles]
    return Comparison(reports, titles).table() if reports else NOTHING


def _long_documents(results: Results) -> Table:
    """How much of a document a method reads, and into how many pieces it cuts words."""

    def describe(runs: list[Run], corpus: str) -> Iterator[Cell]:
        report, settings = runs[0].report, runs[0].recipe.settings
        read = settings["encoder"]["segment"] * settings["encoder"]["segments"]
        over_words = settings["encoder"]["kind"] != "transformer"
        yield Cell(f"{settings['words']['max_length'] if over_words else read:,}")
        yield Cell(f"{report.notes['sub-words per word']:.2f}" if "sub-words per word" in report.notes else MISSING)
        yield Cell(percent(results.score(report.method, corpus, "all", "ndcg")))

    rows = [row for row, method in results.rows.items() if method in LONG]
    words = (f"{name}: {facts.statistics.words_mean:,.0f} words per document" for name, facts in results.corpora.items())
    note = f"Tokens are words or sub-words; fragmentation is sub-words per word. {'; '.join(words)}."
    return _by_corpus(results, rows, ("tokens", "fragmentation", "nDCG"), describe, note)


def _settings(results: Results) -> Table:
    """What networks were trained with: the settings of the paper's table, and the step size."""

    def describe(runs: list[Run], _: str) -> Iterator[Cell]:
        for path in SETTINGS.values():
            value: Any = runs[0].report.notes.get(path, MISSING) if "." not in path else runs[0].recipe.settings
            for key in path.split(".") if "." in path else ():
                value = value[key]
            yield Cell(f"{value:g}" if isinstance(value, int | float) else str(value))

    rows = [row for (row, _), runs in results.cells.items() if "encoder" in runs[0].recipe.settings and row not in ABLATIONS]
    return _by_corpus(results, list(dict.fromkeys(rows)), tuple(SETTINGS), describe, "Units are per direction.")


def _sizes(results: Results) -> Table:
    """Sizes of networks, and what all methods took."""

    def describe(runs: list[Run], corpus: str) -> Iterator[Cell]:
        notes = [run.report.notes for run in runs]

        def mean(name: str) -> float | None:
            found = [float(note[name]) for note in notes if name in note]
            return fmean(found) if found else None

        for name in ("parameters", "trained parameters"):
            yield Cell(_millions(mean(name)))
        yield Cell(spell_seconds(mean("seconds of training") or 0.0))
        tested = results.corpora[corpus].statistics.documents["test"]
        speeds = mean("training documents per second"), tested / max(mean("seconds of evaluation") or 0.0, 1e-3)
        for speed in speeds:
            yield Cell(MISSING if speed is None else f"{speed:,.0f}")

    names = ("parameters, M", "trained, M", "training", "documents/s in training", "documents/s in evaluation")
    machines = dict.fromkeys(str(run.report.notes["hardware"]) for run in results.runs if "hardware" in run.report.notes)
    rows = [row for row in results.rows if row not in ABLATIONS]
    return _by_corpus(results, rows, names, describe, f"Means over seeds; on {'; '.join(machines)}. {COMPILED}")


def _word_order(results: Results) -> Table:
    """The network over words in random order, beside the same in their own."""
    original = ABLATIONS[SHUFFLED][0]
    corpora = [corpus for corpus in results.corpora if {(SHUFFLED, corpus), (original, corpus)} <= results.cells.keys()]
    reports = [report for report in results.reports if report.method in (original, SHUFFLED) and report.corpus in corpora]
    if not reports:
        return NOTHING
    comparison = Comparison(reports, groups=PRINTED)
    table = comparison.table()
    drops = []
    for column in comparison.columns:
        before, after = (comparison.scores[row, column].value for row in (original, SHUFFLED))
        drops.append((column.corpus, 100 * (before - after) / before if before else 0.0))
    means = (f"{corpus} {fmean(drop for name, drop in drops if name == corpus):.1f} %" for corpus in corpora)
    row = Row("drop, %", tuple(Cell(f"{drop:.1f}") for _, drop in drops))
    zones = (*table.zones, Zone("", (row,)))
    return replace(table, zones=zones, notes=(*table.notes, f"Mean drop over these measures: {', '.join(means)}."))


def gained(results: Results) -> Table:
    """nDCG of encoders that know the hierarchy, less that of one that does not."""
    found = {(name, corpus, group): gain for group in ("few", "zero") for name, corpus, _, gain in gains(results, group)}
    corpora = [corpus for corpus in results.corpora if any(corpus == place[1] for place in found)]
    columns = [(corpus, group) for corpus in corpora for group in ("few", "zero")]
    rows = tuple(
        Row(name, tuple(Cell(f"{100 * found[name, *at]:+.1f}" if (name, *at) in found else MISSING) for at in columns))
        for name in GAINS
        if any(name == place[0] for place in found)
    )
    named = tuple(f"{corpus}, GAP {results.corpora[corpus].statistics.gap:.2f}" for corpus, _ in columns)
    heads = (named, tuple(group for _, group in columns))
    return Table("gain", heads, (Zone("", rows),) if rows else (), ("Differences of nDCG × 100.",))


def _corpora(results: Results) -> Table:
    names = (
        "train",
        "dev",
        "test",
        "words",
        "labels",
        "frequent",
        "few",
        "zero",
        "labels per document",
        "levels",
        "GAP",
        "density",
    )
    rows = []
    for name, facts in results.corpora.items():
        told = facts.statistics
        counts = [*told.documents.values(), round(told.words_mean), told.labels_used, *told.groups.values()]
        ends = [
            f"{told.labels_per_document:.2f}",
            str(len(told.levels)),
            MISSING if told.gap is None else f"{told.gap:.2f}",
            f"{told.density:.5f}",
        ]
        rows.append(Row(name, tuple(map(Cell, [*(f"{count:,}" for count in counts), *ends]))))
    note = "Words are means over documents; labels are those in use."
    return Table("corpus", (names,), (Zone("", tuple(rows)),) if rows else (), (note,))


def _by_corpus(
    results: Results, rows: Sequence[str], names: Sequence[str], describe: Callable[[list[Run], str], Iterator[Cell]], note: str
) -> Table:
    """A table with the same columns for every corpus, filled cell by cell from the runs of a row on it."""
    corpora = [corpus for corpus in results.corpora if any((row, corpus) in results.cells for row in rows)]
    heads = (tuple(corpus for corpus in corpora for _ in names), tuple(name for _ in corpora for name in names))
    made = []
    for row in rows:
        parts = [tuple(describe(runs, corpus)) if (runs := results.cells.get((row, corpus))) else () for corpus in corpora]
        if any(parts):
            made.append(Row(row, tuple(cell for part in parts for cell in (part or (Cell(),) * len(names)))))
    return Table("method", heads, (Zone("", tuple(made)),) if made else (), (note,))


def spell_seconds(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _millions(number: float | None) -> str:
    if number is None:
        return MISSING
    return f"{number / 1e6:.1f}" if number >= 1e6 else f"{number / 1e6:.2g}"
