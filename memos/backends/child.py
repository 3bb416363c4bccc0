"""Engines in child processes: the parent's handle on one, and the loop that serves it.

An engine goes into a child if it holds the interpreter lock, copies process memory into its files, or may crash.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from memos.errors import BackendTimeout, BackendUnavailable, IntegrityError, InvalidInput

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; main(*map(int, sys.argv[2:]))"
_CLOSE_WAIT_S = 10.0
# Far more than a flush or a search of anything that fits one machine; only a hung engine takes longer.
_CALL_TIMEOUT_S = 120
_TIMEOUT = struct.pack("ll", _CALL_TIMEOUT_S, 0)
_PICKLE = pickle.HIGHEST_PROTOCOL
LOCK_WAIT_S = 30.0

Handler = Callable[[str, tuple[Any, ...]], Any]


class ChildDied(Exception):
    """The child process died during a call."""


class Child:
    """An engine process and its sockets; calls on one socket queue, on different ones they run in parallel."""

    def __init__(
        self, module: str, what: str, *, sockets: int = 1, keep: tuple[int, ...] = (), huge_pages: bool = False
    ) -> None:
        """Start `main` of a module with its sockets; the descriptors `keep` stay open in it."""
        # `huge_pages` makes its allocator ask for them; without effect where unsupported.
        self._what = what
        self._channels: list[tuple[threading.Lock, Connection]] = []
        self._owed: set[int] = set()
        with ExitStack() as theirs:
            numbers = []
            for _ in range(sockets):
                mine, its = socket.socketpair()
                mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEOUT)
                self._channels.append((threading.Lock(), Connection(mine.detach())))
                numbers.append(theirs.enter_context(its).fileno())
            self._process = started(module, numbers, keep, huge_pages=huge_pages)

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(
        self,
        method: str,
        *arguments: Any,
        socket: int = 0,
        long: bool = False,
        meanwhile: Callable[[], None] | None = None,
    ) -> Any:
        lock, channel = self._channels[socket]
        with lock:
            if socket in self._owed:
                # A call was ended in the middle, by Ctrl+C say: the answer to it would be taken for that of this one.
                self.kill()
                raise ChildDied("a call was ended before its answer came")
            asked = pickle.dumps((method, arguments), _PICKLE)
            self._owed.add(socket)
            with self._watched(method):
                channel.send_bytes(asked)
                if long:
                    channel.poll(None)
            try:
                if meanwhile is not None:
                    meanwhile()
            finally:
                # Also when that raised: the next call would take this answer for its own.
                with self._watched(method):
                    answer = pickle.loads(channel.recv_bytes())  # noqa: S301 - from our own child
                self._owed.discard(socket)
        if answer[0]:
            return answer[1]
        kind, message = answer[1:]
        if kind == "BackendUnavailable":
            raise BackendUnavailable(message)
        if kind == "IntegrityError":
            raise IntegrityError(message)
        if kind == "InvalidInput":
            field, _, reason = message.partition(": ")
            raise InvalidInput(field, reason)
        if method == "open":
            raise IntegrityError(f"The {self._what} cannot be read ({kind}: {message}).")
        raise BackendUnavailable(f"The {self._what} refused {method} ({kind}: {message}).")

    @contextmanager
    def _watched(self, method: str) -> Iterator[None]:
        try:
            yield
        except BlockingIOError as error:
            self.kill()
            raise BackendTimeout(f"The {self._what} did not answer {method} within {_CALL_TIMEOUT_S} s.") from error
        except (EOFError, OSError) as error:
            raise ChildDied(f"it ended with status {self._process.poll()}") from error

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        for lock, channel in self._channels:
            with lock:
                channel.close()
        try:
            self._process.wait(_CLOSE_WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()


def started(
    module: str, numbers: Sequence[int], keep: Sequence[int] = (), *, huge_pages: bool = False
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-c", _START.format(module=module), _PACKAGE_ROOT, *map(str, numbers)],
        pass_fds=(*numbers, *keep),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=with_huge_pages(os.environ) if huge_pages else None,
        # A Ctrl-C in the terminal is for the program, which then closes its children in order.
        start_new_session=True,
    )


def with_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a child's environment; the user's allocator settings take precedence."""
    # Source: https://sourceware.org/glibc/manual/latest/html_node/Memory-Allocation-Tunables.html
    # (glibc.malloc.hugetlb)
    tunables = ":".join(filter(None, ("glibc.malloc.hugetlb=1", environment.get("GLIBC_TUNABLES"))))
    return {**environment, "GLIBC_TUNABLES": tunables}


def serve(channel: Connection, handle: Handler) -> None:
    """Answer (method, arguments) with (True, result) or (False, kind, message) until the parent is gone."""
    while True:
        try:
            method, arguments = pickle.loads(channel.recv_bytes())  # noqa: S301 - from our own parent
        except (EOFError, OSError):
            return
        if _hang_up(channel).poll(0):  # a killed parent's last request would make files nobody looks after
            return
        answer: tuple[Any, ...]
        try:
            answer = (True, handle(method, arguments))
        except Exception as error:  # noqa: BLE001 - the process boundary: the parent gets it as an error of its tree
            answer = (False, type(error).__name__, str(error))
        try:
            channel.send_bytes(pickle.dumps(answer, _PICKLE))
        except OSError:
            return


def _hang_up(channel: Connection) -> select.poll:
    poll = select.poll()
    poll.register(channel.fileno(), 0)  # no events: poll then reports only that the other end closed
    return poll


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def die_with_parent(channel: Connection | socket.socket) -> None:
    """End this process by SIGIO when the socket closes, since nobody reads the socket during a long call."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(channel.fileno(), fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(channel.fileno(), fcntl.F_GETFL)
    fcntl.fcntl(channel.fileno(), fcntl.F_SETFL, flags | os.O_ASYNC)


def end_with_parent(channel: Connection) -> None:
    """Exit as soon as the parent is gone, even during a call, if it releases the interpreter lock."""
    # Unlike `die_with_parent` the process may serve further calls: the signal would also come with the next request.

    def watch() -> None:
        _hang_up(channel).poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def lock_folder(folder: Path, what: str, wait_s: float | None = None) -> int:
    """Return a descriptor that locks a folder until all copies are closed, including in children."""
    # Waits for a killed parent's child, which ends after its call.
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + (LOCK_WAIT_S if wait_s is None else wait_s)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise BackendUnavailable(
                    f"The {what} in {folder} is in use by another process; stop that process and try again."
                ) from error
            time.sleep(0.02)
        else:
            return descriptor


def current_file(folder: Path, name: re.Pattern[str], first: str) -> Path:
    pointer = folder / "CURRENT"
    if not pointer.exists():
        write_durably(pointer, first)
    named = pointer.read_text(encoding="utf-8", errors="replace").strip()
    if not name.fullmatch(named):
        raise IntegrityError(f"{pointer} is damaged; it contains {named[:40]!r}.")
    return folder / named


def write_durably(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
