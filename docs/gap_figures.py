"""Tables and plot of docs/gap.md, from the lines that benchmarks/gap_study.py recorded and the paper's numbers in the recipes.

The worlds are what is repeated: runs of one world are averaged first, and intervals are over worlds (Student's t). Encoders are
compared within a world and a training seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from labelwise.recipe import packaged, read_recipe

GUIDELINES = {"leaves": "mimic3", "any-level": "eurlex57k", "closed": "amazon13k"}  # and the paper's data set that has it
PAPER_GAP = {"leaves": 0.27, "any-level": 0.45, "closed": 0.86}
NAMES = {"path": "names tell of the labels above", "own": "names tell of the label alone"}
ENCODERS = ("C", "DC", "DN", "DNC", "GC", "GNC")
CONTRASTS = (("DC", "C"), ("DN", "DC"), ("DNC", "DC"), ("GC", "DC"), ("GNC", "DC"), ("GNC", "GC"))
COLOURS = {"GC": "#0072b2", "GNC": "#d55e00", "DNC": "#009e73", "DN": "#8a5a9e"}  # those that know the hierarchy

Table = Callable[[Sequence[str], Iterable[Sequence[Any]]], str]
Key = tuple[str, str, str]  # names, guideline, encoder
Runs = dict[Key, dict[tuple[int, int | None], float]]  # world and seed → score


class Estimate(NamedTuple):
    """A mean over worlds, and how far its 95 % interval reaches to both sides."""

    mean: float
    reach: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """The estimate; a single world says nothing about the next."""
        if len(values) < 2:
            return cls(float(np.mean(values)) if len(values) else np.nan, np.inf)
        return cls(
            float(np.mean(values)), float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
        )

    def __str__(self) -> str:
        return (
            "not run"
            if np.isnan(self.mean)
            else f"{self.mean:+.1f}" + (f" ± {self.reach:.1f}" if np.isfinite(self.reach) else "")
        )

    @property
    def verdict(self) -> str:
        """What may be said of its sign."""
        return "rises" if self.mean > self.reach else "falls" if -self.mean > self.reach else "no change is certain"


def figures(lines: Sequence[Mapping[str, Any]], table: Table) -> tuple[str, str]:
    """The generated part of the page, and the plot; neither before every guideline has a run."""
    if GUIDELINES.keys() - {line["guideline"] for line in lines}:
        return "The study has not been run.", ""
    zero, few = (_runs(lines, group) for group in ("zero", "few"))
    parts = [_worlds(lines, table), "![Gain over DC against GAP, by encoder](images/gap.svg)", ""]
    for names, meaning in NAMES.items():
        parts += [f"### {meaning[0].upper()}{meaning[1:]}", "", _answer(zero, names), ""]
        parts += ["nDCG@5 × 100 of leaves without / with 1 to 20 training documents:", "", _scores(zero, few, names, table), ""]
        parts += [
            "Differences on leaves without training documents, within a world and seed:",
            "",
            _differences(zero, names, table),
            "",
        ]
    return "\n".join(parts).rstrip(), _plot(lines, zero)


def _runs(lines: Sequence[Mapping[str, Any]], group: str) -> Runs:
    runs: Runs = {}
    for line in lines:
        key = line["names"], line["guideline"], line["method"].removesuffix("-bigru-lwan").upper()
        if group in line["groups"]:
            runs.setdefault(key, {})[line["world"], line["seed"]] = 100 * line["groups"][group][f"ndcg@{line['k']}"]
    return runs


def _by_world(runs: Mapping[tuple[int, int | None], float]) -> dict[int, float]:
    worlds = sorted({world for world, _ in runs})
    return {world: float(np.mean([score for (other, _), score in runs.items() if other == world])) for world in worlds}


def _gain(runs: Runs, names: str, guideline: str, one: str, other: str) -> dict[int, float]:
    """By world, how much better one encoder is than the other with the same seeds."""
    first, second = (runs.get((names, guideline, encoder), {}) for encoder in (one, other))
    return _by_world({run: first[run] - second[run] for run in first.keys() & second.keys()})


def _change(runs: Runs, names: str, one: str, other: str) -> Estimate:
    """How much the gain differs between the guidelines with the highest and the lowest GAP."""
    high, low = (_gain(runs, names, guideline, one, other) for guideline in ("closed", "leaves"))
    return Estimate.of([high[world] - low[world] for world in sorted(high.keys() & low.keys())])


def _worlds(lines: Sequence[Mapping[str, Any]], table: Table) -> str:
    rows = []
    for guideline, corpus in GUIDELINES.items():
        own = [line for line in lines if line["guideline"] == guideline]
        worlds, seeds = {line["world"] for line in own}, {line["seed"] for line in own} - {None}
        gaps, labels = [line["gap"] for line in own], np.mean([line["labels_per_document"] for line in own])
        paper = f"{PAPER_GAP[guideline]} ({corpus})"
        rows.append(
            (
                guideline,
                f"{np.mean(gaps):.2f} ({min(gaps):.2f} to {max(gaps):.2f})",
                paper,
                f"{labels:.1f}",
                len(worlds),
                len(seeds),
            )
        )
    size = "{documents:,} documents of {words} words and {labels} labels in each world.".format_map(lines[-1])
    return f"{size}\n\n" + table(("guideline", "GAP", "the paper's", "labels per document", "worlds", "seeds"), rows) + "\n"


def _answer(runs: Runs, names: str) -> str:
    """What the best encoder is under each guideline, and whether gains by the hierarchy move with GAP."""
    best = []
    for guideline in GUIDELINES:
        scores = {encoder: _by_world(runs.get((names, guideline, encoder), {})) for encoder in ENCODERS}
        scores = {encoder: own for encoder, own in scores.items() if own}
        if scores:
            first = max(scores, key=lambda encoder: float(np.mean(list(scores[encoder].values()))))
            wins = [
                world for world in scores[first] if all(own.get(world, -1) <= scores[first][world] for own in scores.values())
            ]
            best.append(f"{first} under `{guideline}` (in {len(wins)} of {len(scores[first])} worlds)")
    changes: dict[str, list[str]] = {}
    for one, other in CONTRASTS[2:]:
        changes.setdefault(_change(runs, names, one, other).verdict, []).append(f"{one} − {other}")
    said = "; ".join(f"{verdict}: {', '.join(which)}" for verdict, which in changes.items())
    return f"Best on average: {', '.join(best)}. From `leaves` to `closed`, {said}."


def _scores(zero: Runs, few: Runs, names: str, table: Table) -> str:
    means = {key: float(np.mean(list(_by_world(own).values()))) for key, own in zero.items()}
    top = {
        guideline: max((means.get((names, guideline, one), -1.0) for one in ENCODERS), default=-1.0) for guideline in GUIDELINES
    }
    rows = []
    for encoder in ("LEXICAL", *ENCODERS):
        cells = []
        for guideline in GUIDELINES:
            key = names, guideline, encoder
            mark = "**" * (means.get(key) == top[guideline])
            other = np.mean(list(_by_world(few[key]).values())) if key in few else np.nan
            cells.append(f"{mark}{means[key]:.1f}{mark} / {other:.1f}" if key in means else "not run")
        rows.append((encoder if encoder in ENCODERS else "`lexical`, the floor", *cells))
    return table(("encoder", *GUIDELINES), rows)


def _differences(runs: Runs, names: str, table: Table) -> str:
    paper = _paper()
    rows = []
    for one, other in CONTRASTS:
        ours = [Estimate.of(list(_gain(runs, names, guideline, one, other).values())) for guideline in GUIDELINES]
        theirs = [f"{paper[guideline, one] - paper[guideline, other]:+.1f}" for guideline in GUIDELINES]
        rows.append((f"{one} − {other}", *ours, _change(runs, names, one, other), " / ".join(theirs)))
    return table(("", *GUIDELINES, "closed − leaves", "the paper's three"), rows)


def _paper() -> dict[tuple[str, str], float]:
    """The paper's nDCG on labels without training documents (Table 3), by guideline and encoder."""
    paths, found = dict(packaged()), {}
    for guideline, corpus in GUIDELINES.items():
        for encoder in ENCODERS:
            expected = read_recipe(paths[f"{corpus}/{encoder.lower()}-bigru-lwan"], shallow=True).expected["zero"]
            found[guideline, encoder] = 100 * next(value for name, value in expected.items() if name.startswith("ndcg@"))
    return found


