"""Ensembles as a user meets them: members, groups, folders; the contract suite checks the rest."""

import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from labelwise.corpus import Corpus, Groups
from labelwise.datasets.worlds import make_world
from labelwise.errors import BadModel, BadSettings, LabelwiseError, UnknownName
from labelwise.evaluation import evaluate
from labelwise.jsonl import write_corpus
from labelwise.labels import Label, LabelSet
from labelwise.methods.base import ZeroShot, load
from labelwise.methods.members import Member, called
from labelwise.methods.prior import Prior
from labelwise.methods.tree import Parabel
from labelwise.progress import silent
from labelwise.registry import make_method
from labelwise.scores import Scores

TREE = {"trees": 1, "features": {"ngrams": 1}}


@pytest.fixture(scope="module")
def world():
    return make_world(documents=1200, labels=150, new=0.1)


@pytest.fixture(scope="module")
def models(world, tmp_path_factory) -> dict[str, str]:
    """Folders of fitted models."""
    home = tmp_path_factory.mktemp("models")
    for name, own in (("parabel", TREE), ("lexical", {}), ("prior", {})):
        make_method(name, own).fit(world.train).save(home / f"a-{name}")
    return {name: str(home / f"a-{name}") for name in ("parabel", "lexical", "prior")}


def ensemble(*members: str, **given):
    return make_method("ensemble", {"members": list(members), **given})


def values(model, corpus) -> np.ndarray:
    return model.predict(corpus).dense()


def label_groups(world) -> np.ndarray:
    groups = Groups.of(world)
    return np.select([groups.frequent, groups.few], [0, 1], 2)


def test_equal_weights_give_the_plain_mean_of_the_members_that_can_score_a_label(models, world):
    model = ensemble(*models.values(), weights="equal").fit(world.train, world.dev)
    each = [values(load(folder), world.test) for folder in models.values()]
    expected = np.where(label_groups(world) == 2, each[1], np.mean(each, axis=0))
    assert values(model, world.test) == pytest.approx(expected, abs=1e-6)


class Reads(ZeroShot):
    """Knows what is right, more or less; of labels that it is not told of it knows nothing."""

    def __init__(self, seed: int, labels: LabelSet | None = None) -> None:
        self.seed, self.ids = seed, labels and set(labels.ids)

    def predict(self, corpus: Corpus) -> Scores:
        random, right = np.random.default_rng(self.seed), corpus.gold().toarray()
        known = np.array([self.ids is None or id in self.ids for id in corpus.labels.ids])
        return Scores(np.clip(0.3 + 0.4 * (right & known) + random.normal(0, 0.1, right.shape), 0.01, 0.99), corpus.labels)


def test_who_knows_labels_by_heart_is_not_trusted_on_new_ones(world):
    members = [Member(Reads(1, world.labels)), Member(Reads(2))]
    told = label_groups(world), world.train, world.dev, silent
    mix, _ = ensemble("parabel", "lexical", weights="regression")._weigh(members, *told)
    assert mix.weights[2] == pytest.approx([0, 1], abs=0.1)  # though the first has the zero labels of dev by heart as well
    assert mix.weights[1, 0] == pytest.approx(mix.weights[1, 1], abs=0.1)  # of labels with documents both know as much


def test_given_weights_are_taken_as_they_are(models, world):
    given = {"frequent": [0.25, 0.75], "few": [1, 0], "zero": [0.5, 0.5]}
    model = ensemble(models["parabel"], models["lexical"], weights="equal", given=given).fit(world.train)
    tree, names = (values(load(models[name]), world.test) for name in ("parabel", "lexical"))
    expected = np.choose(label_groups(world), [0.25 * tree + 0.75 * names, tree, names])
    assert values(model, world.test) == pytest.approx(expected, abs=1e-6)


def test_the_better_member_has_the_weight(models, world):
    model = ensemble(models["prior"], models["parabel"]).fit(world.train, world.dev)
    assert model.weights["frequent"][1] >= 0.7
    each = [evaluate(load(models[name]), world, split="dev", ties="pessimistic") for name in ("prior", "parabel")]
    whole = evaluate(model, world, split="dev", ties="pessimistic")
    for group in ("frequent", "few"):
        assert whole.groups[group]["ndcg@5"] >= max(report.groups[group]["ndcg@5"] for report in each)


