"""Installations that several objects of one process use together: opened by the first, closed by the last.

A folder can be open once. MemoryOS programs make an object a user on the same folder, and never close one.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memos.core.ports import ChatModel
from memos.core.settings import Settings
from memos.errors import Conflict, MemosError
from memos.kernel.memos import MemOS


@dataclass(slots=True)
class _Shared:
    """One open installation, what it was asked for with, and how many use it."""

    memos: MemOS
    parameters: Mapping[str, object]
    users: int = 1


class Installations:
    """The open installations of a process, by folder; thread-safe."""

    def __init__(self) -> None:
        self._open: dict[Path, _Shared] = {}
        self._lock = threading.Lock()

    def borrow(
        self, folder: Path, settings: Settings, parameters: Mapping[str, object], chat_model: ChatModel | None
    ) -> MemOS:
        """Return the folder's installation; each `borrow` wants one `give_back`.

        `parameters` are those of the caller that hold for all of it, by name.
        Raises: Conflict (open with other parameters), and what `MemOS.open` raises.
        """
        wanted = {**parameters, "chat_model": chat_model}
        with self._lock:
            shared = self._open.get(folder)
            if shared is None:
                self._open[folder] = _Shared(MemOS.open(folder, settings=settings, chat_model=chat_model), wanted)
                return self._open[folder].memos
            others = sorted(name for name in wanted if wanted[name] != shared.parameters[name])
            if others:
                raise Conflict(
                    f"{folder} is open in this program with another {' and '.join(others)}: give the same, or close "
                    "the other objects first."
                )
            shared.users += 1
            return shared.memos

    def give_back(self, folder: Path) -> None:
        """Close the installation when nobody else uses it."""
        with self._lock:
            shared = self._open[folder]
            shared.users -= 1
            if shared.users == 0:
                del self._open[folder]
                shared.memos.close()

    def close_all(self) -> None:
        """Close what was never given back; for the end of the program."""
        with self._lock:
            while self._open:
                _, shared = self._open.popitem()
                with suppress(MemosError):  # what was not flushed is replayed at the next open
                    shared.memos.close()


INSTALLATIONS = Installations()
atexit.register(INSTALLATIONS.close_all)
