"""Write the pages that are made from the registries, `--help` and benchmarks/results.jsonl: `make docs`.

`pages()` gives their content, so that a test can tell when one is stale.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import EnumType
from math import inf
from pathlib import Path
from statistics import stdev
from typing import Any

from labelwise import metrics, registry
from labelwise.corpus import GROUPS
from labelwise.methods.base import Explains, ZeroShot
from labelwise.network.composition import NetworkSettings
from labelwise.settings import explain, spelt

sys.path.insert(0, str(Path(__file__).parent))
from gap_figures import figures
from goals_figure import goals
from results_page import TESTED, paper_results, paper_tables, results_page, tested

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results.jsonl"
NOTE = "<!-- Made by docs/generate.py; do not edit. -->\n"


def pages() -> dict[str, str]:
    """Name and content of every generated page."""
    made = {
        "methods.md": methods(),
        "datasets.md": datasets(),
        "metrics.md": metric_list(),
        "cli.md": commands(),
        "results.md": results(),
    }
    quality, stats = _of("quality"), _of("stats")
    web = {"results.html": results_page(by_row(quality), stats)}
    transformers = transformers_page(quality, _of("transformer-training"), _of("transformer-prediction"))
    written = gap_page() | best_page(quality) | transformers | calibration_page() | ensembles_page()
    return {name: NOTE + content.rstrip() + "\n" for name, content in made.items()} | written | web


def best_page(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The page about `best` with its figures made anew, and their plot."""
    made, plot = goals(lines, table)
    page = _between((DOCS / "best.md").read_text(encoding="utf-8"), "goals", made)
    page = _between(_between(page, "cores", _on_cores(lines)), "gpu", _on_a_gpu(lines))
    return {"best.md": page, "images/goals.svg": plot}


def _on_cores(lines: Sequence[Mapping[str, Any]]) -> str:
    """`best` on two cores beside `bonsai`."""
    known = {(line["corpus"], line["method"]): line for line in lines if line["seed"] in (None, 1)}
    rows = []
    for corpus in MAIN_CORPORA:
        for method, told in ON_CORES.items():
            if line := known.get((corpus, method)):
                seconds = line["fit_seconds"]
                time = f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} s"
                k = f" (k = {line['k']})" if line["k"] != 5 else ""
                rows.append((f"{corpus}{k}, {told}", *(_pair(line, group) for group in GROUPS), time))
    return table(("corpus, method", *GROUPS, "training"), rows)


def _on_a_gpu(lines: Sequence[Mapping[str, Any]]) -> str:
    """`best` with a transformer that is trained, beside its reader and what others make of the same transformer, or of none."""
    found, rows = _by_name(lines), []
    for corpus in MAIN_CORPORA:
        for method, told in ON_A_GPU.items():
            line = found[corpus, method]
            rows.append((f"{corpus}, {told}", *(_pair(line, group) for group in GROUPS), line["seeds"]))
    return table(("corpus, method", *GROUPS, "seeds"), rows)


