"""Ensembles: scores of other models blended, by weights or a regression of their own for frequent, few and zero labels.

Members are methods and recipes that are trained here, or folders of fitted models. Labels without a training document are
scored by the members that can score such labels, and by no others.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from labelwise.corpus import PARTS, Corpus, Document, fingerprint, group_numbers
from labelwise.errors import BadSettings, LabelwiseError
from labelwise.labels import Label, LabelSet
from labelwise.methods import base
from labelwise.methods.base import Elsewhere, Explains, Explanation, Method, Remembers, Resumable, Span, ZeroShot, fitted
from labelwise.methods.beside import Beside
from labelwise.methods.members import Member, called, find_member, reference, stored_member, warn_of_unknown
from labelwise.methods.weighting import (
    LAST,
    SAME,
    ZERO,
    Line,
    Mix,
    Scale,
    log_odds,
    make_pools,
    pool_as_new,
    search,
    shares,
    warn,
)
from labelwise.progress import Progress, T, silent
from labelwise.scores import Scores
from labelwise.settings import Range, cores
from labelwise.storage import read_json

if TYPE_CHECKING:
    from labelwise.methods.reranking import Ranker  # it imports numba, which not every ensemble needs


SLIGHT = 0.01  # log-odds that are not worth a line


@dataclass(frozen=True)
class GivenWeights:
    """Weights that are not searched for: one for each member, in their order; they sum to 1."""

    frequent: tuple[float, ...] = ()
    """Weights for labels with more training documents than the corpus's threshold, one for each member."""
    few: tuple[float, ...] = ()
    """Weights for labels with one training document up to the threshold."""
    zero: tuple[float, ...] = ()
    """Weights for labels without a training document; those of members that cannot score such labels do not count."""


