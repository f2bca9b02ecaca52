"""Every packaged recipe is read, checked, and, where its corpus can be made here, run."""

import numpy as np
import pytest
from tiny import bert

from labelwise.datasets.worlds import make_world
from labelwise.errors import LabelwiseError
from labelwise.evaluation import evaluate
from labelwise.recipe import Recipe, find_recipe, make_recipe_method, packaged, read_recipe
from labelwise.registry import methods
from labelwise.settings import override

RECIPES = dict(packaged())
TRANSFORMERS = [name for name in RECIPES if "bert" in name]


@pytest.mark.parametrize("name", RECIPES)
def test_packaged_recipes_are_sound(name):
    recipe = read_recipe(RECIPES[name])
    assert recipe.method in methods()
    assert name.split("/")[1].startswith(recipe.method)
    assert recipe.source
    assert all(0 <= value <= 1 for group in recipe.expected.values() for value in group.values())


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("world/")])
def test_recipes_on_the_default_world_give_what_they_expect(name):
    recipe = find_recipe(name)
    splits = make_world()
    assert splits.info.name == recipe.corpus
    report = evaluate(make_recipe_method(recipe, {}).fit(splits.train, splits.dev), splits)
    for group, expected in recipe.expected.items():
        for measure, value in expected.items():
            assert report.groups[group][measure] == pytest.approx(value, abs=recipe.tolerance), (group, measure)


def test_every_transformer_that_the_paper_prints_has_a_recipe_with_its_training_settings():
    rows, training = ["bert-base", "bert-base-lwan", "roberta-base"], {}
    for name in TRANSFORMERS:
        given = find_recipe(name).settings["training"]
        training.setdefault(name.split("/")[0], set()).add(tuple(given.values()))
    assert training == {"amazon13k": {(8, 2e-5, 5, 1)}, "eurlex57k": {(8, 2e-5, 20, 2)}, "mimic3": {(8, 5e-5, 20, 2)}}
    medical = [*rows, "clinical-bert", "hier-sci-bert", "hier-sci-bert-code2020", "sci-bert"]
    printed = {"amazon13k": rows, "eurlex57k": rows, "mimic3": medical}
    assert sorted(TRANSFORMERS) == sorted(f"{corpus}/{row}" for corpus, found in printed.items() for row in found)


@pytest.mark.parametrize("name", [name for name in TRANSFORMERS if name.startswith("mimic3/")])
def test_recipes_of_transformers_train_with_a_checkpoint_of_ones_own(name, splits, tmp_path):
    recipe = find_recipe(name)
    own = [f"encoder.checkpoint={bert(tmp_path)}", "encoder.segment=8", "training.epochs=1", "device=cpu"]
    model = make_recipe_method(recipe, override(recipe.settings, own)).fit(splits.train, splits.dev)
    longest = max(map(len, model._fitted.reader.numbers(splits.train)))
    assert longest > 8 if name == "mimic3/hier-sci-bert" else longest == 8  # segments, or one only
    assert np.isfinite(model.predict(splits.test).dense()).all()


def test_a_methods_name_is_its_default_recipe():
    assert find_recipe("lexical") == Recipe("lexical")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("method =", r"r\.toml: not TOML"),
        ("seed = 1", r"r\.toml: the key 'method' is missing"),
        ('method = "lexical"\nsed = 1', r"r\.toml: sed: there is no such setting; did you mean 'seed'"),
        (
            'method = "lexical"\n[settings]\ncoverge = 1',
            r"r\.toml: settings\.coverge: there is no such setting; did you mean 'coverage'",
        ),
        ('method = "lexical"\n[settings]\ncoverage = 7', r"r\.toml: settings\.coverage: 7 will not do"),
        ('method = "parable"', "there is no method 'parable'"),
    ],
)
def test_mistakes_in_a_recipe_are_named(tmp_path, content, message):
    (tmp_path / "r.toml").write_text(content)
    with pytest.raises(LabelwiseError, match=message):
        read_recipe(tmp_path / "r.toml")


def test_unknown_recipes_are_refused_with_the_closest_name(tmp_path):
    with pytest.raises(LabelwiseError, match="there is no method or recipe 'world/lexicl'; did you mean 'world/lexical'"):
        find_recipe("world/lexicl")
    with pytest.raises(LabelwiseError, match="no such recipe file"):
        find_recipe(str(tmp_path / "none.toml"))