def transformers_page(
    lines: Sequence[Mapping[str, Any]], training: Sequence[Mapping[str, Any]], prediction: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """The page about transformers with its scores and speeds made anew."""
    found, rows = _by_name(lines), []
    for method, told in TRANSFORMERS.items():
        own = (found.get((corpus, method)) for corpus in MAIN_CORPORA)
        rows.append((told, *(_pair(line, "all") if line else "not run" for line in own)))
    page = (DOCS / "transformers.md").read_text(encoding="utf-8")
    page = _between(_between(page, "speed", _speed(training)), "prediction", _prediction(prediction))
    return {"transformers.md": _between(page, "scores", table(("row", *MAIN_CORPORA), rows))}


def _speed(lines: Sequence[Mapping[str, Any]]) -> str:
    """Training with and without recorded kernels beside a plain loop."""
    found = {line["method"].removeprefix("lengths: "): line for line in lines}
    rows = []
    for lengths, line in found.items():
        if recorded := found.get(f"{lengths}, recorded"):
            speeds = (one["documents_per_second"] for one in (line, recorded))
            told = lengths if lengths.startswith("all") else f"as {lengths}'s, {line['tokens']} on average"
            rows.append((told, recorded["plain_documents_per_second"], *speeds, f"{recorded['ratio']:.2f}"))
    return table(("lengths", "plain", "launched", "recorded", "recorded / plain"), rows)


def _prediction(lines: Sequence[Mapping[str, Any]]) -> str:
    """Prediction on a processor beside the library's pipeline."""
    newest = {line["corpus"]: line for line in lines}
    rows = [
        (
            f"{corpus}, {line['tokens']} sub-words",
            line["pipeline_documents_per_second"],
            line["documents_per_second"],
            line["ratio"],
        )
        for corpus, line in newest.items()
    ]
    return table(("texts", "pipeline", "ours", "ours / pipeline"), rows)


def calibration_page() -> dict[str, str]:
    """The page about calibration with what was measured made anew."""
    newest = {(line["corpus"], line["method"]): line for line in _of("calibration")}
    rows = [
        (
            f"{corpus}, `{method}`",
            *(_changed(line["error"].get(group)) for group in GROUPS),
            *(f"{100 * promised:.1f} → {100 * got:.1f}" for promised, got in line["promised_and_got"].values()),
        )
        for (corpus, method), line in newest.items()
        if corpus in MAIN_CORPORA
    ]
    heads = ("error before → after", *GROUPS, "precision=0.9, promised → got", "recall=0.7", "f1")
    page = (DOCS / "calibration.md").read_text(encoding="utf-8")
    return {"calibration.md": _between(page, "calibration", table(heads, rows))}


def ensembles_page() -> dict[str, str]:
    """The page about ensembles with what ranking again gives made anew."""
    lines = [line for line in _of("readers") if "trained" in line and not line["mean"]]
    newest = {(line["corpus"], len(line["readers"]), line["trained"]): line for line in lines}
    kinds = {(0, False): "no reader", (1, False): "a reader that is not trained", (1, True): "a reader that is trained"}
    rows = []
    for corpus in MAIN_CORPORA:
        for kind, members in kinds.items():
            if line := newest.get((corpus, *kind)):
                key = next(key for key in line["groups"]["all"] if key.startswith("ndcg"))
                pairs = ([line[part][group][key] for part in ("blended", "groups")] for group in GROUPS)
                rows.append((f"{corpus}, {members}", *(f"{old:.1f} → {new:.1f}" for old, new in pairs)))
    page = (DOCS / "ensembles.md").read_text(encoding="utf-8")
    return {"ensembles.md": _between(page, "ranked", table(("regression → ranked again", *GROUPS), rows))}


def _changed(error: Mapping[str, float] | None) -> str:
    return f"{error['score']:.2f} → {error['probability']:.2f}" if error else "–"


def gap_page() -> dict[str, str]:
    """The page about GAP with its figures made anew, and its plot."""
    lines = _of("gap-study")
    sizes = [[line[key] for key in ("documents", "labels", "words")] for line in lines]
    made, plot = figures([line for line, size in zip(lines, sizes, strict=True) if size == sizes[-1]], table)
    page = (DOCS / "gap.md").read_text(encoding="utf-8")
    return {"gap.md": _between(page, "figures", made)} | ({"images/gap.svg": plot} if plot else {})


def _between(page: str, mark: str, content: str) -> str:
    """The page with other content between the comments `mark` and `/mark`."""
    before, _, rest = page.partition(f"<!-- {mark} -->\n")
    _, _, after = rest.partition(f"<!-- /{mark} -->")
    return f"{before}<!-- {mark} -->\n{content}\n<!-- /{mark} -->{after}"


def methods() -> str:
    """Every method with its settings; what many of them share stands at the end, once."""
    known = {name: entry.load() for name, entry in sorted(registry.METHODS.items())}
    usual = _usual([cls.Settings for cls in known.values() if issubclass(cls.Settings, NetworkSettings)])
    parts = [
        "# Methods",
        "After this page you know what each method does, what it can do beyond scoring, and its settings. Those that all networks share",
        "stand [at the end](#settings-of-networks); a network names those of which it has another default.",
        "",
    ]
    for name, cls in known.items():
        lead, said = registry.METHODS[name].summary, inspect.getdoc(cls) or ""
        lead = f"{lead[0].upper()}{lead[1:]}."
        parts += [f"## {name}", said if said.startswith(lead) else f"{lead} {said}", ""]
        abilities = [
            what
            for kind, what in ((ZeroShot, "scores labels it never saw"), (Explains, "explains its labels"))
            if issubclass(cls, kind)
        ]
        parts += [f"Abilities: {', '.join(abilities)}.", ""] if abilities else []
        rows = explain(cls.Settings)
        network = issubclass(cls.Settings, NetworkSettings)
        own = [row for row in rows if not network or _told(row) not in usual]
        parts += [_settings(own), ""] if own else [] if rows else ["No settings.", ""]
        if network:
            other = [f"`{row[0]}={spelt(row[2])}`" for row in rows if row not in own and row[2] != usual[_told(row)]]
            parts += [f"Settings of [networks](#settings-of-networks){', with ' if other else ''}{', '.join(other)}.", ""]
    shared = [(name, kind, default, meaning) for (name, kind, meaning), default in usual.items()]
    return "\n".join([*parts, "## Settings of networks", _settings(shared), ""])


def _usual(kinds: Sequence[type]) -> dict[tuple[str, str, str], Any]:
    """Name, type and meaning of the settings that all kinds have → the default that most of them have."""
    found: dict[tuple[str, str, str], list[Any]] = {}
    for row in (row for kind in kinds for row in explain(kind)):
        found.setdefault(_told(row), []).append(row[2])
    return {told: Counter(some).most_common(1)[0][0] for told, some in found.items() if len(some) == len(kinds)}


def _told(row: tuple[str, str, Any, str]) -> tuple[str, str, str]:
    name, kind, _, meaning = row
    return name, kind, meaning


def _settings(rows: Sequence[tuple[str, str, Any, str]]) -> str:
    told = [(f"`{name}`", kind, f"`{spelt(value)}`" if spelt(value) else "", meaning) for name, kind, value, meaning in rows]
    return table(("setting", "type", "default", "meaning"), told)


def datasets() -> str:
    parts = [
        "# Data sets",
        "After this page you can turn a published data set into a corpus folder, with `labelwise data NAME`.",
        "",
    ]
    for name, entry in registry.DATASETS.items():
        parts += [f"## {name}", inspect.getdoc(entry.load()) or "", ""]
    return "\n".join(parts)


def metric_list() -> str:
    rows = [(f"`{name}`", meaning) for name, meaning in metrics.names().items()]
    return "\n".join(
        [
            "# Measures",
            "After this page you can choose what `labelwise evaluate -m` reports.",
            "",
            table(("measure", "meaning"), rows),
            "",
            "Each group ranks among its own labels, and documents without a gold label in the group are left out of its mean.",
            "Equal scores fall as `--ties` says:",
            "",
            "- `authors`: the label with the higher column first, as the paper's code does; the default for dense scores.",
            "- `lower_index`: the label with the lower column first.",
            "- `expected`: the mean over all orders of the equal scores.",
            "- `pessimistic`: gold labels last, and a label without a score is never a hit; the default for sparse scores.",
        ]
    )


def commands() -> str:
    """The help of every command, in plain text."""
    from typer.main import get_command

    from labelwise.cli.main import app

    parts = [
        "# Command line",
        "After this page you know every command and option. Exit codes: 0 done, 1 a check failed, 2 a mistake, 130 interrupted.",
        "",
    ]
    parts += _help(get_command(app), ("labelwise",))
    return "\n".join(parts)


def _help(command: Any, path: tuple[str, ...]) -> list[str]:
    context = command.make_context(path[-1], [], resilient_parsing=True)
    if hasattr(command, "commands"):
        parts = [f"## {' '.join(path)}", command.help or "", ""] if len(path) > 1 else []
        return parts + [
            line for name in command.list_commands(context) for line in _help(command.get_command(context, name), (*path, name))
        ]
    rows = []
    for parameter in command.params:
        names = (
            ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
            if parameter.param_type_name == "option"
            else f"`{_argument(parameter)}`"
        )
        default = (
            "required"
            if parameter.required
            else ""
            if parameter.default in (None, False, [])
            else f"`{_plain(parameter.default)}`"
        )
        values = _values(parameter)
        rows.append((f"{names} {values}".rstrip(), getattr(parameter, "help", "") or "", default))
    usage = " ".join([*path, *(_argument(parameter) for parameter in command.params if parameter.param_type_name == "argument")])
    return [f"## {usage}", command.help or "", "", table(("option", "meaning", "default"), rows), ""]


def _argument(parameter: Any) -> str:
    """What stands in the place of an argument, as `--help` has it."""
    return str(parameter.metavar or parameter.name.upper())


def _values(parameter: Any) -> str:
    """What an option takes, where that is not one word of any kind."""
    if parameter.param_type_name != "option":
        return ""
    kind = parameter.type_descriptor.annotation
    told = parameter.metavar or ("|".join(one.value for one in kind) if isinstance(kind, EnumType) else "")
    return f"`{told}`" if told else ""


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(getattr(value, "value", value))


FAMILIES = (
    *(
        "prior",
        "lexical",
        "similarity",
        "parabel",
        "bonsai",
        "neighbours",
        "linear",
        "linear + lexical",
        "attention-xml",
        "cnn",
        "bigru",
    ),
    *("elmo", "minilm", "gte-small", "scratch", "lm-tree", "hier", "read-and-learned", "best"),
)
MAIN_CORPORA = ("eurlex", "ctgov", "crs")
MAIN_ROWS = (
    *("lexical", "parabel", "bonsai", "linear", "attention-xml", "attention-xml tree", "cnn-lwan", "bigru-lwan"),
    *("dc-bigru-lwan (unseen masked)", "gc-bigru-lwan (unseen masked)", "minilm-lwan", "dnc-minilm-lwan", "gte-small-lwan"),
    *("scratch-lwan", "read-and-learned, gte-small", "best, no transformer, 2 cores", "best, minilm, 2 cores, 10 minutes"),
    "best, gte-small, GPU",
)
ON_CORES = {
    "best, minilm, 2 cores, 10 minutes": "`best` with MiniLM, budget 10 minutes",
    "best, no transformer, 2 cores": "`best` without a transformer",
    "bonsai": "`bonsai`",
}
ON_A_GPU = {
    "best, gte-small, GPU": "`best`",
    "read-and-learned, gte-small": "`read-and-learned` alone",
    "gte-small-lwan": "`gte-small-lwan`",
    "minilm-lwan": "`minilm-lwan`",
    "linear": "`linear`",
}
TRANSFORMERS = {
    "minilm": "`minilm`, first state",
    "bigru-lwan": "`bigru-lwan`, for comparison",
    **{
        f"{kind}-lwan": f"`{kind}-lwan`"
        for kind in ("minilm", "gte-small", "scratch", "c-minilm", "dc-minilm", "gc-minilm", "dnc-minilm")
    },
    "gte-small": "`gte-small`, first state",
    **{f"{kind}-gte-small-lwan": f"`{kind}-gte-small-lwan`" for kind in ("c", "dc", "gc", "dnc")},
    "hier-minilm": "`hier-minilm`",
}
KNOWING = ("c-", "dc-", "dn-", "dnc-", "gc-", "gnc-")


def latest_results() -> list[dict[str, Any]]:
    """The last line of each thing measured; earlier ones stay in the file as history."""
    lines = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    keys = ("benchmark", "corpus", "method", "guideline", "documents", "labels", "ties", "seed")
    return list({tuple(str(line.get(key)) for key in keys): line for line in lines}.values())


def _of(kind: str) -> list[dict[str, Any]]:
    """The latest results of one benchmark."""
    return [line for line in latest_results() if line["benchmark"] == kind]


def results() -> str:
    lines = latest_results()
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_kind.setdefault(line["benchmark"], []).append(line)
    parts = [
        "# Results",
        "After this page you know how the methods do on real corpora, and how fast the library is. Every figure comes from a line of",
        "`benchmarks/results.jsonl`, which also names the commit; `LABELWISE_DATA=FOLDER make bench` measures them again.",
        f"Hardware: {'; '.join(sorted({line['hardware'] for line in lines}))}.",
        "",
    ]
    for kind, show in SECTIONS.items():
        parts += show(by_kind[kind]) if kind in by_kind else []
        parts += [*_tested(by_kind["quality"]), *_paper(by_kind["quality"], by_kind["stats"])] if kind == "quality" else []
    return "\n".join(parts)


def _corpora(lines: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            line["corpus"],
            " / ".join(f"{count:,}" for count in line["documents"].values()),
            f"{line['words_mean']:.0f} ({line['words_median']:.0f})",
            f"{line['labels_per_document']:.1f}",
            f"{line['labels_used']:,} / {line['labels']:,}",
            " / ".join(f"{count:,}" for count in line["groups"].values()),
            " / ".join(f"{count:,}" for count in line["test_groups"].values()),
            len(line["levels"]),
            f"{line['gap']:.3f}",
            f"{line['density']:.5f}",
            f"{line['seconds']:.1f}",
        )
        for line in lines
    ]
    heads = (
        "corpus",
        "train / dev / test",
        "words, mean (median)",
        "labels per document",
        "used / all labels",
        "frequent / few / zero",
        "of these in test",
        "levels",
        "GAP",
        "density",
        "seconds",
    )
    return ["## The corpora (`labelwise stats`)", table(heads, rows), ""]


