import threading

import pytest
from postgres import NoServer, server

from labelwise.errors import LabelwiseError
from labelwise.tuning.search import tune
from labelwise.tuning.storage import Database, quiet_optuna
from labelwise.tuning.trials import Lost


@pytest.fixture(scope="module")
def database():
    try:
        with server() as running:
            yield running
    except NoServer as reason:
        pytest.skip(f"no PostgreSQL server can be started here: {reason}")


@pytest.fixture(autouse=True)
def up(request):
    """Every test finds the server running."""
    yield
    if "database" in request.fixturenames:
        running = request.getfixturevalue("database")
        if running.process.poll() is not None:
            running.start()


def tried(report):
    return [(trial.settings, trial.value) for trial in report.trials if trial.end == "finished"]


def test_a_search_in_postgres_comes_to_the_trials_of_one_in_a_file(world, database, tmp_path):
    there = tune("lexical", world, tmp_path / "there", trials=3, storage=database.url)
    assert tried(there) == tried(tune("lexical", world, tmp_path / "here", trials=3))
    assert not (tmp_path / "there" / "trials.sqlite").exists()


def test_the_same_search_from_another_folder_joins(world, database, tmp_path):
    first = tune("lexical", world, tmp_path / "one", trials=3, seed=2, storage=database.url)
    second = tune("lexical", world, tmp_path / "two", trials=5, seed=2, storage=database.url)
    assert tried(second)[:3] == tried(first)
    assert len(second.trials) == 5
    assert len(tune("lexical", world, tmp_path / "three", trials=1, seed=3, storage=database.url).trials) == 1  # another search


def test_of_searches_that_share_a_database_one_at_a_time_makes_tables_and_begins_a_trial(database, tmp_path):
    search, begun = {"method": "m", "corpus": "c", "objective": "loss"}, threading.Event()
    one, two = (Database(database.url, tmp_path, ()) for _ in range(2))

    def begin():
        with two.open(search):
            begun.set()

    with quiet_optuna(), one.open(search):
        with one.alone():
            other = threading.Thread(target=begin)
            other.start()
            assert not begun.wait(0.3)
        other.join()
    assert begun.is_set()


def test_a_search_waits_for_a_server_that_comes_back(world, database, tmp_path):
    later = threading.Timer(0.3, database.start)

    def unplug(trial, best):
        if trial.number == 2:
            database.stop()
            later.start()

    how = {"storage": database.url, "told": unplug, "waits": (0.1,) * 100}
    report = tune("lexical", world, tmp_path / "search", trials=4, seed=4, **how)
    later.join()
    assert [trial.end for trial in report.trials] == ["finished"] * 4


def test_a_server_that_goes_away_in_the_middle_of_a_trial_costs_nothing_if_it_comes_back(world, database, tmp_path):
    seen = []

    def unplug(items, task, total=None):
        for item in items:
            seen.append(item)
            if len(seen) == 3:
                database.stop()
                database.start()  # every connection is broken, the server is there
            yield item

    report = tune("lexical", world, tmp_path / "search", trials=5, seed=5, storage=database.url, progress=unplug)
    assert [trial.end for trial in report.trials] == ["finished"] * 5


def test_a_server_that_stays_away_ends_the_search_and_finished_trials_are_safe(world, database, tmp_path):
    def unplug(trial, best):
        if trial.number == 2:
            database.stop()

    with pytest.raises(Lost, match=r"the database postgresql.* is gone \(.*\), and 0.2 s did not bring it back; .* are safe"):
        tune("lexical", world, tmp_path / "search", trials=4, seed=6, storage=database.url, told=unplug, waits=(0.1, 0.1))
    assert (tmp_path / "search" / "best.toml").is_file()
    database.start()
    heard = []
    report = tune(
        "lexical", world, tmp_path / "search", trials=4, seed=6, storage=database.url, told=lambda *told: heard.append(told)
    )
    assert len(heard) == 1
    assert tried(report) == tried(tune("lexical", world, tmp_path / "here", trials=4, seed=6))


def test_a_server_that_is_not_there_is_said_at_once_without_the_password(world, tmp_path):
    wrong = "postgresql://me:secret@127.0.0.1:1/none?password=secret"
    with pytest.raises(LabelwiseError, match=r"me:\*\*\*@127.0.0.1:1/none: no database to be had there: .*refused") as told:
        tune("lexical", world, tmp_path / "search", trials=1, storage=wrong)
    assert "secret" not in str(told.value)
    assert len(tune("lexical", world, tmp_path / "search", trials=1).trials) == 1  # the folder is free for a search that can be


def test_a_search_stays_with_its_database_and_its_password_is_not_kept(world, database, tmp_path):
    url = database.url.replace("labelwise@", "labelwise:secret@")
    tune("lexical", world, tmp_path / "search", trials=1, seed=7, storage=url)
    assert "secret" not in (tmp_path / "search" / "search.json").read_text()
    with pytest.raises(LabelwiseError, match=r"storage is postgresql.* there, not given here"):
        tune("lexical", world, tmp_path / "search", trials=1, seed=7)


def test_a_damaged_file_and_what_is_no_url_are_refused(world, tmp_path):
    tune("lexical", world, tmp_path / "search", trials=1)
    (tmp_path / "search" / "trials.sqlite").write_text("these are no trials, but a text that is longer than a header" * 9)
    with pytest.raises(LabelwiseError, match=r"trials.sqlite: no database to be had there: file is not a database"):
        tune("lexical", world, tmp_path / "search", trials=2)
    no_urls = dict.fromkeys(("here.db", "postgresql://me@host:port/name"), "write a URL")
    for url, message in {**no_urls, "oracel://x/y": "no database to be had there: .*oracel"}.items():
        with pytest.raises(LabelwiseError, match=message):
            tune("lexical", world, tmp_path / "other", trials=2, storage=url)
