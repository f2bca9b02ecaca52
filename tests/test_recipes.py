"""Every packaged recipe is read, checked, and, where its corpus can be made here, run."""

import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from tiny import bert

from labelwise.cli import lists
from labelwise.datasets.worlds import make_world
from labelwise.errors import LabelwiseError
from labelwise.evaluation import evaluate
from labelwise.recipe import Recipe, adapted, find_recipe, make_recipe_method, packaged, read_recipe
from labelwise.registry import methods
from labelwise.settings import override

RECIPES = dict(packaged())
TRANSFORMERS = [name for name in RECIPES if "bert" in name]

EXPECT = 'method = "lexical"\n[expected.{}]\n"{}" = {}'

# From the tables of the paper, not from the recipes: how many rows print scores, how many scores these are, and their sum in percent.
PRINTED = {"eurlex57k": (17, 102, 6832.2), "mimic3": (20, 105, 4680.5), "amazon13k": (17, 102, 6702.7)}
# Layers, units, dropout, word dropout, batch (Table 4).
SELECTED = {
    "eurlex57k/bigru-lwan": (1, 300, 0.4, 0, 16),
    "eurlex57k/c-bigru-lwan": (1, 100, 0.1, 0.02, 16),
    "eurlex57k/gnc-bigru-lwan": (1, 100, 0.1, 0.02, 16),
    "mimic3/bigru-lwan": (2, 300, 0.3, 0, 8),
    "mimic3/c-bigru-lwan": (2, 100, 0.1, 0, 8),
    "mimic3/dc-bigru-lwan": (1, 100, 0.1, 0, 8),
    "amazon13k/bigru-lwan": (2, 300, 0.1, 0, 32),
    "amazon13k/dnc-bigru-lwan": (2, 100, 0.1, 0, 32),
    "amazon13k/gc-bigru-lwan": (1, 100, 0.1, 0, 32),
}
FIGURES = {
    ("eurlex57k/parabel", "few", "ndcg@5"): 0.573,
    ("eurlex57k/bert-base-lwan", "all", "rp@5"): 0.803,
    ("eurlex57k/dn-bigru-lwan", "zero", "ndcg@5"): 0.238,
    ("eurlex57k/gc-cnn-lwan", "zero", "rp@5"): 0.371,
    ("mimic3/bonsai", "few", "rp@15"): 0.118,
    ("mimic3/attention-xml", "all", "ndcg@15"): 0.734,
    ("mimic3/hier-sci-bert", "all", "ndcg@15"): 0.619,
    ("mimic3/dnc-bigru-lwan", "few", "rp@15"): 0.413,
    ("amazon13k/parabel", "all", "ndcg@5"): 0.867,
    ("amazon13k/gnc-bigru-lwan", "zero", "ndcg@5"): 0.519,
    ("amazon13k/bigru-lwan-elmo", "frequent", "ndcg@5"): 0.874,
}


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


@pytest.mark.parametrize("corpus", PRINTED)
def test_every_printed_score_is_expected_by_a_recipe(corpus):
    recipes = {name: read_recipe(path, shallow=True) for name, path in RECIPES.items() if name.startswith(f"{corpus}/")}
    rows = {name: recipe for name, recipe in recipes.items() if "reading" not in recipe.source}
    scores = [score for recipe in rows.values() for group in recipe.expected.values() for score in group.values()]
    number, count, total = PRINTED[corpus]
    assert (len(rows), len(scores)) == (number, count)
    assert 100 * sum(scores) == pytest.approx(total)
    assert all(name == f"{recipe.corpus}/{recipe.method}" for name, recipe in rows.items())
    for name, recipe in recipes.items():
        assert recipe.source["row"].lower() == recipe.method
        assert recipe.expected == recipes[f"{corpus}/{recipe.method}"].expected, name  # of the same row, read otherwise
        assert (4 in recipe.source["tables"]) or recipe.source["note"]  # settings are printed, or it says whose they are


def test_the_recipes_cover_the_twenty_methods_of_the_paper():
    printed = [read_recipe(path, shallow=True) for name, path in RECIPES.items() if name.split("/")[0] in PRINTED]
    assert len({recipe.method for recipe in printed}) == 20


