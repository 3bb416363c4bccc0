"""The unmodified client of the package `MemoryOS` against a server that listens: every method, well and ill used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from memos import MemOS
from memos.serving import first_key
from tests.servers.fixtures import unavailable
from tests.servers.memoryos_client import Missing, python_of

SCRIPT = Path(__file__).parent / "openmem_calls.py"


class Listening(NamedTuple):
    """A server's address, and the keys of its admin and of a user."""

    url: str
    admin: str
    ana: str


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Listening]:
    """A server that listens, in a process of its own."""
    home = tmp_path / "home"
    with MemOS.open(home) as memos:
        admin = first_key(memos)
        assert admin is not None
        memos.users.create("ana")
        ana = memos.keys.create("ana", "test").secret
    command = [sys.executable, "-m", "memos", "serve", "--port", "0", "--data-dir", str(home)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        yield Listening(process.stdout.readline().split()[-1], admin, ana)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_every_method_of_the_unmodified_client_works(server: Listening, tmp_path: Path) -> None:
    try:
        python = python_of()
    except Missing as missing:
        unavailable(str(missing))
    folder = tmp_path / "client"
    folder.mkdir()
    # Its import name is ours: nothing of this process's paths may reach it.
    done = subprocess.run(
        [str(python), "-I", str(SCRIPT), f"{server.url}/api/openmem/v1", server.admin, server.ana],
        cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)}, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    assert "every method was called: 21" in done.stdout
