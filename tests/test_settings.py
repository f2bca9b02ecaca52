from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest

from labelwise.errors import BadSettings
from labelwise.settings import Range, explain, make, override


@dataclass(frozen=True)
class Training:
    """How to train."""

    learning_rate: Annotated[float, Range(1e-5, 1e-2, log=True)] = 1e-3
    """Step size of Adam."""
    epochs: int = 10
    """Passes over
    the data."""


@dataclass(frozen=True)
class Whole:
    """Everything."""

    training: Training = field(default_factory=Training)
    cell: Literal["gru", "lstm"] = "gru"
    """Kind of cell."""


def test_plain_values_become_typed_settings():
    made = make(Whole, {"training": {"learning_rate": 0.01}, "cell": "lstm"})
    assert made == Whole(Training(0.01), "lstm")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"training": {"learnin_rate": 1}},
            r"^my: training\.learnin_rate: there is no such setting; did you mean 'learning_rate'\?",
        ),
        ({"cel": "gru"}, r"^my: cel: there is no such setting; did you mean 'cell'"),
        ({"training": {"learning_rate": 5}}, r"^my: training\.learning_rate: 5 will not do: .*less than or equal to 0\.01"),
        ({"training": {"epochs": "many"}}, r"^my: training\.epochs: 'many' will not do"),
        ({"cell": "rnn"}, r"^my: cell: 'rnn' will not do: .*'gru' or 'lstm'"),
    ],
)
def test_mistakes_are_named_by_path_with_the_way_out(values, message):
    with pytest.raises(BadSettings, match=message):
        make(Whole, values, where="my: ")


def test_assignments_are_read_as_toml_or_text():
    assert override({"training": {"epochs": 1}}, ["training.learning_rate=1e-4", "cell=lstm", "flag=true", 'name="a b"']) == {
        "training": {"epochs": 1, "learning_rate": 1e-4},
        "cell": "lstm",
        "flag": True,
        "name": "a b",
    }


@pytest.mark.parametrize("bad", ["epochs", "=3"])
def test_an_assignment_needs_a_key_and_a_value(bad):
    with pytest.raises(BadSettings, match="write it as key=value"):
        override({}, [bad])


def test_a_value_is_no_group():
    with pytest.raises(BadSettings, match="cell is a value, not a group of settings"):
        override({"cell": "gru"}, ["cell.size=3"])


def test_settings_explain_themselves():
    assert explain(Whole) == [
        ("training.learning_rate", "float 1e-05…0.01", 1e-3, "Step size of Adam."),
        ("training.epochs", "int", 10, "Passes over the data."),
        ("cell", "gru|lstm", "gru", "Kind of cell."),
    ]


@dataclass(frozen=True)
class Lists:
    """Settings that are lists."""

    sizes: tuple[int, ...] = (256,)
    """Sizes."""
    text: tuple[Literal["name", "synonyms"], ...] = ("name",)
    """What is read."""
    seed: Annotated[int, Range(0, 2**32 - 1)] = 1
    """Seed."""


@pytest.mark.parametrize(
    ("given", "made_of"),
    [
        ("sizes=64", Lists((64,))),
        ("sizes=64,32", Lists((64, 32))),
        ("sizes=[64, 32]", Lists((64, 32))),
        ("text=name, synonyms", Lists(text=("name", "synonyms"))),
        ("text=[name, synonyms]", Lists(text=("name", "synonyms"))),
        ("text=['name', 'synonyms']", Lists(text=("name", "synonyms"))),
        ("text=synonyms", Lists(text=("synonyms",))),
        ("text=", Lists(text=())),
    ],
)
def test_lists_may_be_written_as_on_a_command_line(given, made_of):
    assert make(Lists, override({}, [given])) == made_of


def test_a_bad_part_of_a_list_is_named():
    with pytest.raises(BadSettings, match=r"^text\.1: 'nmae' will not do: input should be 'name' or 'synonyms'"):
        make(Lists, override({}, ["text=name,nmae"]))


def test_lists_and_limits_are_spelt_for_people():
    assert [kind for _, kind, *_ in explain(Lists)] == ["list of int", "list of name|synonyms", "int 0…4294967295"]


@dataclass(frozen=True)
class Slow(Whole):
    """Everything, with another default inside a group."""

    training: Training = field(default_factory=lambda: Training(epochs=99))


def test_a_group_set_in_part_keeps_the_defaults_of_its_owner():
    assert make(Slow, {"training": {"learning_rate": 0.01}}) == Slow(Training(0.01, 99))
    assert ("training.epochs", 99) in [(name, default) for name, _, default, _ in explain(Slow)]