def test_a_regression_is_no_worse_on_dev_than_means_and_is_saved(models, world, tmp_path):
    splits = world._replace(test=world.dev)
    scores = {}
    for weights in ("search", "regression"):
        model = ensemble(models["parabel"], models["lexical"], weights=weights).fit(world.train, world.dev)
        scores[weights] = evaluate(model, splits, ties="pessimistic").groups["all"][f"ndcg@{world.train.info.k}"]
    assert scores["regression"] > scores["search"] - 0.01
    model.save(tmp_path / "both")
    np.testing.assert_array_equal(values(load(tmp_path / "both"), world.test), values(model, world.test))
    assert all(sum(own) == pytest.approx(1) for own in model.weights.values())
    given = ensemble(models["parabel"], models["lexical"], weights="regression", given={"few": [0.3, 0.7]})
    given.fit(world.train, world.dev)
    assert given.weights["few"] == pytest.approx([0.3, 0.7])
    assert given._ready().mix.lines[1] is None


def test_zero_labels_are_ranked_by_the_members_that_can_score_them(models, world):
    model = ensemble(models["parabel"], models["prior"], models["lexical"]).fit(world.train, world.dev)
    zero, names = Groups.of(world).zero, load(models["lexical"]).predict(world.test)
    assert model.weights["zero"] == [0, 0, 1]
    dense = Scores(names.dense(), names.labels)
    assert np.array_equal(model.predict(world.test).ranking(5, zero), dense.ranking(5, zero))


def test_lent_scores_make_all_labels_better_on_dev_and_none_worse(models, world):
    members = models["parabel"], models["lexical"]
    lent = ensemble(*members).fit(world.train, world.dev)
    mute = ensemble(*members, given={"zero": [1, 0]}).fit(world.train, world.dev)
    assert values(mute, world.dev)[:, Groups.of(world).zero].max() == 0
    ours, theirs = (evaluate(model, world, split="dev", ties="pessimistic").groups for model in (lent, mute))
    assert ours["all"]["ndcg@5"] > theirs["all"]["ndcg@5"]
    assert ours["zero"]["ndcg@5"] > 0.3
    assert [ours[group] for group in ("frequent", "few")] == [theirs[group] for group in ("frequent", "few")]


def test_methods_are_trained_with_seeds_that_follow_each_other(world):
    model = ensemble("parabel", "parabel", weights="equal", seed=7).fit(world.train)
    each = [values(make_method("parabel", {"seed": seed}).fit(world.train), world.test) for seed in (7, 8)]
    assert not np.array_equal(*each)
    assert values(model, world.test) == pytest.approx(np.mean(each, axis=0), abs=1e-6)


