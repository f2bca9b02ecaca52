import json

import pytest

from labelwise.errors import BadSettings
from labelwise.recipe import find_recipe
from labelwise.registry import METHODS
from labelwise.settings import make, override
from labelwise.tuning.space import Between, OneOf, grid, make_space


def space_of(name, *entries, settings=(), pinned=()):
    recipe = find_recipe(name)
    return make_space(METHODS[recipe.method].load().Settings, override(recipe.settings, settings), entries, pinned)


def test_a_method_searches_the_settings_that_say_they_are_worth_it():
    found = space_of("bigru-lwan")
    assert set(found) == {f"encoder.{key}" for key in ("units", "layers", "dropout", "word_dropout")} | {
        "training.batch",
        "training.learning_rate",
    }
    assert found["training.batch"] == Between(8, 32, log=True, whole=True)
    assert found["encoder.dropout"] == Between(0.0, 0.5, log=False, whole=False)


def test_ranges_by_a_factor_lie_around_the_value_that_the_method_or_recipe_has():
    rates = space_of("bert-base")["training.learning_rate"], space_of("bigru-lwan")["training.learning_rate"]
    assert [(rate.low, rate.high) for rate in rates] == [pytest.approx((4e-6, 1e-4)), pytest.approx((2e-4, 5e-3))]
    assert space_of("bonsai", settings=["cost=500"])["cost"] == Between(50, 1000, log=True, whole=False)  # up to what is allowed


def test_settings_that_do_nothing_or_have_no_choice_are_left_alone():
    assert set(space_of("bert-base")) == {"training.batch", "training.learning_rate", "encoder.dropout"}
    assert "encoder.units" not in space_of("c-bigru-lwan")  # states are multiplied with the vectors of words
    assert "encoder.units" in space_of("dc-bigru-lwan")
    assert "encoder.units" not in space_of("bigru-lwan", pinned=["encoder.units"])


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"prior", "ensemble", "best"}))
def test_all_that_a_search_tries_by_default_is_allowed(name):
    kind = METHODS[name].load().Settings
    for end in (0, -1):
        make(kind, override({}, [f"{key}={json.dumps(some.points()[end])}" for key, some in space_of(name).items()]))


def test_the_paper_has_a_grid_of_its_own():
    words, transformers = space_of("bigru-lwan", "paper"), space_of("bert-base-lwan", "paper")
    assert {key: some.points() for key, some in words.items()} == {
        "encoder.layers": [1, 2],
        "encoder.units": [100, 200, 300, 400],
        "encoder.dropout": [0.1, 0.2, 0.3],
        "encoder.word_dropout": [0, 0.01, 0.02],
        "training.batch": [8, 16],
    }
    assert {key: some.points() for key, some in transformers.items()} == {
        "encoder.dropout": [0.1, 0.2, 0.3],
        "training.batch": [8, 16],
        "training.learning_rate": [2e-5, 3e-5, 5e-5],
    }
    assert len(grid(words, 1)) == 144


def test_a_space_can_be_named_narrowed_and_listed():
    found = space_of("bigru-lwan", "encoder.cell", "training.decay", "encoder.units=8..16", "training.learning_rate=1e-3,0.1")
    assert found == {
        "encoder.cell": OneOf(("gru", "lstm")),
        "training.decay": OneOf((False, True)),
        "encoder.units": Between(8, 16, log=False, whole=True),
        "training.learning_rate": OneOf((1e-3, 0.1)),
    }
    assert [str(some) for some in found.values()] == ["gru,lstm", "8..16", "0.001,0.1", "false,true"]  # as they are declared
    paths = "../one.txt", "../two.txt"
    assert space_of("bigru-lwan", f"words.vectors={','.join(paths)}") == {"words.vectors": OneOf(paths)}


@pytest.mark.parametrize(
    ("name", "entries", "message"),
    [
        ("bigru-lwan", ["training.learnin_rate"], r"--space training.learnin_rate: .* did you mean 'training.learning_rate'"),
        ("bigru-lwan", ["words.vectors"], r"words.vectors has no range; say what to try, as words.vectors=A,B,C"),
        ("bigru-lwan", ["encoder.dropout=0.1,1.5"], r"encoder.dropout: 1.5 will not do: .*less than or equal to 0.99"),
        ("bigru-lwan", ["encoder.layers=0..2"], r"encoder.layers: 0 will not do"),
        ("bigru-lwan", ["encoder.layers=2..1"], r"from a number to a higher one"),
        ("bigru-lwan", ["encoder.units=a..b"], r"from a number to a higher one, as encoder.units=LOW..HIGH"),
        ("bigru-lwan", ["papers"], r"did you mean 'paper'"),
        ("bigru-lwan", ["encoder.cell=gru,rnn"], r"encoder.cell: 'rnn' will not do: .*'gru' or 'lstm'"),
        ("bonsai", ["paper"], r"the paper has a grid for networks only"),
        ("prior", [], r"no setting is left that is marked as worth searching; name some with --space \(known: none\)"),
    ],
)
def test_mistakes_in_a_space_are_named_with_the_way_out(name, entries, message):
    with pytest.raises(BadSettings, match=message):
        space_of(name, *entries)


def test_a_setting_is_searched_or_set_not_both():
    with pytest.raises(BadSettings, match="encoder.units is set to one value by --set"):
        space_of("bigru-lwan", "encoder.units=8..16", pinned=["encoder.units"])


def test_a_grid_has_every_combination_once_in_an_order_by_seed():
    space = {"a": OneOf(("x", "y")), "b": Between(1, 3, log=False, whole=True), "c": Between(1e-4, 1.0, log=True, whole=False)}
    points = grid(space, 1)
    assert sorted({point["b"] for point in points}) == [1, 2, 3]
    assert sorted({point["c"] for point in points}) == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1])
    assert len({tuple(point.values()) for point in points}) == len(points) == 2 * 3 * 5
    assert points == grid(space, 1) != grid(space, 2)
    with pytest.raises(BadSettings, match=r"a grid of 9,765,625 points .* is too large"):
        grid({str(key): space["c"] for key in range(10)}, 1)
