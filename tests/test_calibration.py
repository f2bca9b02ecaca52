"""Calibration: maps against scikit-learn, the order of labels, what is kept in a model folder, and the commands."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from test_cli import ok, refused, run
from toy import zoo

from labelwise.calibration import FILE, Calibration, Map, _fit, calibrate, every_label, make_pools, together
from labelwise.corpus import Corpus, CorpusInfo, Document, Groups, Splits
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadCorpus, BadModel, OutputExists
from labelwise.evaluation import evaluate
from labelwise.jsonl import write_corpus
from labelwise.labels import Label, LabelSet
from labelwise.registry import make_method
from labelwise.reliability import calibration_error
from labelwise.scores import Scores

MAPS = st.builds(Map, st.floats(0.1, 5), st.floats(0.1, 5), st.floats(-8, 8))
SCORES = st.lists(st.floats(0, 1, width=32), min_size=1).map(lambda values: np.array(values, dtype=np.float32))


class Told:
    """A model that knows the scores of its documents by their ids, dense or sparse."""

    name = "told"

    def __init__(self, values: np.ndarray, sparse: bool = False) -> None:
        self.values, self.sparse = values.astype(np.float32), sparse

    def predict(self, corpus: Corpus) -> Scores:
        values = self.values[[int(document.id) for document in corpus]]
        return Scores(csr_array(values) if self.sparse else values, corpus.labels)


def world(seed: int = 0, documents: int = 600, distort: bool = True) -> tuple[Told, Splits]:
    """Eight frequent, eight few and eight zero labels, and a model whose scores are odds of the truth gone wrong by group."""
    random = np.random.default_rng(seed)
    labels = LabelSet(Label(f"l{number}", f"label {number}") for number in range(24))
    true = expit(random.normal(-2, 2, (documents, 24)))
    gold = random.random(true.shape) < true
    logits = logit(true)
    if distort:
        logits[:, :8] = 0.5 * logits[:, :8] - 1
        logits[:, 8:16] = 2 * logits[:, 8:16] + 1
        logits[:, 16:] = 1.5 * logits[:, 16:] + 3
    own = [Document(str(n), "x", tuple(labels.ids[c] for c in np.flatnonzero(row))) for n, row in enumerate(gold)]
    seen = [Document(str(n), "x", labels.ids[:8] if n > 1 else labels.ids[:16]) for n in range(9)]
    half, info = documents // 2, CorpusInfo("made", k=3, few=2)
    return Told(expit(logits)), Splits(
        Corpus(seen, labels, info), Corpus(own[:half], labels, info), Corpus(own[half:], labels, info)
    )


MODEL, SPLITS = world()
FOUND = calibrate(MODEL, SPLITS)


# Maps.


@given(MAPS, SCORES)
def test_a_map_keeps_the_order_and_0_and_stays_between_0_and_1(own, scores):
    chances = own(np.sort(scores))
    assert (np.diff(chances) >= 0).all()
    assert ((chances == 0) == (np.sort(scores) == 0)).all()
    assert chances.max() <= 1


def test_scores_that_differ_get_probabilities_that_differ():
    scores = np.linspace(0.001, 0.999, 500, dtype=np.float32)
    assert (np.diff(Map(1.5, 0.7, -1.0)(scores)) > 0).all()


@pytest.mark.parametrize("truth", [Map(0.7, 2.0, -1.0), Map(2.0, 0.5, 1.0), Map(1.0, 1.0, 0.0)])
def test_a_fit_is_that_of_scikit_learns_logistic_regression(truth):
    random = np.random.default_rng(3)
    scores = random.beta(0.6, 1.5, 20_000).astype(np.float32)
    right = random.random(20_000) < truth(scores)
    features = np.stack([np.log(scores.astype(np.float64)), -np.log1p(-scores.astype(np.float64))], axis=1)
    oracle = LogisticRegression(C=1e9, tol=1e-8, max_iter=1000).fit(features, right)
    found = _fit(scores, right)
    assert found == pytest.approx((*oracle.coef_[0], oracle.intercept_[0]), abs=0.02)
    assert found == pytest.approx(truth, abs=0.2)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(2**-10, 1, width=32), st.booleans()), min_size=1, max_size=60))
def test_any_pairs_give_a_map_that_is_no_worse_than_none(pairs):
    scores, right = np.array([pair[0] for pair in pairs], np.float32), np.array([pair[1] for pair in pairs])
    found = _fit(scores, right)
    assert np.isfinite(found).all()
    assert min(found.low, found.high) > 0
    wanted = np.where(right, (right.sum() + 1) / (right.sum() + 2), 1 / ((~right).sum() + 2))

    def loss(own: Map) -> float:
        chances = np.clip(own(scores).astype(np.float64), 1e-12, 1 - 1e-12)
        return float(-np.mean(wanted * np.log(chances) + (1 - wanted) * np.log(1 - chances)))

    assert loss(found) <= loss(Map(1.0, 1.0, 0.0)) + 1e-4


@settings(max_examples=25)
@given(MAPS, st.integers(0, 100))
def test_the_error_on_the_documents_of_the_fit_does_not_grow(wrong, seed):
    random = np.random.default_rng(seed)
    chances = random.beta(0.5, 1.5, 3000)
    scores, right = wrong(chances.astype(np.float32)), random.random(3000) < chances
    after = calibration_error(_fit(scores, right)(scores), right)
    assert after <= calibration_error(scores, right) + 0.015
    assert after < 0.04


# The whole.


@pytest.mark.parametrize("split", ["dev", "test"])
def test_probabilities_come_true_in_every_group(split):
    report = evaluate(MODEL, SPLITS, split=split, calibration=FOUND)
    assert set(report.reliability) == {"all", "frequent", "few", "zero"}
    for group in report.reliability.values():
        assert group["probability"].error < min(0.05, group["score"].error / 2)
        assert group["probability"].brier < group["score"].brier


def test_sparse_and_dense_scores_get_the_same_probabilities():
    values = np.where(MODEL.values < 0.2, 0, MODEL.values)
    dense, sparse = Told(values), Told(values, sparse=True)
    found = calibrate(dense, SPLITS)
    assert found == calibrate(sparse, SPLITS)
    scores = dense.predict(SPLITS.test)
    chances, thin = found.probabilities(scores), found.probabilities(sparse.predict(SPLITS.test))
    assert thin.sparse
    np.testing.assert_array_equal(chances.dense(), thin.dense())
    np.testing.assert_array_equal(scores.dense(), values[300:])  # not changed in place


def test_measures_inside_a_group_are_the_same_and_those_of_all_labels_are_better():
    before, after = evaluate(MODEL, SPLITS, ties="pessimistic"), evaluate(MODEL, SPLITS, ties="pessimistic", calibration=FOUND)
    for group in ("frequent", "few", "zero"):
        assert before.groups[group] == after.groups[group]
    assert FOUND.by_probability
    assert before.groups["all"]["ndcg@3"] + 0.02 < after.groups["all"]["ndcg@3"]
    assert after.notes["ranked by"] == "probability"
    assert "Labels are ranked by probability." in after.text()


def test_the_qualities_that_decide_are_those_of_evaluate_on_dev():
    for kind, chosen in (("score", False), ("probability", True)):
        forced = replace(FOUND, by_probability=chosen)
        report = evaluate(MODEL, SPLITS, split="dev", ties="pessimistic", calibration=forced)
        assert report.groups["all"]["ndcg@3"] == pytest.approx(FOUND.quality[kind], abs=1e-6)


def test_where_probabilities_rank_worse_labels_are_ranked_by_score_and_decided_by_probability():
    kept = replace(FOUND, by_probability=False)
    plain, report = evaluate(MODEL, SPLITS), evaluate(MODEL, SPLITS, calibration=kept, measures=["rp", "ndcg", "micro-f1"])
    for group, measures in plain.groups.items():
        assert measures.items() <= report.groups[group].items()
    by_probability = evaluate(FOUND.probabilities(MODEL.predict(SPLITS.test)), SPLITS, measures=["micro-f1"])
    assert report.groups["all"]["micro-f1"] == by_probability.groups["all"]["micro-f1"]
    scores = MODEL.predict(SPLITS.test)
    for answer, plainly in zip(kept.top(scores, 4), scores.top(4), strict=True):
        assert [(label, score) for label, score, _ in answer] == plainly


def test_a_calibration_that_helps_nothing_does_not_touch_the_ranking():
    model, splits = world(seed=5, distort=False)
    found = calibrate(model, splits)
    assert found.by_probability == (found.quality["probability"] > found.quality["score"])
    assert abs(found.quality["probability"] - found.quality["score"]) < 0.02


@pytest.mark.parametrize("target", ["f1", "precision=0.8", "recall=0.7"])
def test_thresholds_of_dev_hold_on_dev_and_nearly_on_test(target):
    point = FOUND.threshold(target)
    measures = ["micro-p", "micro-r"]
    for split, room in (("dev", 1e-6), ("test", 0.05)):
        # Eight labels a group, and twelve candidates: nothing is left out of the curve.
        report = evaluate(MODEL, SPLITS, split=split, measures=measures, calibration=FOUND, threshold=point.threshold)
        assert [report.groups["all"][name] for name in measures] == pytest.approx(point[1:], abs=room)


def test_the_best_labels_come_with_what_ranks_them_and_their_probability():
    scores = MODEL.predict(SPLITS.test)
    chances = FOUND.probabilities(scores).dense()
    for row, answer in enumerate(FOUND.top(scores, 5, 0.3)):
        order = np.argsort(-chances[row], kind="stable")[:5]
        assert [(label.id, score) for label, score, _ in answer] == [
            (scores.labels.ids[column], chances[row, column]) for column in order if chances[row, column] > 0.3
        ]
        assert all(score == chance for _, score, chance in answer)


def test_labels_added_later_are_zero_labels():
    more = SPLITS.labels.extended([Label("new", "new")])
    chances = FOUND.probabilities(Scores(np.full((1, 25), 0.5), more)).dense()[0]
    assert chances[24] == chances[23] != chances[0]


def test_candidates_are_the_best_labels_of_each_group():
    scores, gold, groups = MODEL.predict(SPLITS.dev), SPLITS.dev.gold(), Groups.of(SPLITS)
    for part, pool in make_pools(scores, gold, every_label(groups), 3).items():
        among = every_label(groups)[part]
        np.testing.assert_array_equal(-np.sort(-pool.scores[0], axis=1), -np.sort(-scores.dense()[:, among], axis=1)[:, :3])
        np.testing.assert_array_equal(pool.gold, gold.toarray()[:, among].sum(axis=1))
    assert together(make_pools(scores, gold, every_label(groups), 3)).scores.shape == (1, 300, 9)


def seen_only(document: Document) -> Document:
    return replace(document, labels=tuple(id for id in document.labels if int(id[1:]) < 16))


def test_a_group_with_hardly_a_right_label_takes_the_shape_of_all_at_its_own_rate():
    kept = [document if row < 5 else seen_only(document) for row, document in enumerate(SPLITS.dev)]
    splits = SPLITS._replace(dev=Corpus(kept, SPLITS.labels, SPLITS.info))
    with pytest.warns(UserWarning, match=r"candidates among the zero labels [1-9]\d? are right, too few for a map of their own"):
        found = calibrate(MODEL, splits)
    pools = make_pools(MODEL.predict(splits.dev), splits.dev.gold(), every_label(Groups.of(splits)), 12)
    scores, right = pools["zero"].pairs()
    assert found.maps["zero"][:2] == pytest.approx(_fit(*together(pools).pairs())[:2])
    assert found.maps["zero"](scores).mean() == pytest.approx(right.mean(), rel=0.3)


def test_a_group_without_a_right_label_gets_small_probabilities_and_no_threshold():
    kept = list(map(seen_only, SPLITS.dev))
    with pytest.warns(UserWarning, match="2,400 candidates among the zero labels 0 are right"):
        found = calibrate(MODEL, SPLITS._replace(dev=Corpus(kept, SPLITS.labels, SPLITS.info)))
    assert found.curves["zero"] == []
    assert found.maps["zero"](np.float32([0.5, 0.99])).max() < 0.01


def test_a_group_that_the_model_does_not_score_is_no_reason_to_warn():
    values = MODEL.values.copy()
    values[:, 16:] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = calibrate(Told(values, sparse=True), SPLITS)
    assert found.curves["zero"] == []


def test_development_documents_without_labels_are_refused():
    bare = Corpus([replace(document, labels=()) for document in SPLITS.dev], SPLITS.labels, SPLITS.info)
    with pytest.raises(BadCorpus, match="no document of the dev split has a label that the model scores"):
        calibrate(MODEL, SPLITS._replace(dev=bare))
    with pytest.raises(BadCorpus, match="has no dev documents"):
        calibrate(MODEL, SPLITS._replace(dev=Corpus([], SPLITS.labels, SPLITS.info)))


def test_gold_labels_that_have_no_score_are_nothing_to_calibrate_on():
    missed = np.where(SPLITS.dev.gold().toarray(), 0, MODEL.values[:300])
    with pytest.raises(BadCorpus, match="has a label that the model scores"):
        calibrate(Told(missed), SPLITS)


# In a model folder.


@pytest.fixture
def folder(tmp_path):
    make_method("lexical").fit(zoo().train).save(tmp_path / "model")
    FOUND.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_calibration_is_read_back_as_it_was(folder):
    assert Calibration.load(folder) == FOUND


def test_a_model_without_a_calibration_has_none(tmp_path):
    make_method("lexical").fit(zoo().train).save(tmp_path / "model")
    assert Calibration.load(tmp_path / "model") is None


def test_a_calibration_is_not_replaced_unless_that_is_wanted(folder):
    with pytest.raises(OutputExists, match="add --force"):
        FOUND.save(folder)
    replace(FOUND, by_probability=False).save(folder, force=True)
    assert not Calibration.load(folder).by_probability


def test_a_calibration_of_another_model_is_refused(folder, tmp_path):
    make_method("prior").fit(zoo().train).save(tmp_path / "other")
    (tmp_path / "other" / FILE).write_bytes((folder / FILE).read_bytes())
    with pytest.raises(BadModel, match="made for another model; run `labelwise calibrate` with --force"):
        Calibration.load(tmp_path / "other")


@pytest.mark.parametrize(
    "damage",
    [
        lambda told: told.pop("maps"),
        lambda told: told["maps"].pop("few"),
        lambda told: told["maps"].update(few=[1, 2]),
        lambda told: told["maps"].update(few=[-1, 2, 0]),
        lambda told: told["maps"].update(few=[1, 2, float("nan")]),
        lambda told: told["maps"].update(few="abc"),
        lambda told: told["curves"].update(all=[[0.5, "high", 1]]),
        lambda told: told.update(members=[]),
        lambda told: told.update(ndcg={}),
        lambda told: told.update(format="one"),
        lambda told: told.update(format=2),
    ],
)
def test_a_damaged_file_is_told_with_its_path(folder, damage):
    told = json.loads((folder / FILE).read_text())
    damage(told)
    (folder / FILE).write_text(json.dumps(told))
    with pytest.raises(BadModel, match=r"calibration\.json: (damaged|written in format 2)"):
        Calibration.load(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "7"])
def test_a_file_that_is_something_else_is_refused(folder, content):
    (folder / FILE).write_text(content)
    with pytest.raises(BadModel, match=r"calibration\.json"):
        Calibration.load(folder)


def test_a_stop_in_mid_write_leaves_none(folder, monkeypatch):
    (folder / FILE).unlink()
    before = sorted(path.name for path in folder.iterdir())

    def stop(told, file, **_):
        file.write('{"format": 1')
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dump", stop)
    with pytest.raises(KeyboardInterrupt):
        FOUND.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == before


# Commands.


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A corpus and a calibrated model."""
    home = tmp_path_factory.mktemp("home")
    write_corpus(make_world(documents=600, labels=60, seed=3), home / "world")
    ok("train", "lexical", "--on", home / "world", "--out", home / "model")
    (home / "told").write_text(ok("calibrate", home / "model", "--on", home / "world"))
    return home