def test_a_folder_with_the_name_of_a_method_is_meant_only_when_written_as_a_path(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_method("lexical", {"coverage": 0.9}).fit(world.train).save(tmp_path / "lexical")
    by_name, by_path = (ensemble(name, weights="equal").fit(world.train) for name in ("lexical", "./lexical"))
    assert np.array_equal(values(by_path, world.test), values(load(tmp_path / "lexical"), world.test))
    assert not np.array_equal(values(by_name, world.test), values(by_path, world.test))


def test_members_without_weight_are_not_asked(models, world, monkeypatch):
    given = {group: [0, 1] for group in ("frequent", "few", "zero")}
    model = ensemble(models["prior"], models["lexical"], weights="equal", given=given).fit(world.train)
    monkeypatch.delattr("labelwise.methods.prior.Prior.predict")
    assert np.array_equal(values(model, world.test), values(load(models["lexical"]), world.test))


def test_recipe_files_are_members_too(world, tmp_path):
    (tmp_path / "mine.toml").write_text('method = "lexical"\n[settings]\ncoverage = 0.9\n')
    model = ensemble(str(tmp_path / "mine.toml"), weights="equal").fit(world.train)
    assert np.array_equal(
        values(model, world.test), values(make_method("lexical", {"coverage": 0.9}).fit(world.train), world.test)
    )


def test_an_ensemble_of_ensembles_knows_who_can_score_new_labels(models, world, tmp_path):
    for name in ("parabel", "lexical"):
        ensemble(models[name], weights="equal").fit(world.train).save(tmp_path / name)
    both = ensemble(str(tmp_path / "parabel"), str(tmp_path / "lexical"), weights="equal").fit(world.train)
    assert both.weights["zero"] == [0, 1]


def without(corpus: Corpus, labels: np.ndarray) -> Corpus:
    """The documents without these gold labels."""
    gold = csr_array(corpus.gold().toarray() & ~labels)
    return Corpus(list(corpus), corpus.labels, corpus.info, gold=gold)


def test_zero_labels_come_last_where_dev_has_none(models, world):
    groups = Groups.of(world)
    members = models["parabel"], models["lexical"]
    with pytest.warns(UserWarning, match="no development document has a zero label"):
        model = ensemble(*members).fit(world.train, without(world.dev, groups.zero))
    assert model.weights["zero"] == [0, 1]
    scores = values(model, world.test)
    seen = scores[:, groups.counts > 0]
    assert 0 < scores[:, groups.zero].max() < seen[seen > 0].min()


def test_zero_labels_that_dev_has_none_of_are_read_as_few_labels_scored_as_new_and_come_up_seldom(models, world):
    members = [Member(Reads(1)), Member(Reads(2))]
    dev, new = without(world.dev, label_groups(world) == 2), label_groups(world) == 2
    made = ensemble("parabel", "lexical", weights="regression")
    mix, _ = made._weigh(members, label_groups(world), world.train, dev, silent)
    assert mix.weights[2] == pytest.approx([0.5, 0.5], abs=0.2)
    told = mix.apply([member.model.predict(dev) for member in members], label_groups(world)).dense()
    assert 0.1 < told[:, new].sum() < 3.5  # none of them is right, so hardly any is to be expected
    right = mix.apply([member.model.predict(world.test) for member in members], label_groups(world)).dense()
    assert right[:, new][world.test.gold().toarray()[:, new]].mean() > 20 * told[:, new].mean()  # where they are right, they show


def test_without_development_documents_members_weigh_the_same(models, world):
    for dev in (None, world.dev[:0], without(world.dev, np.ones(len(world.labels), dtype=bool))):
        with pytest.warns(UserWarning, match="no labels of development documents to find weights on"):
            model = ensemble(models["parabel"], models["lexical"]).fit(world.train, dev)
        assert model.weights == {"frequent": [0.5, 0.5], "few": [0.5, 0.5], "zero": [0, 1]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"members": []}, "members: there are none"),
        ({"members": ["parabel", "lexcal"]}, "member 'lexcal' is not a model folder, and there is no method .* mean 'lexical'"),
        ({"members": ["no/such.toml"]}, "member 'no/such.toml' is not a model folder, and no/such.toml: no such recipe file"),
        ({"given": {"few": [0.2, 0.3, 0.5]}}, r"given\.few: 3 weights for 2 members"),
        ({"given": {"zero": [0.5, 0.4]}}, r"given\.zero: weights must be 0 or more and sum to 1, not to 0\.9"),
        ({"given": {"frequent": [1.5, -0.5]}}, r"given\.frequent: weights must be 0 or more"),
        ({"given": {"few": [float("nan"), 1]}}, r"given\.few: weights must be 0 or more and sum to 1, not to nan"),
        ({"given": {"fw": [1, 0]}}, r"given\.fw: there is no such setting; did you mean 'few'"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(world, given, message):
    with pytest.raises((BadSettings, UnknownName), match=message):
        make_method("ensemble", given).fit(world.train[:0])


def test_labels_that_a_member_does_not_know_are_named_and_the_others_joined_by_id(models, world):
    more = LabelSet([Label("new-1", "one"), *reversed(world.labels), Label("new-2", "two")])
    with pytest.warns(UserWarning, match=r"a-parabel does not know 2 of 152 labels and scores them 0: new-1, new-2"):
        model = ensemble(models["parabel"], models["lexical"], weights="equal").fit(world.train.with_labels(more))
    expected = values(ensemble(models["parabel"], models["lexical"], weights="equal").fit(world.train), world.test)
    assert values(model, world.test) == pytest.approx(expected, abs=1e-6)


@pytest.fixture
def home(models, world, tmp_path) -> Path:
    """A folder with two models, and an ensemble of them beside."""
    for name in ("parabel", "lexical"):
        shutil.copytree(models[name], tmp_path / "home" / "parts" / name)
    parts = [str(tmp_path / "home" / "parts" / name) for name in ("parabel", "lexical")]
    ensemble(*parts).fit(world.train, world.dev).save(tmp_path / "home" / "both")
    ensemble(*parts, self_contained=True).fit(world.train, world.dev).save(tmp_path / "home" / "whole")
    return tmp_path / "home"


def test_an_ensemble_can_be_moved_along_with_its_members(home, world, tmp_path):
    before = values(load(home / "both"), world.test)
    home.rename(tmp_path / "elsewhere")
    assert np.array_equal(values(load(tmp_path / "elsewhere" / "both"), world.test), before)
    assert not list((tmp_path / "elsewhere" / "both").glob("members/*"))


def test_an_ensemble_finds_its_members_from_another_place(home, world, tmp_path):
    model = load(home / "both")
    model.save(tmp_path / "away" / "both")
    (tmp_path / "away" / "both").rename(tmp_path / "further")
    assert np.array_equal(values(load(tmp_path / "further"), world.test), values(model, world.test))


def test_a_self_contained_ensemble_needs_nobody(home, world):
    before = values(load(home / "both"), world.test)
    shutil.rmtree(home / "parts")
    model = load(home / "whole")
    assert np.array_equal(values(model, world.test), before)
    model.save(home / "again")
    assert (home / "again" / "checksums.json").read_text() == (home / "whole" / "checksums.json").read_text()


def test_a_missing_member_is_named(home):
    shutil.rmtree(home / "parts" / "lexical")
    with pytest.raises(BadModel, match="both: its member .*lexical is missing; put it back"):
        load(home / "both")


def test_a_member_that_was_trained_again_is_named(home, world):
    make_method("lexical", {"coverage": 0.8}).fit(world.train).save(home / "parts" / "lexical", force=True)
    with pytest.raises(BadModel, match="both: its member .*lexical is another model than it was"):
        load(home / "both")


@pytest.mark.parametrize("part", ["parts/parabel", "whole/members/0"])
def test_a_flipped_byte_in_a_member_is_noticed(home, part):
    victim = home / part / "tree-0.npz"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(BadModel, match=r"tree-0\.npz: changed since it was written"):
        load(home / ("whole" if "whole" in part else "both"))


def test_the_command_line_makes_one_of_folders(models, world, tmp_path):
    write_corpus(world, tmp_path / "world")
    shutil.copytree(models["lexical"], tmp_path / "names")
    command = ["train", "ensemble", "--on", "world", "--out", "both", "--set", 'members=["names", "prior"]', "--seed", "3"]
    subprocess.run([sys.executable, "-m", "labelwise", *command], check=True, capture_output=True, cwd=tmp_path)
    assert load(tmp_path / "both").settings.members == ("names", "prior")
    assert sorted(path.name for path in (tmp_path / "both" / "members").iterdir()) == ["1"]


def test_finished_members_are_kept_and_those_of_other_data_are_not_taken(world, tmp_path):
    def fit(train: Corpus):
        model = ensemble("lexical", "prior", weights="equal")
        model.work = tmp_path
        return values(model.fit(train), world.test)

    whole = fit(world.train)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert [name.rsplit("-", 1)[0] for name in kept] == ["0-lexical", "1-prior"]
    shutil.rmtree(tmp_path / kept[1])
    before = (tmp_path / kept[0]).stat().st_mtime_ns
    assert np.array_equal(fit(world.train), whole)
    assert (tmp_path / kept[0]).stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    fit(world.train[:100])
    assert len(list(tmp_path.iterdir())) == 4


def test_the_member_in_training_goes_on_where_it_can(world, tmp_path):
    model, tasks = ensemble("parabel", weights="equal"), []

    def stop(items, task, total=None):
        tasks.append(task)
        if "tree 3 of 3" in task:
            raise KeyboardInterrupt
        return iter(items)

    model.work = tmp_path
    with pytest.raises(KeyboardInterrupt):
        model.fit(world.train, progress=stop)
    assert len(list(tmp_path.glob("0-parabel-*.training/tree-*.npz"))) == 2
    assert all(task.startswith("parabel, member 1 of 1: ") for task in tasks)
    assert np.array_equal(values(model.fit(world.train), world.test), values(make_method("parabel").fit(world.train), world.test))


def test_explanations_are_added_up_by_weight(models, world):
    given = {"frequent": [0.2, 0.3, 0.5], "few": [0.2, 0.3, 0.5]}
    model = ensemble(models["parabel"], models["lexical"], models["prior"], weights="equal", given=given).fit(world.train)
    label = world.labels[int(np.argmax(Groups.of(world).counts))]
    document = next(document for document in world.test if label.id in document.labels)
    expected: dict[tuple[int, int], float] = {}
    for name, weight in (("parabel", 0.2), ("lexical", 0.3)):
        spans = load(models[name]).explain(document, label).spans
        whole = sum(abs(span.weight) for span in spans)  # one member speaks in margins, the other in how rare a word is
        for span in spans:
            expected[span.start, span.end] = expected.get((span.start, span.end), 0) + weight * span.weight / whole
    found = model.explain(document, label)
    assert {(span.start, span.end): span.weight for span in found.spans} == pytest.approx(expected)
    assert found.score == pytest.approx(model.predict(Corpus([document], world.labels)).dense()[0, world.labels.column(label.id)])
    added = replace(label, id="added", parents=("nobody",))
    alone = load(models["lexical"]).explain(document, added).spans
    whole = sum(span.weight for span in alone)
    assert [span.weight for span in model.explain(document, added).spans] == pytest.approx([s.weight / whole for s in alone])
    assert found.sources == ()  # a mean is no sum of log-odds


@pytest.mark.parametrize("rerank", [False, True])
def test_the_sources_of_a_regression_add_up_to_the_log_odds_of_its_score(models, world, rerank):
    model = ensemble(models["parabel"], models["lexical"], weights="regression", rerank=rerank).fit(world.train, world.dev)
    scores = values(model, world.test)
    for number in range(3):
        row, column = np.unravel_index(np.argmax(scores * (scores < 0.999) * (label_groups(world) == number)), scores.shape)
        found = model.explain(world.test[int(row)], world.labels[int(column)])
        assert found.score == pytest.approx(scores[row, column])
        total = sum(part for _, part in found.sources)
        assert total == pytest.approx(np.log(found.score / (1 - found.score)), abs=0.02)
        assert {"lexical", "what all labels of the group share"} <= {name for name, _ in found.sources}


def test_members_of_one_method_are_called_by_what_tells_them_apart():
    made = [("linear", {"seed": 2}), ("lexical", {}), ("linear", {"seed": 3}), ("prior", {}), ("prior", {})]
    names = called([Member(make_method(*one)) for one in made])
    assert names == ["linear (seed=2)", "lexical", "linear (seed=3)", "prior, member 4", "prior, member 5"]
    names = called([Member(make_method("linear", {"seed": seed})) for seed in (2, 2, 3)])
    assert names == ["linear (seed=2), member 1", "linear (seed=2), member 2", "linear (seed=3)"]


def test_nobody_to_explain_is_an_error(models, world):
    model = ensemble(models["prior"], weights="equal").fit(world.train)
    with pytest.raises(LabelwiseError, match="no member that scores label .* can explain it"):
        model.explain(world.test[0], world.labels[0])


def test_members_are_trained_beside_one_that_works_elsewhere(world, monkeypatch):
    before = ensemble("parabel", "prior").fit(world.train, world.dev)
    where: dict[str, bool] = {}
    for own in (Prior, Parabel):
        monkeypatch.setattr(own, "fit", _told(own.fit, where))
    monkeypatch.setattr(Prior, "elsewhere", lambda self: True, raising=False)
    beside = ensemble("parabel", "prior").fit(world.train, world.dev)
    assert where == {"prior": True, "parabel": False}
    assert beside.weights == before.weights
    np.testing.assert_array_equal(values(beside, world.test), values(before, world.test))


def _told(fit, where: dict[str, bool]):
    def told(self, *given, **named):
        where[self.name] = threading.current_thread() is threading.main_thread()
        return fit(self, *given, **named)

    return told


def fails(self, *given, **named):
    raise LabelwiseError("no room")


def test_what_goes_wrong_beside_is_not_lost(world, monkeypatch):
    monkeypatch.setattr(Prior, "elsewhere", lambda self: True, raising=False)
    monkeypatch.setattr(Parabel, "fit", fails)
    with pytest.raises(LabelwiseError, match="no room"):
        ensemble("parabel", "prior").fit(world.train, world.dev)


def test_nothing_goes_on_beside_one_that_failed(world, monkeypatch, tmp_path):
    before = ensemble("parabel", "prior").fit(world.train, world.dev)
    monkeypatch.setattr(Prior, "elsewhere", lambda self: True, raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(Prior, "fit", fails)
        threads = threading.active_count()
        model = ensemble("parabel", "prior")
        model.work = tmp_path
        with pytest.raises(LabelwiseError, match="no room"):
            model.fit(world.train, world.dev)
        assert threading.active_count() == threads
    model.fit(world.train, world.dev)  # goes on in the same folder
    np.testing.assert_array_equal(values(model, world.test), values(before, world.test))


def test_two_that_use_torch_are_never_trained_at_once(world, monkeypatch):
    where: dict[str, bool] = {}
    for own in (Prior, Parabel):
        monkeypatch.setattr(own, "fit", _told(own.fit, where))
        monkeypatch.setattr(own, "elsewhere", lambda self: self.name == "prior", raising=False)
    ensemble("parabel", "prior").fit(world.train, world.dev)
    assert where == {"prior": True, "parabel": True}
