"""Where a search keeps its trials: a folder that it has to itself, and a database that may go away and come back.

The folder says in search.json which search it holds. The database is sqlite in that folder, or PostgreSQL by URL; there, the same
search from folders on several machines shares its trials.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from labelwise.errors import BadSettings, LabelwiseError, MissingExtra, OutputExists
from labelwise.storage import new_file, read_json
from labelwise.tuning.trials import Lost

try:
    import optuna
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError
except ModuleNotFoundError as missing:
    raise MissingExtra(f"a search needs {missing.name}: pip install 'labelwise[tune]'") from None

FORMAT = 1  # of search.json
SEARCH, DATABASE = "search.json", "trials.sqlite"
T = TypeVar("T")


@contextmanager
def claimed(folder: Path, search: dict[str, Any], database: Database) -> Iterator[tuple[str, optuna.Study]]:
    """Have a folder for this search alone as long as it goes on: the name by which its trials are known, and the trials."""
    if folder.is_file() or (folder.is_dir() and not (folder / SEARCH).is_file() and any(map(_foreign, folder.iterdir()))):
        raise OutputExists(f"{folder}: exists, and holds no search; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputExists(f"{folder}: a search is at work in it; ask for more --workers, or name another folder") from None
        begun = (folder / SEARCH).is_file()
        known: dict[str, Any] = (
            read_json(folder / SEARCH) if begun else {"format": FORMAT, "owner": uuid.uuid4().hex, "search": search}
        )
        if known["format"] > FORMAT:
            raise OutputExists(f"{folder / SEARCH}: written by a later version (format {known['format']}); update labelwise")
        _require_same(folder, known["search"], search)
        with database.open(search) as study:
            if not begun:
                with new_file(folder / SEARCH) as file:
                    file.write(json.dumps(known, indent=1) + "\n")
            yield known["owner"], study
    finally:
        os.close(handle)


def _foreign(path: Path) -> bool:
    """Whether a file is not what a search leaves that is killed as it begins."""
    return not path.name.startswith((DATABASE, f".{SEARCH}"))


def _require_same(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    before, now = _flat(old), _flat(json.loads(json.dumps(new)))
    differing = [
        f"{key} is {before.get(key, 'not given')} there, {now.get(key, 'not given')} here"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]
    if differing:
        raise OutputExists(f"{folder}: holds another search: {'; '.join(differing)}; name another folder, or search as before")


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {path + key: value}
    return found


class Database:
    """The database of a search, by its URL; a file in the folder where none is given."""

    def __init__(self, url: str, folder: Path, waits: Sequence[float]) -> None:
        scheme, sign, rest = url.partition("://")
        if url and not (sign and rest):
            raise BadSettings(f"--storage {url}: write a URL, as postgresql://USER@HOST/NAME")
        self.elsewhere, self.waits = bool(url), tuple(waits)
        self.url = url or f"sqlite:///{folder.absolute() / DATABASE}"
        if scheme in ("postgres", "postgresql"):
            self.url = f"postgresql+psycopg://{rest}"  # the driver that the extra `tune` brings

    def __str__(self) -> str:
        try:
            return make_url(self.url).render_as_string(hide_password=True)
        except SQLAlchemyError as error:
            raise BadSettings(f"--storage: {_reason(error)}") from None

    @contextmanager
    def open(self, search: Mapping[str, Any]) -> Iterator[optuna.Study]:
        """The trials of this search; the same search from another folder finds the same ones."""
        told = {key: value for key, value in search.items() if key != "storage"}
        name = f"{search['method']} on {search['corpus']}, {hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]}"
        try:
            storage = optuna.storages.RDBStorage(self.url, engine_kwargs={"pool_pre_ping": True})
            study = optuna.create_study(
                storage=storage,
                study_name=name,
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
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
