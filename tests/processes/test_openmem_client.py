"""The unmodified client of the package `MemoryOS` against a server that listens: every method, well and ill used."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import uvicorn

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.api.serving import first_key
from memos.core.settings import IndexSettings, LimitSettings, TaskSettings
from tests.fakes import WordEmbedder
from tests.support.scripted_chat import ScriptedChat
from tests.support.servers.fixtures import unavailable
from tests.support.servers.memoryos_client import Missing, python_of

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


@pytest.fixture
def talking(tmp_path: Path) -> Iterator[Listening]:
    """A server in this process, with a model that always says the same and nothing that reads."""
    settings = Settings(
        index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000), tasks=TaskSettings(workers=0)
    )
    model = ScriptedChat(lambda _: "You drink green tea.")
    with (
        MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder(), chat_model=model) as memos,
        socket.socket() as listener,
    ):
        admin = first_key(memos)
        assert admin is not None
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        running = uvicorn.Server(uvicorn.Config(create_app(memos), log_config=None, access_log=False, lifespan="on"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Listening(f"http://127.0.0.1:{listener.getsockname()[1]}", admin, admin)
        finally:
            running.should_exit = True
            thread.join()


def test_every_method_of_the_unmodified_client_works(server: Listening, tmp_path: Path) -> None:
    assert "every method was called: 21" in _called(server, tmp_path)


def test_the_unmodified_client_chats(talking: Listening, tmp_path: Path) -> None:
    _called(talking, tmp_path, "chat")


def _called(server: Listening, tmp_path: Path, *more: str) -> str:
    try:
        python = python_of()
    except Missing as missing:
        unavailable(str(missing))
    folder = tmp_path / "client"
    folder.mkdir()
    # Its import name is ours: nothing of this process's paths may reach it.
    done = subprocess.run(
        [str(python), "-I", str(SCRIPT), f"{server.url}/api/openmem/v1", server.admin, server.ana, *more],
        cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)}, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    return done.stdout