def _quality(lines: list[dict[str, Any]]) -> list[str]:
    ties = " and ".join(sorted({line["ties"] for line in lines}))
    parts = [
        "## Quality by label group (`labelwise evaluate`, test split)",
        "RP@k / nDCG@k × 100; a group without documents is left out, the highest nDCG@k of a column is bold. Where several seeds were run,",
        "the mean ± the standard deviation of RP@k, and the least of the times. `documents/s` is training. Networks on a GPU ran many at once,",
        f"so their seconds are upper bounds; their word vectors are GloVe 6B, 100-D. Ties are {ties}. Settings stand under the tables.",
        "",
    ]
    told = []
    for corpus in dict.fromkeys(line["corpus"] for line in lines):
        own = over_seeds([line for line in lines if line["corpus"] == corpus])
        groups, measure = list(own[0]["groups"]), f"ndcg@{own[0]['k']}"
        highest = {group: max(line["groups"][group][measure] for line in own) for group in groups}
        rows = []
        for line in own:
            cells = []
            for group in groups:
                cell = _pair(line, group)
                cell = f"**{cell}**" if line["groups"][group][measure] == highest[group] else cell
                cells.append(cell + (f" ±{100 * line['spread'][group]:.1f}" if line["seeds"] > 1 else ""))
            epochs = f"{line['best_epoch']} of {line['epochs']}" if "epochs" in line else ""
            speed = f"{line['documents_per_second']:,.0f}" if "documents_per_second" in line else ""
            fit = f"{line['fit_seconds']:,.1f}" if "fit_seconds" in line else ""
            rows.append((line["method"], *cells, line["seeds"], fit, epochs, speed))
            if line.get("settings"):
                last = dict(setting.split("=", 1) for setting in line["settings"])
                told.append((f"{corpus}, {line['method']}", "; ".join(f"{name}={value}" for name, value in last.items())))
        heads = ("method", *groups, "seeds", "fit, s", "best epoch", "documents/s")
        parts += [f"### {corpus}, k = {own[0]['k']}", table(heads, rows), ""]
    return [*parts, *_folded("Settings that differ from a method's own", table(("row", "settings"), told))]


