"""Where a search keeps its trials: a folder that it has to itself, and a database that may go away and come back.

The folder says in search.json which search it holds. The database is sqlite in that folder, or PostgreSQL by URL; there, the same
search from folders on several machines shares its trials.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from labelwise.errors import BadSettings, LabelwiseError, MissingExtra, OutputExists
from labelwise.settings import flat
from labelwise.storage import LOCK, alone, new_file, read_json
from labelwise.tuning.trials import Lost

try:
    import optuna
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError
except ModuleNotFoundError as missing:
    raise MissingExtra(f"a search needs {missing.name}: pip install 'labelwise[tune]'") from None

FORMAT = 1  # of search.json
SEARCH, DATABASE = "search.json", "trials.sqlite"
LOCK_NUMBER = 20_300_908  # of all searches in a PostgreSQL database; any number that others do not use
T = TypeVar("T")


@contextmanager
def claimed(folder: Path, search: dict[str, Any], database: Database) -> Iterator[tuple[str, optuna.Study]]:
    """Have a folder for this search alone as long as it goes on: the name by which its trials are known, and the trials."""
    if folder.is_file() or (folder.is_dir() and not (folder / SEARCH).is_file() and any(map(_foreign, folder.iterdir()))):
        raise OutputExists(f"{folder}: exists, and holds no search; name another folder")
    with alone(folder, f"{folder}: a search is at work in it; ask for more --workers, or name another folder"):
        for draft in folder.glob(".*.partial-*"):  # of a report that was being written when the search was killed
            draft.unlink()
        begun = (folder / SEARCH).is_file()
        owner = _owner(folder, search) if begun else uuid.uuid4().hex
        if begun and not database.elsewhere and not (folder / DATABASE).is_file():
            raise OutputExists(f"{folder}: its trials are gone ({DATABASE}); put that file back, or name another folder")
        with database.open(search) as study:
            if not begun:
                with new_file(folder / SEARCH) as file:
                    file.write(json.dumps({"format": FORMAT, "owner": owner, "search": search}, indent=1) + "\n")
            yield owner, study


def _foreign(path: Path) -> bool:
    """Whether a file is not what a search leaves that is killed as it begins."""
    return not path.name.startswith((DATABASE, LOCK, f".{SEARCH}"))


def _owner(folder: Path, search: dict[str, Any]) -> str:
    """The name of the search that lies in a folder, which must be this one."""
    known = read_json(folder / SEARCH)
    number = known.get("format") if isinstance(known, dict) else None
    if isinstance(number, int) and number > FORMAT:
        raise OutputExists(f"{folder / SEARCH}: written by a later version (format {number}); update labelwise")
    if number != FORMAT or "owner" not in known or not isinstance(known.get("search"), dict):
        raise OutputExists(f"{folder / SEARCH}: damaged; name another folder")
    before, now = flat(known["search"]), flat(json.loads(json.dumps(search)))
    if (key := "checksum of the corpus") in before and before[key] != now.get(key):
        raise OutputExists(f"{folder}: the corpus has changed since this search began; go back to it, or name another folder")
    differing = [
        f"{key} is {before.get(key, 'not given')} there, {now.get(key, 'not given')} here"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]
    if differing:
        raise OutputExists(f"{folder}: holds another search: {'; '.join(differing)}; name another folder, or search as before")
    return str(known["owner"])


class Database:
    """The database of a search, by its URL; a file in the folder where none is given."""

    def __init__(self, url: str, folder: Path, waits: Sequence[float]) -> None:
        self.elsewhere, self.waits = bool(url), tuple(waits)
        try:  # a path is not a URL: it may hold any sign
            place = make_url(url) if url else URL.create("sqlite", database=str(folder.absolute() / DATABASE))
        except (SQLAlchemyError, ValueError):  # it is not repeated here: there may be a password in it
            raise BadSettings("--storage: write a URL, as postgresql://USER@HOST/NAME") from None
        if place.drivername in ("postgres", "postgresql"):
            place = place.set(drivername="postgresql+psycopg")  # the driver that the extra `tune` brings
        self.url = place.render_as_string(hide_password=False)
        self.shown = place.difference_update_query(["password"]).render_as_string() if url else str(folder / DATABASE)

    def __str__(self) -> str:
        return self.shown

    @contextmanager
    def open(self, search: Mapping[str, Any]) -> Iterator[optuna.Study]:
        """The trials of this search; the same search from another folder finds the same ones."""
        told = {key: value for key, value in search.items() if key != "storage"}
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        try:
            self.engine = create_engine(self.url, pool_pre_ping=True)
            with self.alone():
                storage = optuna.storages.RDBStorage(self.url, engine_kwargs={"pool_pre_ping": True})
                study = optuna.create_study(
                    storage=storage,
                    study_name=f"{search['method']} on {search['corpus']}, {digest[:16]}",
                    direction="minimize" if search["objective"] == "loss" else "maximize",
                    pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
                    load_if_exists=True,
                )
        except ImportError as error:
            raise MissingExtra(f"{self}: {error} For PostgreSQL: pip install 'labelwise[tune]'") from None
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError, RuntimeError) as error:
            raise LabelwiseError(f"{self}: no database to be had there: {_reason(error)}") from None
        try:
            yield study
        finally:
            storage.remove_session()
            storage.engine.dispose()
            self.engine.dispose()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else makes tables or begins a trial meanwhile: searches on several machines may share the database."""
        with self.engine.begin() if self.engine.dialect.name == "postgresql" else nullcontext() as connection:
            if connection is not None:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK_NUMBER})"))
            yield

    def safely(self, act: Callable[[], T]) -> T:
        """Do something with it; where it is gone, wait for it to come back, then try again."""
        for pause in [*self.waits, None]:
            try:
                return act()
            except (optuna.exceptions.StorageInternalError, DBAPIError) as error:
                if pause is None:
                    raise Lost(
                        f"the database {self} is gone ({_reason(error)}), and {sum(self.waits):g} s did not bring it back; "
                        "the trials that are finished are safe in it, and the same command goes on from there"
                    ) from None
                time.sleep(pause)
        raise AssertionError("unreachable")


def _reason(error: BaseException) -> str:
    """What the database itself said, in one line."""
    error = error.__cause__ if isinstance(error, optuna.exceptions.StorageInternalError) and error.__cause__ else error
    return " ".join(str(getattr(error, "orig", None) or error).split())


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """What optuna has to say is not for our users."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", "The reported value is ignored")  # told twice, as the database went away
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
