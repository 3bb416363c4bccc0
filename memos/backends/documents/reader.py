"""`ChildDocumentReader`: read each document in a child process of its own.

Nothing is written to disk: input and output are memory that the operating system frees with the child.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from memos.backends.documents.formats import MEDIA_TYPES, Format
from memos.core.ports import DocumentPages, Page
from memos.errors import BackendUnavailable, InvalidInput

WALL_S = 2_100.0
"""Longest time for one document, also on a machine that is busy with other things; `OCR_S` is within it."""

_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from memos.backends.documents.process import main; main(*map(int, sys.argv[2:]))"
)
_POLLS_S = (0.01, 0.2)
# Each thread of a numerical library would take its share of the address space.
_ENVIRONMENT = {"PATH": os.defpath, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class ChildDocumentReader:
    """Reads documents with the extra `documents`, and images with the extra `ocr`, one child each."""

    def pages(self, name: str, data: bytes, check_cancelled: Callable[[], object]) -> DocumentPages:
        with _memory("document") as given, _memory("answer") as answer:
            with os.fdopen(os.dup(given), "wb") as file:
                file.write(json.dumps(name).encode() + b"\n")
                file.write(data)
            os.lseek(given, 0, os.SEEK_SET)
            status = _run(given, answer, check_cancelled)
            os.lseek(answer, 0, os.SEEK_SET)
            with os.fdopen(os.dup(answer), "rb") as file:
                told = file.read()
        if status == 0:
            return _taken(told.rstrip(b"\n").rpartition(b"\n")[2])
        whole = told.rpartition(b"\n")[0]  # what was said before it ended, if it was said to the end
        if not whole:
            raise InvalidInput("file", _ended(status))
        return _taken(whole.rpartition(b"\n")[2])


def _taken(told: bytes) -> DocumentPages:
    """Validate the child's answer: a compromised parser may send anything."""
    try:
        answer: dict[str, Any] = json.loads(told)
        if "pages" not in answer:
            raise InvalidInput("file", str(answer["reason"])[:500])
        format_ = Format(answer["format"])
        pages = tuple(
            Page(
                _clean(page["text"]),
                page.get("number"),
                tuple(_clean(title) for title in page.get("path", ())),
                _share(page.get("ocr")),
            )
            for page in answer["pages"]
        )
        unread = int(answer.get("unread", 0))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput("file", "is damaged; the process that reads it gave an invalid answer") from error
    return DocumentPages(format_, MEDIA_TYPES[format_], pages, unread)


def _share(told: Any) -> float | None:
    if told is None:
        return None
    if not 0 <= told <= 1:
        raise ValueError("no share")
    return float(told)


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n").replace("\0", "\ufffd")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _run(given: int, answer: int, check_cancelled: Callable[[], object]) -> int:
    mine, its = socket.socketpair()
    with mine, its:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-P", "-c", _START, _PACKAGE_ROOT, *map(str, (given, answer, its.fileno()))],
                pass_fds=(given, answer, its.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,
            )
        except OSError as error:
            raise BackendUnavailable(f"Cannot start a process to read the document ({error.strerror}).") from error
        try:
            return _waited(process, check_cancelled)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _waited(process: subprocess.Popen[bytes], check_cancelled: Callable[[], object]) -> int:
    deadline, pause = time.monotonic() + WALL_S, _POLLS_S[0]
    while True:
        try:
            return process.wait(pause)
        except subprocess.TimeoutExpired:
            check_cancelled()
        if time.monotonic() > deadline:
            raise InvalidInput("file", f"was not read within {WALL_S:g} s; split it")
        pause = min(_POLLS_S[1], pause * 1.5)


def _ended(status: int) -> str:
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "needs too much processor time or memory to be read; split it, or save it again from its program"
    if status == -signal.SIGXFSZ:
        return "has too much text to be read; split it"
    return f"crashed the process that reads it (status {status}); it is damaged or malicious"


@contextmanager
def _memory(name: str) -> Iterator[int]:
    descriptor = os.memfd_create(name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