def rows(*arguments: object) -> list[dict]:
    return [json.loads(line) for line in ok("predict", *arguments).splitlines()]


def test_calibrate_tells_thresholds_and_how_labels_are_ranked(home):
    told = (home / "told").read_text()
    for words in ("threshold  precision  recall", "frequent", "nDCG × 100 of all labels", "ranked by", "calibration.json"):
        assert words in told
    refused("already exists; add --force", "calibrate", home / "model", "--on", home / "world")


def test_training_documents_are_nothing_to_calibrate_on(home):
    refused("the model knows these documents by heart", "calibrate", home / "model", "--on", home / "world", "--split", "train")


def test_predictions_have_probabilities_unless_raw_ones_are_wanted(home):
    plain, given = (
        rows(home / "model", home / "world" / "test.jsonl", "--raw"),
        rows(home / "model", home / "world" / "test.jsonl"),
    )
    assert {key for row in given for label in row["labels"] for key in label} == {"id", "name", "score", "probability"}
    assert {key for row in plain for label in row["labels"] for key in label} == {"id", "name", "score"}
    assert "is calibrated; labels are ranked by" in run("predict", home / "model", home / "world" / "test.jsonl").stderr
    high = rows(home / "model", home / "world" / "test.jsonl", "--threshold", "0.5")
    assert high == [{**row, "labels": [label for label in row["labels"] if label["probability"] > 0.5]} for row in given]


