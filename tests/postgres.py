"""A PostgreSQL server of the tests' own: made in a temporary folder, reached by a socket in it, gone with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NoServer(Exception):
    """Why there is none."""


class Server:
    def __init__(self, folder: Path, programs: Path, user: str | None) -> None:
        self.folder, self.programs, self.user = folder, programs, user
        self.url = f"postgresql://labelwise@/postgres?host={folder}"
        self._run("initdb", "-D", folder / "data", "-U", "labelwise", "-A", "trust", "--no-sync")
        self.start()

    def start(self) -> None:
        command = [self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder, "-F", "-c", "listen_addresses="]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, user=self.user, cwd=self.folder)
        for _ in range(200):
            if subprocess.run([self.programs / "pg_isready", "-q", "-h", self.folder], check=False).returncode == 0:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise NoServer((self.folder / "log").read_text()[-300:])

    def stop(self) -> None:
        """At once, as if the plug were pulled: connections break."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self.programs / program, *map(str, arguments)],
            capture_output=True,
            text=True,
            user=self.user,
            cwd=self.folder,
            check=False,
        )
        if done.returncode:
            raise NoServer(f"{program}: {done.stderr[-300:]}")


@contextmanager
def server() -> Iterator[Server]:
    found = shutil.which("initdb") or next(iter(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")))[::-1]), None)
    if found is None:
        raise NoServer("no initdb on this machine")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the path of a socket must be short
    user = "nobody" if os.getuid() == 0 else None  # the server refuses to run as root
    if user:
        shutil.chown(folder, user)
    try:
        running = Server(folder, Path(os.path.realpath(found)).parent, user)
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