def _plot(lines: Sequence[Mapping[str, Any]], runs: Runs) -> str:
    """Gains over DC against GAP: two panels of worlds, and the paper's data sets."""
    gaps = {
        guideline: float(np.mean([line["gap"] for line in lines if line["guideline"] == guideline])) for guideline in GUIDELINES
    }
    paper = _paper()
    panels = [
        (
            meaning,
            gaps,
            {(one, g): Estimate.of(list(_gain(runs, names, g, one, "DC").values())) for one in COLOURS for g in GUIDELINES},
        )
        for names, meaning in NAMES.items()
    ]
    theirs = {(one, g): Estimate(paper[g, one] - paper[g, "DC"], np.inf) for one in COLOURS for g in GUIDELINES}
    panels.append(("the paper's data sets, one run each", PAPER_GAP, theirs))
    known = [one for _, _, gains in panels for one in gains.values() if not np.isnan(one.mean)]
    ends = [one.mean + sign * (one.reach if np.isfinite(one.reach) else 0) for one in known for sign in (-1, 1)]
    step = 5 * max(1, round((max(ends) - min(ends)) / 30))
    ticks = range(step * int(np.floor(min(*ends, 0) / step)), step * int(np.ceil(max(*ends, 0) / step)) + 1, step)
    title = "Gain over DC-BIGRU-LWAN in nDCG@5 on leaves without training documents, against GAP"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 340" font-family="sans-serif" font-size="13" role="img" aria-label="{title}">',
        '<rect width="900" height="340" fill="#ffffff"/>',
        f'<text x="20" y="22" font-size="14" fill="#222">{title}</text>',
    ]
    for place, (one, colour) in enumerate(COLOURS.items()):
        parts.append(
            f'<circle cx="{26 + 70 * place}" cy="40" r="4" fill="{colour}"/><text x="{35 + 70 * place}" y="45" fill="{colour}">{one}</text>'
        )
    for place, panel in enumerate(panels):
        parts += _panel(50 + 290 * place, ticks, *panel)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    left: int, ticks: range, title: str, gaps: Mapping[str, float], gains: Mapping[tuple[str, str], Estimate]
) -> list[str]:
    def across(gap: float) -> float:
        return left + 250 * (gap - 0.2) / 0.8

    def down(gain: float) -> float:
        return 300 - 215 * (gain - ticks[0]) / (ticks[-1] - ticks[0])

    parts = [f'<text x="{left + 125}" y="74" text-anchor="middle" fill="#222">{title}</text>']
    for tick in ticks:
        colour = "#666666" if tick == 0 else "#dddddd"
        parts.append(f'<line x1="{left}" x2="{left + 250}" y1="{down(tick):.1f}" y2="{down(tick):.1f}" stroke="{colour}"/>')
        parts.append(
            f'<text x="{left - 6}" y="{down(tick) + 4:.1f}" text-anchor="end" fill="#555" font-size="11">{tick:+d}</text>'
        )
    for guideline, gap in gaps.items():
        parts.append(f'<text x="{across(gap):.1f}" y="316" text-anchor="middle" fill="#555" font-size="11">{gap:.2f}</text>')
        parts.append(f'<text x="{across(gap):.1f}" y="331" text-anchor="middle" fill="#555" font-size="10">{guideline}</text>')
    for number, (encoder, colour) in enumerate(COLOURS.items()):
        points = []
        for guideline, gap in gaps.items():
            gain, x = gains[encoder, guideline], across(gap) + 3 * number - 4.5  # beside each other, not on top
            if np.isnan(gain.mean):
                continue
            points.append(f"{x:.1f},{down(gain.mean):.1f}")
            parts.append(f'<circle cx="{x:.1f}" cy="{down(gain.mean):.1f}" r="3.5" fill="{colour}"/>')
            if np.isfinite(gain.reach):
                top, bottom = down(gain.mean + gain.reach), down(gain.mean - gain.reach)
                parts.append(
                    f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" stroke="{colour}" stroke-width="1.5"/>'
                )
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-opacity="0.6"/>'
        )
    return parts
