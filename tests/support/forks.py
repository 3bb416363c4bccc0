"""Processes for tests, forked from ones that have loaded what they need: loading it takes half of many tests' time.

Three templates a test process: one with the engines' modules, for the children of `MemOS`, one with PyTorch, for those
that train, and one with the whole command line, for commands and for scripts. What is forked is a process of its own,
can be killed, and ends with its streams.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakSet

from memos.backends import child

ROOT = Path(__file__).resolve().parents[2]
_ENGINES = ("memos.backends.qdrant.embedded_process",)
_TRAINER = "memos.backends.lora.trainer"
_TRAINERS = (_TRAINER, "memos.backends.lora.training", "memos.backends.lora.resources")
# A command loads these itself, when it runs.
_COMMANDS = (
    "memos.cli.app",
    "memos.cli.memory",
    "memos.kernel.importing",
    "memos.kernel.relocation",
    "memos.api.local.client",
)
_PROGRAMS = (*_COMMANDS, "memos.api.app", "tests.fakes")
_REQUEST_BYTES = 1 << 20
_MOST_DESCRIPTORS = 16
start_anew = child.started
_paths: dict[str, str] = {}  # of the templates' sockets
_running = ExitStack()
_engines: dict[str, WeakSet[Forked]] = {}


class Forked:
    """A process that a template forked: what tests use of `subprocess.Popen`."""

    def __init__(self, template: str, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        self._answers = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._answers.connect(template)
        socket.send_fds(self._answers, [json.dumps(request).encode()], list(descriptors))
        self.pid = int(self._answers.recv(64))
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises: subprocess.TimeoutExpired."""
        with self._lock:
            if self.returncode is None:
                self._answers.settimeout(timeout)
                try:
                    told = self._answers.recv(64)
                except (TimeoutError, BlockingIOError):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
                self.returncode = int(told or -signal.SIGKILL)
                self._answers.close()
            return self.returncode

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has, and its template has not yet said so
                os.kill(self.pid, number)


class Script(Forked):
    """Python code in a process of its own, whose standard output can be read; leaving the context waits for its end.

    It is forked from a process that has also loaded the module `of`, if one is named.
    """

    def __init__(self, code: str, *arguments: str, of: str = "") -> None:
        reading, writing = os.pipe()
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            super().__init__(
                _programs(of),
                {"code": code, "arguments": list(arguments)},
                (nothing.fileno(), writing, sys.__stderr__.fileno()),  # type: ignore[union-attr]
            )
        os.close(writing)
        self.stdout = open(reading, encoding="utf-8")  # noqa: PTH123, SIM115

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.wait()


def command(
    arguments: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Return what `memos` with these arguments printed, decoded as UTF-8, and its exit code, -9 after the timeout."""
    with tempfile.TemporaryFile() as its, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        its.write(stdin)
        its.seek(0)
        request = {"command": list(arguments), "env": dict(os.environ if env is None else env)}
        forked = Forked(_programs(), request, [file.fileno() for file in (its, out, err)])
        try:
            code = forked.wait(timeout)
        except subprocess.TimeoutExpired:
            forked.kill()
            code = forked.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["memos", *arguments], code, out.read().decode(), err.read().decode())


def started(module: str, numbers: Sequence[int], keep: Sequence[int] = (), *, huge_pages: bool = False) -> Any:
    """Fork an engine's process: stands in for `memos.backends.child.started`, which starts an interpreter."""
    template = _template("trainers", _TRAINERS) if module == _TRAINER else _template("engines", _ENGINES)
    forked = Forked(template, {"engine": module, "sockets": len(numbers)}, (*numbers, *keep))
    _engines.setdefault(module, WeakSet()).add(forked)
    return forked


def running(module: str) -> list[Forked]:
    """Return the processes of an engine that were forked here and have not ended."""
    return [forked for forked in _engines.get(module, ()) if forked.poll() is None]


def _programs(of: str = "") -> str:
    return _template(f"programs{of}", (*_PROGRAMS, of) if of else _PROGRAMS)


def _template(name: str, modules: Sequence[str]) -> str:
    """Return a template's socket; it starts with the first request and ends with this process."""
    if name in _paths:
        return _paths[name]
    folder = tempfile.TemporaryDirectory(prefix="memos-forks-")
    path = f"{folder.name}/{name}"
    engines = _template("engines", _ENGINES) if name.startswith("programs") else ""
    env = {key: value for key, value in os.environ.items() if not key.startswith("MEMOS_")} | {"PYTHONUTF8": "1"}
    # Trainers give way to others: of two threads that wait for one another one is always the one that waits.
    env["OMP_NUM_THREADS"] = "1"
    process = subprocess.Popen(
        [sys.executable, "-c", "from tests.support.forks import serve; serve()", path, engines, *modules],
        cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", "the process to fork others from did not start"

    _running.callback(folder.cleanup)
    _running.callback(process.communicate)
    _paths[name] = path
    return path


def stop() -> None:
    """End the templates; a next request would start new ones."""
    _paths.clear()
    _running.close()


# What follows runs in the templates.


def serve() -> None:
    """Fork a process for each request until standard input ends; send its id and, when it ended, its exit status."""
    path, engines, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    # Else each process walks all that was loaded when it ends, which takes longer than most of them live.
    gc.collect()
    gc.freeze()
    if engines:
        _paths["engines"] = engines
        child.started = started  # type: ignore[assignment]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(64)
        print("ready", flush=True)
        request, descriptors = _forked(listening)
    _become(request, descriptors)


def _forked(listening: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a process for each request; return in each what was asked of it. The template never returns."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([0, listening, *running], [], [])
        for one in ready:
            if one == 0:
                os._exit(0)
            elif one is not listening:
                _told(one, *running.pop(one))
                continue
            asking, _ = listening.accept()
            message, descriptors = _asked(asking)
            if not message:
                continue
            pid = os.fork()
            if pid == 0:
                for ended, (_, other) in running.items():
                    os.close(ended)
                    other.close()
                asking.close()
                return json.loads(message), list(descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            with suppress(OSError):  # who asked was killed, and others will ask
                asking.send(str(pid).encode())
            running[os.pidfd_open(pid)] = (pid, asking)


def _asked(asking: socket.socket) -> tuple[bytes, list[int]]:
    """Return a request and its descriptors; nothing of who was killed while it asked, whose socket is closed."""
    try:
        message, descriptors, _, _ = socket.recv_fds(asking, _REQUEST_BYTES, _MOST_DESCRIPTORS)
    except OSError:
        message, descriptors = b"", []
    if not message:
        asking.close()
    return message, list(descriptors)


def _told(ended: int, pid: int, asking: socket.socket) -> None:
    os.close(ended)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with asking, suppress(OSError):  # who asked was killed
        asking.send(str(status).encode())


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Be what was asked for; leaves `serve` as any program ends, so that what runs at an exit does."""
    if "engine" in request:
        os.setsid()
        with open(os.devnull, "r+b") as nothing:  # noqa: PTH123
            for number in range(3):
                os.dup2(nothing.fileno(), number)
        importlib.import_module(request["engine"]).main(*descriptors[: request["sockets"]])
        sys.exit()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate(("r", "w", "w"))
    )
    if "code" in request:
        sys.argv = ["-c", *request["arguments"]]
        exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
        sys.exit()
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["memos", *request["command"]]
    importlib.import_module("memos.cli.app").main()
    sys.exit()