def _tested(quality: list[dict[str, Any]]) -> list[str]:
    """Which differences are more than chance, where that can be known."""
    comparison = tested(by_row(quality))
    return [f"## {TESTED}", comparison.table().markdown()] if comparison else []


def _paper(quality: list[dict[str, Any]], stats: list[dict[str, Any]]) -> list[str]:
    """The paper's tables of the zero-shot family and of encoders over words."""
    note = "Rows of described labels leave labels without a training document out of the loss, which the paper does not."
    tables = paper_tables(paper_results(by_row(quality), stats))
    lines = [line for title, made in tables for line in (f"### {title}", made.markdown())]
    return ["## The paper's tables for these corpora", note, "", *lines]


def _folded(title: str, content: str) -> list[str]:
    """What only some readers want to see."""
    return [f"<details><summary>{title}</summary>", "", content, "", "</details>", ""]


def over_seeds(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each corpus and method: the means over its seeds."""
    return [_mean(several) for several in by_row(lines)]


def _by_name(lines: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Corpus and method → the means over its seeds."""
    return {(line["corpus"], line["method"]): line for line in over_seeds(list(lines))}


def by_row(lines: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The lines of each corpus and method, one for each seed that was run with the settings of its last line."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        key = line["corpus"], line["method"]
        found[key] = [*(other for other in found.get(key, []) if other.get("settings") == line.get("settings")), line]
    return sorted(found.values(), key=lambda several: _family(several[0]["method"]))


def _family(method: str) -> tuple[int, int]:
    """Where a row stands: simple methods, trees, networks by their encoder, ours; those that know new labels after the flat ones."""
    kinds = [place for place, kind in enumerate(FAMILIES) if kind in method]
    knowing = [place for place, start in enumerate(KNOWING, start=1) if method.startswith(start)]
    return max(kinds, default=len(FAMILIES)), max(knowing, default=0)


def _mean(several: list[dict[str, Any]]) -> dict[str, Any]:
    """The line that was trained in the least time, with mean scores, and the standard deviation of RP@k of each group."""
    line, measure = min(several, key=lambda line: line.get("fit_seconds", inf)), f"rp@{several[0]['k']}"
    groups, spread = {}, {}
    for group, of in line["groups"].items():
        own = [other["groups"][group] for other in several]
        groups[group] = {key: sum(one[key] for one in own) / len(own) for key in of}
        spread[group] = stdev(one[measure] for one in own) if len(own) > 1 else 0.0
    return line | {"groups": groups, "spread": spread, "seeds": len(several)}


def _gap(lines: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            line["corpus"],
            f"{line['documents']:,}",
            f"{line['gap']:.4f}",
            line["seconds"],
            line["sample_seconds"],
            line["networkx_sample_seconds"],
            f"{line['ratio']:,.0f}",
            f"{line['largest_difference']:.1e}",
        )
        for line in lines
    ]
    heads = (
        "corpus",
        "documents",
        "GAP",
        "seconds, one core",
        "ours on 50, s",
        "networkx on 50, s",
        "ratio",
        "largest difference",
    )
    return ["## GAP, beside a plain networkx version of the same definition", table(heads, rows), ""]


def _evaluation(lines: list[dict[str, Any]]) -> list[str]:
    rows = [(line["ties"], line["seconds"], line["ranking_seconds"], line["extra_gib"]) for line in lines]
    title = "## Evaluation of 6,000 × 4,271 dense scores: four groups, four measures, k = 1..10"
    return [title, table(("ties", "seconds, ranking included", "ranking alone, s", "GiB beyond the matrix"), rows), ""]


def _worlds(lines: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            line["guideline"],
            f"{line['documents']:,}",
            f"{line['labels']:,}",
            line["seconds"],
            line["peak_gib"],
            f"{line['gap']:.3f}",
            line["paper_gap"],
        )
        for line in lines
    ]
    return ["## Made worlds", table(("guideline", "documents", "labels", "seconds", "peak GiB", "GAP", "the paper's"), rows), ""]