def test_a_target_gives_every_label_above_its_threshold(home):
    least = Calibration.load(home / "model").threshold("recall=0.6").threshold
    everything = rows(home / "model", home / "world" / "test.jsonl", "--top", 60)
    given = rows(home / "model", home / "world" / "test.jsonl", "--threshold", "recall=0.6")
    assert max(len(row["labels"]) for row in given) > 5
    assert [[label["id"] for label in row["labels"]] for row in given] == [
        [label["id"] for label in row["labels"] if label["probability"] > least] for row in everything
    ]


def test_targets_that_cannot_be_are_refused(home):
    text = home / "world" / "test.jsonl"
    refused(
        "not reached on the development documents; the highest recall is",
        "predict",
        home / "model",
        text,
        "--threshold",
        "recall=1",
    )
    refused("write f1, precision=0.9", "predict", home / "model", text, "--threshold", "1.5")
    refused("needs a calibrated model and no --raw", "predict", home / "model", text, "--threshold", "f1", "--raw")


def test_evaluate_shows_how_far_probabilities_can_be_trusted(home):
    evaluate = ("evaluate", home / "model", "--on", home / "world")
    ok(*evaluate, "--out", home / "report", "--threshold", "f1", "-m", "micro-f1")
    for name in ("report.md", "report.tex", "report.html"):
        assert "Brier" in (home / "report" / name).read_text()
    trusted = json.loads(ok(*evaluate, "--json"))["reliability"]["all"]
    assert trusted["probability"]["error"] < trusted["score"]["error"]
    assert "reliability" not in json.loads(ok(*evaluate, "--json", "--raw"))
    assert set(json.loads(ok(*evaluate, "--json", "--raw", "--calibration"))["reliability"]["all"]) == {"score"}


def test_predictions_of_a_calibrated_model_are_evaluated_as_the_model_is(home):
    ok("predict", home / "model", home / "world" / "test.jsonl", "--top", 60, "--out", home / "predictions.jsonl")
    of_file = json.loads(ok("evaluate", "--predictions", home / "predictions.jsonl", "--on", home / "world", "--json"))
    of_model = json.loads(ok("evaluate", home / "model", "--on", home / "world", "--json"))
    for group, measures in of_model["groups"].items():
        assert of_file["groups"][group] == pytest.approx(measures, abs=0.002)


def test_training_anew_takes_the_calibration_away(home, tmp_path):
    ok("train", "prior", "--on", home / "world", "--out", tmp_path / "model")
    (tmp_path / "model" / FILE).write_bytes((home / "model" / FILE).read_bytes())
    refused("made for another model", "evaluate", tmp_path / "model", "--on", home / "world")
    ok("train", "prior", "--on", home / "world", "--out", tmp_path / "model", "--force")
    assert not (tmp_path / "model" / FILE).exists()