@dataclass(frozen=True)
class EnsembleSettings:
    """Who belongs to an ensemble, and what each is worth."""

    members: tuple[str, ...] = ("parabel", "lexical")
    """Methods and recipes to train, or folders of models (`./parabel` for a folder that has the name of a method)."""
    weights: Literal["search", "regression", "equal"] = "search"
    """Weights that are not given are found on the development documents, for means or for a regression, or equal."""
    rerank: bool = False
    """Let boosted trees rank the likeliest labels again, unless that does harm on development documents they have not seen.
    Without labels of development documents, or with equal weights, they have nothing to learn from."""
    given: GivenWeights = field(default_factory=GivenWeights)
    self_contained: bool = False
    """Save copies of members that are folders, not references to them."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 1
    """Seed of the first member if it is trained here; that of the second is one more, and so on."""


class Fitted(NamedTuple):
    """All that fitting leaves behind."""

    labels: LabelSet
    groups: np.ndarray  # (labels,), the number of each label's group
    members: list[Member]
    mix: Mix
    ranker: Ranker | None = None
    teachers: str = ""  # the fingerprint of the documents that taught the ranker


class Ensemble(ZeroShot):
    """Its members' scores, blended for each label group by what they are worth there; it scores new labels if a member does."""

    name: ClassVar[str] = "ensemble"
    Settings: ClassVar[type] = EnsembleSettings

    def __init__(self, settings: EnsembleSettings = EnsembleSettings()) -> None:
        self.settings = settings
        self.work: Path | None = None  # where finished members are kept while training goes on
        self.why = ""  # these members, where that was decided here
        self._fitted: Fitted | None = None

    def fit(self, train: Corpus, dev: Corpus | None = None, *, progress: Progress | None = None) -> Self:
        """Load or train the members, then find their weights on the development documents."""
        dev = dev if dev is not None and dev.gold().nnz else None  # without labels they teach nobody anything
        show, members = progress or silent, self._members(train, dev)
        for member in members:
            if member.folder is not None and not scores_new(member.model):
                warn_of_unknown(member.folder, train.labels)
        self._train(members, train, dev, show)
        groups = group_numbers(train)
        teachers = "" if dev is None else fingerprint(dev)
        self._fitted = Fitted(train.labels, groups, members, *self._weigh(members, groups, train, dev, show), teachers)
        if self.why and self._fitted.ranker:
            self.why += "; boosted trees rank the likeliest labels again"
        return self

    def predict(self, corpus: Corpus) -> Scores:
        """Blended scores; sparse if all members' scores are."""
        return self._blended(self._several(corpus), corpus.labels)

    def _several(self, corpus: Corpus) -> list[Scores]:
        """The scores of each member that has a say."""
        model = self._ready()
        return [model.members[number].model.predict(corpus) for number in model.mix.heard]

    def _blended(self, several: Sequence[Scores], labels: LabelSet) -> Scores:
        """The scores of the whole from those of its members."""
        model, places = self._ready(), self._places(labels)
        groups = self._groups(places)
        scores = model.mix.of(model.mix.heard).apply(several, groups)
        return scores if model.ranker is None else model.ranker.apply(scores, several, groups, places)

    def taught_by(self, dev: Corpus) -> bool:
        """Whether trees that rank again were grown on these documents."""
        model = self._ready()
        return model.ranker is not None and model.teachers == fingerprint(dev)

    def cross_taught(self, dev: Corpus, progress: Progress) -> Iterator[tuple[Corpus, Scores]]:
        """Each half of the documents that taught it to rank is scored as the other half teaches it.

        Weights and lines have a dozen numbers, which thousands of candidates do not flatter; the trees have thousands. Of zero
        labels these know only how far to move them all, of which each half has its own mind: there, what all teach stands.
        """
        model, models = self._ready(), [member.model for member in self._ready().members]
        assert model.ranker is not None
        checked, middle = dev.with_labels(model.labels), len(dev) // 2
        with _remembering(models, checked, progress):
            pools = make_pools(models, model.groups, checked, dev.info.k, progress)
            halves = slice(middle), slice(middle, len(dev))
            for half, other in (halves, halves[::-1]):
                lesson = model.ranker.lesson([pool.rows(other) for pool in pools], model.mix, model.labels.parents())
                judge, batches = type(self)(self.settings), dev[half].to_score()
                judge._fitted = model._replace(ranker=model.ranker.taught(lesson, progress, self._threads))
                for batch in progress(batches, "calibrate", len(batches)):
                    several, zero = self._several(batch), self._groups(self._places(batch.labels)) == ZERO
                    judged, own = (one._blended(several, batch.labels).dense() for one in (judge, self))
                    yield batch, Scores(np.where(zero, own, judged), batch.labels)

    def explain(self, document: Document, label: Label) -> Explanation:
        """What those members say that can explain: words by their share in what a member says, times the member's weight."""
        model, labels = self._ready(), self._ready().labels
        if label.id not in labels:
            labels = labels.extended([replace(label, parents=tuple(id for id in label.parents if id in labels))])
        column = labels.column(label.id)
        place = self._places(labels)[column]
        group = int(model.groups[place]) if place >= 0 else ZERO
        weights = model.mix.weights[group].tolist()
        told = {
            number: member.model.explain(document, label)
            for number, (weight, member) in enumerate(zip(weights, model.members, strict=True))
            if weight and isinstance(member.model, Explains)
        }
        if not told:
            raise LabelwiseError(f"ensemble: no member that scores label {label.id!r} can explain it")
        spoke: dict[tuple[int, int], float] = {}
        for number, explanation in told.items():
            whole = sum(abs(span.weight) for span in explanation.spans)  # each member measures in units of its own
            for start, end, value in explanation.spans:
                spoke[start, end] = spoke.get((start, end), 0) + weights[number] * value / (whole or 1)
        several = self._several(Corpus([document], labels))
        said = np.array([scores.dense()[0, column] for scores in several])
        score, line = float(self._blended(several, labels).dense()[0, column]), model.mix.lines[group]
        sources = self._sources(told, line.of(model.mix.heard).terms(said), line, score) if line else ()
        return Explanation(label, score, tuple(Span(*place, spoke[place]) for place in sorted(spoke)), tuple(sources))

    def _sources(
        self, told: Mapping[int, Explanation], terms: np.ndarray, line: Line, score: float
    ) -> Iterator[tuple[str, float]]:
        """What a score's log-odds are the sum of: what each member says, in parts where it can tell, and what comes after."""
        model, names = self._ready(), called(self._ready().members)
        for number, own in zip(model.mix.heard.tolist(), terms.tolist(), strict=True):
            name, odds = names[number], float(line.odds[number])
            parts = told[number].sources if number in told else ()
            yield from ((f"{name}, {source}", odds * part) for source, part in parts)
            if rest := own - odds * sum(part for _, part in parts):
                yield f"{name}, its score" if parts else name, rest
        yield "what all labels of the group share", line.shift
        if abs(after := float(log_odds(np.array(score))) - line.shift - float(terms.sum())) > SLIGHT:
            yield "ranking again" if model.ranker else "bringing groups in line", after

    @property
    def weights(self) -> dict[str, list[float]]:
        """The weights of each group, in the order of the members."""
        return dict(zip(PARTS, self._ready().mix.weights.tolist(), strict=True))

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write weights and members: those trained here whole, others as references unless copies are wanted."""
        model, home = self._ready(), Path(os.path.realpath(folder))
        with base.model_folder(folder, self, model.labels, force=force) as draft:
            stored = []
            for number, member in enumerate(model.members):
                if member.folder is None or self.settings.self_contained:
                    member.model.save(draft / "members" / str(number))
                    stored.append({"folder": f"members/{number}"})
                else:
                    stored.append({"folder": reference(member.folder, home), "sha256": member.digest})
            told = {"members": stored, "weights": self.weights, "scales": dict(zip(PARTS, model.mix.scales, strict=True))}
            lines = {group: line.told() for group, line in zip(PARTS, model.mix.lines, strict=True) if line is not None}
            told |= {"lines": lines} if lines else {}
            told |= {"why": self.why} if self.why else {}
            told |= {"teachers": model.teachers} if model.teachers else {}
            (draft / "ensemble.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
            np.savez(draft / "ensemble.npz", groups=model.groups)
            if model.ranker:
                np.savez_compressed(draft / "ranker.npz", **model.ranker.arrays())  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read weights and members; a member that is missing or was changed is an error."""
        saved = base.read_model(folder)
        model, stored = cls(base.settings_from(cls.Settings, saved, folder)), read_json(folder / "ensemble.json")
        model.why = stored.get("why", "")
        weights = np.array([stored["weights"][group] for group in PARTS])
        lines = {group: Line.of_told(*line) for group, line in stored.get("lines", {}).items()}
        mix = Mix(weights, [Scale(*stored["scales"][group]) for group in PARTS], [lines.get(group) for group in PARTS])
        members = [stored_member(folder, **reference) for reference in stored["members"]]
        ranker = None
        if (folder / "ranker.npz").is_file():
            from labelwise.methods.reranking import Ranker

            ranker = Ranker.of_arrays(saved.arrays("ranker"))
        model._fitted = Fitted(saved.labels, saved.arrays("ensemble")["groups"], members, mix, ranker, stored.get("teachers", ""))
        return model

    def _ready(self) -> Fitted:
        fitted(self, None if self._fitted is None else self._fitted.labels)
        assert self._fitted is not None
        return self._fitted

    def _places(self, labels: LabelSet) -> np.ndarray:
        """(labels,), the column of each label when this was fitted; -1 for labels that are new."""
        known = self._ready().labels
        return np.arange(len(known)) if labels is known else known.columns(labels.ids)

    def _groups(self, places: np.ndarray) -> np.ndarray:
        """(labels,), the number of each label's group, by its place; labels that are new since fitting are zero labels."""
        return np.where(places >= 0, self._ready().groups[places], ZERO)

    @property
    def _threads(self) -> int:
        """Processor cores to use here; members have settings of their own."""
        return cores()

    def _members(self, train: Corpus, dev: Corpus | None) -> list[Member]:
        """The members, read from their folders or still to be trained."""
        _check(self.settings)
        return [find_member(name, self.settings.seed + number, self._asked) for number, name in enumerate(self.settings.members)]

    @property
    def _asked(self) -> dict[str, Any]:
        """Settings for all members that know them and are trained here."""
        return {}

    def _train(self, members: list[Member], train: Corpus, dev: Corpus | None, progress: Progress) -> None:
        """Train those that are no folders; while one works on a GPU, others are trained on the processor."""
        own = {number: member.model for number, member in enumerate(members) if member.folder is None}
        # What may use torch stays in one thread: seeds and numbers of threads are the process's there.
        first = {number: model for number, model in own.items() if isinstance(model, (Elsewhere, Ensemble))}
        others = {number: model for number, model in own.items() if number not in first}

        def trained(models: Mapping[int, Method], progress: Progress) -> None:
            for number, model in models.items():
                told = _named(progress, f"{model.name}, member {number + 1} of {len(members)}")
                members[number] = Member(self._trained(number, model, train, dev, told))

        if others and any(isinstance(model, Elsewhere) and model.elsewhere() for model in first.values()):
            with Beside(partial(trained, others)) as beside:
                trained(first, beside.heeded(progress))
                for _ in progress([None], f"finish {', '.join(model.name for model in others.values())}", 1):
                    beside.wait()
        else:
            trained(own, progress)

    def _trained(self, number: int, model: Method, train: Corpus, dev: Corpus | None, progress: Progress) -> Method:
        """A fitted member; it is kept until all are done, under a name that tells settings and data."""
        if self.work is None:
            return model.fit(train, dev, progress=progress)
        digest = hashlib.sha256()
        for item in chain([model.settings], train.labels, train, [None], dev or ()):
            digest.update(repr(item).encode())
        kept = self.work / f"{number}-{model.name}-{digest.hexdigest()[:16]}"
        if (kept / "model.toml").is_file():
            return base.load(kept)
        if isinstance(model, Resumable):
            model.work = kept.with_suffix(".training")
        model.fit(train, dev, progress=progress).save(kept)
        return model

    def _weigh(
        self, members: list[Member], groups: np.ndarray, train: Corpus, dev: Corpus | None, progress: Progress
    ) -> tuple[Mix, Ranker | None]:
        """Weights as they are given, the others equal, or found on the development documents; these teach a ranker too."""
        models = [member.model for member in members]
        able = np.ones((len(PARTS), len(models)), dtype=bool)
        able[ZERO] = [scores_new(model) for model in models]
        wanted = [getattr(self.settings.given, name) for name in PARTS]
        given = {number: shares(np.array(own) * able[number]) for number, own in enumerate(wanted) if own}
        if self.settings.weights != "equal" and dev is not None:
            checked, k, regress = dev.with_labels(train.labels), train.info.k, self.settings.weights == "regression"
            with _remembering(models, checked, progress):
                pools, as_new = make_pools(models, groups, checked, k, progress), None
                alone = able[ZERO].sum() == 1 and pools[ZERO].gold.any()  # has no weight to find, and learns its line from those
                if regress and able[ZERO].any() and not alone and ZERO not in given:
                    knowing = [model for model, own in zip(models, able[ZERO], strict=True) if own]
                    as_new = pool_as_new(knowing, groups, checked, k, progress)
            mix = search(pools, groups, able, given, k, progress, regress=regress, as_new=as_new)
            if not self.settings.rerank:
                return mix, None
            from labelwise.methods.reranking import fit_ranker

            return mix, fit_ranker(pools, mix, train, progress, self._threads)
        weights = np.stack([given.get(number, shares(own)) for number, own in enumerate(able)])
        if self.settings.weights == "equal":
            return Mix(weights, [SAME, SAME, SAME]), None
        warn("no labels of development documents to find weights on: members weigh the same, and zero labels come last")
        return Mix(weights, [SAME, SAME, LAST]), None


