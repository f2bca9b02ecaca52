"""What `best` reaches beside what it was to reach, and how it came there: a table and a plot of docs/best.md.

Made from the lines of benchmarks/results.jsonl, so that neither grows stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from labelwise.corpus import GROUPS

# RP@k / nDCG@k on test documents that we set out for.
GOALS = {
    "eurlex": {"all": (72, 76), "frequent": (76, 78), "few": (58, 56), "zero": (60, 52)},
    "ctgov": {"all": (89, 89), "frequent": (96, 95), "few": (88, 86), "zero": (82, 78)},
    "crs": {"all": (84, 86), "frequent": (88, 88), "few": (78, 68), "zero": (90, 80)},
}
STAGES = {  # what the plot calls them, and the rows of the results they are
    "A": "best, no transformer, 2 cores",
    "B": "best, minilm, GPU",
    "C": "best, gte-small, GPU, earlier",
    "D": "best, gte-small, GPU",
}
WIDE, HIGH = 190, 150  # a panel
REACHED, MISSED = "#009e73", "#d55e00"

Table = Callable[[Sequence[str], Iterable[Sequence[Any]]], str]
Pair = tuple[float, float]


def goals(lines: Sequence[Mapping[str, Any]], table: Table) -> tuple[str, str]:
    """The generated part of the page, and the plot."""
    found = {
        (corpus, group, stage): _mean(lines, corpus, group, row)
        for corpus in GOALS
        for group in GROUPS
        for stage, row in STAGES.items()
    }
    rows, reached = [], 0
    for corpus, own in GOALS.items():
        for group, goal in own.items():
            now = found[corpus, group, "D"]
            short = [max(0.0, wanted - round(score, 1)) for wanted, score in zip(goal, now, strict=True)]
            reached += sum(not each for each in short)
            missed = " / ".join(f"{each:.1f}" if each else "–" for each in short)
            steps = [f"{found[corpus, group, stage][1]:.1f}" for stage in STAGES]
            rows.append((corpus, group, *steps, f"{now[0]:.1f} / {now[1]:.1f}", f"{goal[0]} / {goal[1]}", missed))
    heads = ("corpus", "labels", *(f"{stage}, nDCG" for stage in STAGES), "D, RP / nDCG", "goal", "short by")
    said = f"{reached} of {2 * len(rows)} goals are reached."
    picture = "![nDCG of each label group on the way, beside the goal](images/goals.svg)"
    return f"{said}\n\n{picture}\n\n{table(heads, rows)}", _plot(found)


def _mean(lines: Sequence[Mapping[str, Any]], corpus: str, group: str, row: str) -> Pair:
    """RP@k and nDCG@k in hundredths, means over seeds."""
    own = [line for line in lines if (line["corpus"], line["method"]) == (corpus, row)]
    scores = [[100 * line["groups"][group][f"{name}@{line['k']}"] for name in ("rp", "ndcg")] for line in own]
    rp, ndcg = np.mean(scores, axis=0).tolist() if scores else (np.nan, np.nan)
    return rp, ndcg


def _plot(found: Mapping[tuple[str, str, str], Pair]) -> str:
    """A panel for each corpus and label group, with a broken line where the goal is."""
    across, down = 80 + WIDE * len(GROUPS), 70 + HIGH * len(GOALS)
    title = "nDCG@k × 100 of each label group from step to step, and the goal (broken line)"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" font-family="sans-serif" font-size="12" '
        f'role="img" aria-label="{title}">',
        f'<rect width="{across}" height="{down}" fill="#ffffff"/>',
        f'<text x="20" y="22" font-size="14" fill="#222">{title}</text>',
    ]
    for column, group in enumerate(GROUPS):
        parts.append(f'<text x="{80 + WIDE * column + 75}" y="48" text-anchor="middle" fill="#222">{group}</text>')
    for row, corpus in enumerate(GOALS):
        parts.append(f'<text x="20" y="{70 + HIGH * row + 60}" fill="#222">{corpus}</text>')
        for column, group in enumerate(GROUPS):
            scores = [found[corpus, group, stage][1] for stage in STAGES]
            parts += _panel(80 + WIDE * column, 60 + HIGH * row, scores, GOALS[corpus][group][1])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left: int, top: int, scores: Sequence[float], goal: float) -> list[str]:
    known = [(place, score) for place, score in enumerate(scores) if not np.isnan(score)]
    ends = [goal, *(score for _, score in known)]
    low, high = min(ends) - 2, max(ends) + 2

    def at(place: int, score: float) -> Pair:
        return left + 10 + 45 * place, top + 105 - 95 * (score - low) / (high - low)

    colour = REACHED if round(scores[-1], 1) >= goal else MISSED
    line = at(0, goal)[1]
    parts = [
        f'<rect x="{left}" y="{top}" width="155" height="115" fill="none" stroke="#dddddd"/>',
        f'<line x1="{left}" x2="{left + 155}" y1="{line:.1f}" y2="{line:.1f}" stroke="#666666" stroke-dasharray="4 3"/>',
        f'<text x="{left + 158}" y="{line + 4:.1f}" fill="#555" font-size="11">{goal}</text>',
    ]
    points = [at(place, score) for place, score in known]
    parts.append(
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    )
    for (x, y), (place, score) in zip(points, known, strict=True):
        beside = -7 if y > top + 20 else 15
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + beside:.1f}" text-anchor="middle" fill="#555" font-size="10">{score:.1f}</text>')
        parts.append(
            f'<text x="{x:.1f}" y="{top + 128}" text-anchor="middle" fill="#555" font-size="10">{list(STAGES)[place]}</text>'
        )
    return parts
