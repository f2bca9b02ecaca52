import pytest

from labelwise import registry
from labelwise.errors import BadSettings, UnknownName
from labelwise.registry import DATASETS, METHODS, Entry, find, make_method, methods


@pytest.mark.parametrize("entry", [*METHODS.values(), *DATASETS.values()], ids=[*METHODS, *DATASETS])
def test_every_entry_can_be_loaded(entry: Entry):
    assert callable(entry.load())
    assert entry.load().__doc__
    assert entry.summary


def test_every_reader_names_its_licence():
    for name, entry in DATASETS.items():
        assert "licen" in (entry.load().__doc__ or "").lower(), name


def test_an_unknown_name_comes_with_the_closest_known_one():
    with pytest.raises(UnknownName, match="there is no method 'lexcal'; did you mean 'lexical'"):
        make_method("lexcal")


def test_settings_are_checked_by_name_of_the_method():
    with pytest.raises(BadSettings, match="lexical: synonym: there is no such setting; did you mean 'synonyms'"):
        make_method("lexical", {"synonym": False})
    assert make_method("lexical", {"synonyms": False}).settings.synonyms is False


def test_plug_ins_are_found_by_entry_point_and_cannot_replace_our_own(monkeypatch):
    from importlib.metadata import EntryPoint

    points = [EntryPoint(name, "labelwise.methods.prior:Prior", "labelwise.methods") for name in ("mine", "lexical")]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "labelwise.methods" else [])
    assert find("mine", methods(), "method").load().name == "prior"
    assert methods()["lexical"] is METHODS["lexical"]