@pytest.mark.parametrize("name", SELECTED)
def test_networks_have_the_selected_settings_of_the_paper(name):
    settings = find_recipe(name).settings
    chosen = [settings["encoder"][key] for key in ("layers", "units", "dropout", "word_dropout")]
    assert (*chosen, settings["training"]["batch"]) == SELECTED[name]


@pytest.mark.parametrize("place", FIGURES, ids=" ".join)
def test_figures_are_those_of_the_paper(place):
    name, group, measure = place
    assert find_recipe(name).expected[group][measure] == FIGURES[place]


def test_trees_have_the_features_that_the_paper_names():
    trees = [find_recipe(f"{corpus}/{method}").settings for corpus in PRINTED for method in ("parabel", "bonsai")]
    assert all(settings["features"] == {"ngrams": 5, "max_features": 200_000} for settings in trees)


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
        ('method = "parable"', r"r\.toml: method: there is no method 'parable'; did you mean 'parabel'"),
        ('method = "lexical"\nseed = -1', r"r\.toml: seed: -1 will not do: input should be greater"),
        ('method = "lexical"\ntolerance = 2', r"r\.toml: tolerance: 2 will not do"),
        (EXPECT.format("al", "rp@5", 0.5), r"r\.toml: expected\.al: there is no such label group; did you mean 'all'"),
        (EXPECT.format("all", "ndgc@5", 0.5), r"r\.toml: expected\.all\.ndgc@5: there is no metric .*did you mean 'ndcg'"),
        (EXPECT.format("all", "rp", 0.5), r"r\.toml: expected\.all\.rp: write it as 'rp@5'"),
        (EXPECT.format("all", "RP@5", 0.5), r"r\.toml: expected\.all\.RP@5: write it as 'rp@5'"),
        (EXPECT.format("all", "rp@5", 78.1), r"r\.toml: expected\.all\.rp@5: 78\.1 will not do: scores lie between 0 and 1"),
        (EXPECT.format("all", "rp@5", '"high"'), r"r\.toml: expected\.all\.rp@5: 'high' will not do"),
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


def test_a_recipe_is_adapted_by_what_its_method_takes():
    recipe = find_recipe("eurlex57k/bonsai")
    changed = adapted(recipe, ["trees=1", "features.ngrams=2", "seed=3"], {"seed": 7, "device": "cpu", "threads": None})
    assert changed.settings == {
        **recipe.settings,
        "trees": 1,
        "features": {"ngrams": 2, "max_features": 200_000},
        "seed": 7,  # neither the device, which bonsai has no use for, nor the threads, which nobody asked for
    }
    assert make_recipe_method(changed, {}).settings.seed == 7
    assert recipe == find_recipe("eurlex57k/bonsai")


def test_the_list_of_recipes_is_grouped_by_data_set_and_can_be_narrowed(capsys):
    lists.recipes("")
    everything = capsys.readouterr().out.splitlines()
    printed, own = (f"{corpus}, Chalkidis et al. 2020" for corpus in PRINTED), ("crs", "ctgov", "eurlex", "world-any-level")
    assert [line for line in everything if not line.startswith(" ")] == sorted([*printed, *own])
    assert len(everything) == len(RECIPES) + 7
    lists.recipes("sci-bert")
    row = "  mimic3/hier-sci-bert-code2020  hier-sci-bert  HIER-SCI-BERT, table 2, read as code2020"
    assert row in capsys.readouterr().out.splitlines()
    lists.recipes("mimic3/parabel", as_json=True)
    (found,) = json.loads(capsys.readouterr().out).items()
    assert found[0] == "mimic3/parabel"
    assert (found[1]["method"], found[1]["corpus"], found[1]["source"]["row"]) == ("parabel", "mimic3", "PARABEL")
    with pytest.raises(LabelwiseError, match="no recipe has 'mimc3' in its name; did you mean 'mimic3'"):
        lists.recipes("mimc3")


def test_a_whole_name_shows_the_file_to_start_from(capsys):
    lists.recipes("mimic3/bert-base")
    assert Recipe(**tomllib.loads(capsys.readouterr().out)) == find_recipe("mimic3/bert-base")


def test_listing_recipes_loads_no_method():
    code = "import sys; from labelwise.cli import lists; lists.recipes(''); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