def _trees(lines: list[dict[str, Any]]) -> list[str]:
    parts = [
        "## Label trees beside the ones people use today",
        "Same matrices, same cores; ours and PECOS take turns and are medians of three rounds, the others ran once. Documents per second: the",
        "fastest of the ways to predict that a system has, all labels its beam reaches. RP@k / nDCG@k × 100, ties pessimistic.",
        "",
    ]
    heads = (
        "system",
        "trees",
        "train, s",
        "of that tree, s",
        "peak MB (training alone)",
        "model MB",
        "documents/s",
        "one document, ms",
        "cold start, s",
    )
    for corpus in dict.fromkeys(line["corpus"] for line in lines):
        own = [line for line in lines if line["corpus"] == corpus]
        groups = [group for group in own[0]["groups"] if group != "zero"]
        rows = []
        for line in own:
            ways = line["engines"].values()
            rows.append(
                (
                    line["method"],
                    line["trees"],
                    f"{line['train_seconds']:.1f}",
                    f"{line['tree_seconds']:.1f}" if "tree_seconds" in line else "not told",
                    f"{line['peak_mb']:,.0f} ({line['extra_mb']:,.0f})",
                    f"{line['model_mb']:,.0f}",
                    f"{max(way['documents_per_second'] for way in ways):,.0f}",
                    f"{min(way['one_document_ms'] for way in ways):.2f}",
                    f"{line['cold_start_seconds']:.1f}" if "cold_start_seconds" in line else "cannot load",
                    *(_pair(line, group) for group in groups),
                )
            )
        title = f"### {corpus}, {own[0]['threads']} threads, k = {own[0]['k']}"
        parts += [title, table((*heads, *groups), rows), ""]
    return parts