@contextmanager
def _remembering(models: Iterable[Method], corpus: Corpus, progress: Progress) -> Iterator[None]:
    """A while in which documents are asked for several times."""
    with ExitStack() as while_asked:
        for model in models:
            if isinstance(model, Remembers):
                while_asked.enter_context(model.remembering(corpus, progress))
        yield


def _check(settings: EnsembleSettings) -> None:
    """Refuse settings that cannot make an ensemble, before anything is trained."""
    size = len(settings.members)
    if not size:
        raise BadSettings("ensemble: members: there are none; name methods, recipes or model folders")
    for group in PARTS:
        weights = getattr(settings.given, group)
        if weights and len(weights) != size:
            raise BadSettings(f"ensemble: given.{group}: {len(weights)} weights for {size} members; give one for each")
        if weights and not (min(weights) >= 0 and abs(sum(weights) - 1) < 1e-6):
            raise BadSettings(f"ensemble: given.{group}: weights must be 0 or more and sum to 1, not to {sum(weights):g}")


def scores_new(model: Method) -> bool:
    """Whether a model scores labels that it never saw; an ensemble does if a member does."""
    if isinstance(model, Ensemble):
        return any(scores_new(member.model) for member in model._ready().members)
    return isinstance(model, ZeroShot)


def _named(progress: Progress, name: str) -> Progress:
    """Progress that says whose it is."""

    def show(items: Iterable[T], task: str, total: int | None = None) -> Iterator[T]:
        return progress(items, f"{name}: {task}", total)

    return show