def _floor(lines: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            line["corpus"],
            f"{line['gb_per_pass']:.2f} GB ({line['read_seconds_per_pass']:.3f} s)",
            f"{line['pairs_per_pass'] / 1e9:.2f} billion ({line['arithmetic_seconds_per_pass']:.2f} s)",
            ", ".join(f"{name} {seconds:.1f} s" for name, seconds in line["solve_seconds"].items()),
        )
        for line in lines
    ]
    heads = ("corpus", "rows read in a pass", "value × classifier pairs of a pass", "all passes together, measured")
    return ["## The floor: what one pass over PECOS' tree must do, at this machine's speed", table(heads, rows), ""]


def _plainly(title: str, *keys: str) -> Any:
    def show(lines: list[dict[str, Any]]) -> list[str]:
        rows = [tuple(line.get(key, "–") for key in keys) for line in lines]
        return [f"## {title}", table([key.replace("_", " ") for key in keys], rows), ""]

    return show


SECTIONS = {
    "quality": _quality,
    "stats": _corpora,
    "gap": _gap,
    "evaluation": _evaluation,
    "world": _worlds,
    "large-corpus": _plainly(
        "A corpus of AMAZON13K's size, read lazily",
        "documents",
        "labels",
        "words",
        "file_gib",
        "read_seconds",
        "peak_gib_after_reading",
        "pass_seconds",
        "peak_gib",
    ),
    "trees": _trees,
    "trees-floor": _floor,
    "trees-scale": _plainly(
        "How training grows: one 16-ary tree, 1–5-grams, features included; the largest ran beside other work",
        "documents",
        "labels",
        "words",
        "seconds",
        "peak_gib",
        "before_gib",
        "anonymous_gib",
        "documents_per_second_from_text",
    ),
    "machine": _plainly("Memory and arithmetic of the machine", "method", "read_gb_s", "copy_gb_s", "add_gb_s", "gflops"),
    "tfidf": _plainly(
        "TF-IDF beside scikit-learn's TfidfVectorizer, on crs",
        "ngrams",
        "pattern",
        "seconds",
        "sklearn_seconds",
        "ratio",
        "peak_gib",
        "sklearn_peak_gib",
    ),
    "label-attention": _plainly(
        "Label attention with its loss, forward and backward in bfloat16, beside plain torch (softmax in float32)",
        "method",
        "milliseconds",
        "plain_milliseconds",
        "ratio",
        "extra_gib",
        "plain_extra_gib",
        "error",
    ),
    "transformer-training": _plainly(
        "Training an encoder of BERT-base's size on a GPU, label attention and loss included, beside a plain loop without them",
        "method",
        "tokens",
        "labels",
        "batch",
        "documents_per_second",
        "plain_documents_per_second",
        "ratio",
    ),
    "transformer-prediction": _plainly(
        "Prediction with MiniLM on a CPU (`bert-base`), beside the text-classification pipeline of the transformers library",
        "corpus",
        "method",
        "threads",
        "documents",
        "tokens",
        "labels",
        "documents_per_second",
        "pipeline_documents_per_second",
        "ratio",
    ),
    "neural trees": _plainly(
        "Networks on label trees as the labels grow, H200, 500 words a document; memory in GiB, beyond weights and Adam's moments",
        "method",
        "labels",
        "scored",
        "batch",
        "train_documents_per_second",
        "predict_documents_per_second",
        "peak_gib",
        "beyond_weights_and_moments_gib",
    ),
    "train-speed": _plainly(
        "Networks on a GPU: documents per second by batch size, up to 512 tokens",
        "corpus",
        "method",
        "labels",
        "documents",
        "documents_per_second",
    ),
    "train-step": _plainly(
        "BIGRU-LWAN on a CPU: seconds of a whole training step beside the plain formulation, 16 documents",
        "corpus",
        "method",
        "threads",
        "labels",
        "tokens",
        "padded_tokens",
        "seconds",
        "plain_seconds",
        "ratio",
    ),
    "help": _plainly("`labelwise --help`", "cpu_seconds"),
    "skos": _plainly("A SKOS thesaurus in Turtle", "megabytes", "labels", "seconds"),
    "randomisation": _plainly("Paired approximate randomisation", "documents", "rounds", "seconds"),
}


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    escaped = [
        [f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|").replace("\n", " ") for cell in row]
        for row in rows
    ]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads), *(" | ".join(row) for row in escaped)]
    return "\n".join(f"| {line} |" for line in lines)


def with_results(readme: str) -> str:
    """The README with its results table made anew: the main rows on the main corpora."""
    found, rows = _by_name(_of("quality")), []
    for method in (method for method in dict.fromkeys(method for _, method in found) if method in MAIN_ROWS):
        rows.append((method, *(_four(found.get((corpus, method))) for corpus in MAIN_CORPORA)))
    return _between(readme, "results", table(("method", *MAIN_CORPORA), rows))


def _four(line: Mapping[str, Any] | None) -> str:
    """RP@k × 100 of the four groups."""
    if line is None:
        return "not run"
    groups, measure = line["groups"], f"rp@{line['k']}"
    return " / ".join(f"{100 * groups[group][measure]:.1f}" if group in groups else "–" for group in GROUPS)


def _pair(line: Mapping[str, Any] | None, group: str) -> str:
    if line is None or group not in line["groups"]:
        return "not run"
    scores, k = line["groups"][group], line["k"]
    return f"{100 * scores[f'rp@{k}']:.1f} / {100 * scores[f'ndcg@{k}']:.1f}"


if __name__ == "__main__":
    for name, content in pages().items():
        (DOCS / name).write_text(content, encoding="utf-8")
    readme = DOCS.parent / "README.md"
    readme.write_text(with_results(readme.read_text(encoding="utf-8")), encoding="utf-8")
