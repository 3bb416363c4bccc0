"""Adapters on a vLLM server: given to it when they are to answer, taken from it when they may not any more.

What a server may have is noted in a file before it is asked to load it, so that whoever forgets knows of it, also after
a crash. Source of the calls: https://docs.vllm.ai/en/latest/features/lora/ (dynamically serving LoRA adapters).
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import httpx2

from memos.backends.child import sync_folder, write_durably
from memos.backends.http import TooLarge, opened
from memos.backends.openai.chat import OpenAIChat
from memos.backends.openai.responses import NoSuchModel, where
from memos.core import lora as adapter_files
from memos.core.lora import ActiveAdapter
from memos.core.ports import ChatReply, ChatRequest
from memos.core.settings import ChatSettings
from memos.errors import BackendTimeout, BackendUnavailable, IntegrityError

log = logging.getLogger("memos.backends.vllm")

_NAME = "memstrata-"
_NO_SUCH_CALL = re.compile(r'"(detail|message)":\s*"not found"')
"""How FastAPI, and vLLM's handler of errors, answer a path that is none: it was started without calls for adapters."""
_LOAD_S = 30.0
# Others wait for whoever takes back: for an erasure, a backup, the next step of the upkeep.
_UNLOAD_S = 5.0
_AGAIN_AFTER_S = 30.0
_LOOK_S = 10.0
_ID_CHARS = 36
_HINT = (
    "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and let it read MEMOS_PARAMETRIC__VLLM_FOLDER"
)


class VllmAdapters:
    """The adapters that servers have; thread-safe.

    Notes of them are in the folder `notes`. The server of `settings` sees the files of adapters in `seen_as`, which is
    None where it is given none: then those that it was given before are still taken back.
    """

    def __init__(self, notes: Path, settings: ChatSettings, seen_as: str | None) -> None:
        self._notes = notes
        self._settings = settings
        self._seen_as = seen_as
        # An adapter each: a server that hangs with one holds up nobody who asks for another.
        self._turns: dict[str, threading.Lock] = {}
        self._there: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._look_at = 0.0

    def put(self, adapter: ActiveAdapter, is_wanted: Callable[[str], bool]) -> str | None:
        """Return the name that the server answers by with an adapter, None when it cannot now.

        Whether it is wanted is asked once more when it is noted, before it is loaded: who forgets finds the note.
        """
        if self._seen_as is None or self._settings.base_url is None:
            return None
        if adapter.id in self._there:
            return _NAME + adapter.id
        with self._turn_of(adapter.id):
            if adapter.id in self._there:
                return _NAME + adapter.id
            if time.monotonic() < self._not_before.get(adapter.id, 0.0):
                return None
            try:
                adapter_files.check(adapter.folder, adapter.digest)
                if not self._load(adapter.id, self._settings.base_url, is_wanted):
                    return None
            except (BackendUnavailable, IntegrityError, OSError) as error:
                log.warning("a cube is answered without its adapter: %s", error)
                self._not_before[adapter.id] = time.monotonic() + _AGAIN_AFTER_S
                return None
            self._there.add(adapter.id)
        return _NAME + adapter.id

    def lost(self, adapter: ActiveAdapter) -> None:
        """Take note that the server does not know an adapter: it was started anew, or somebody took it away."""
        self._there.discard(adapter.id)

    def keep_only(self, is_wanted: Callable[[str], bool]) -> None:
        """Take from the servers all that is not wanted; one that does not answer is asked once.

        Raises: BackendUnavailable; what could not be taken stays noted.
        """
        failed: BackendUnavailable | None = None
        silent: set[str] = set()
        until = time.monotonic() + _UNLOAD_S
        for note in sorted(self._notes.iterdir()) if self._notes.exists() else ():
            id_ = note.name[:_ID_CHARS]
            if note.suffix or is_wanted(id_):  # with a suffix it is not written yet
                continue
            turn = self._turn_of(id_)
            if not turn.acquire(timeout=max(0.0, until - time.monotonic())):
                failed = failed or _left(id_, note, "it is being loaded")
                continue
            try:
                if not is_wanted(id_):
                    self._there.discard(id_)
                    self._not_before.pop(id_, None)
                    self._unload(id_, note, silent)
            except BackendUnavailable as error:
                failed = failed or error
            finally:
                turn.release()
        if failed is not None:
            raise failed

    def keep_only_if_due(self, is_wanted: Callable[[str], bool]) -> None:
        """Do so every ten seconds; what cannot be told is logged, and asked again after thirty."""
        if time.monotonic() >= self._look_at:
            pause_s = _LOOK_S
            try:
                self.keep_only(is_wanted)
            except BackendUnavailable as error:
                log.warning("%s", error)
                pause_s = _AGAIN_AFTER_S
            self._look_at = time.monotonic() + pause_s

    def _turn_of(self, id_: str) -> threading.Lock:
        return self._turns.setdefault(id_, threading.Lock())

    def _load(self, id_: str, url: str, is_wanted: Callable[[str], bool]) -> bool:
        """Have the server load an adapter; return False where it is not wanted. Raises: BackendUnavailable, OSError."""
        note = self._note_of(id_, url)
        known = note.exists()
        if not known:
            self._write(note, url)
        if not is_wanted(id_):
            if not known:
                note.unlink()
            return False
        told = {"lora_name": _NAME + id_, "lora_path": f"{self._seen_as}/{id_}"}
        try:
            status, said = self._post(url, "load_lora_adapter", told, _LOAD_S)
        except _NotSent as error:
            if not known:
                note.unlink()
            raise BackendUnavailable(str(error)) from error
        # Its name is never another's: what is there by it is the same.
        if status == 200 or (status == 400 and "already been loaded" in said):
            return True
        if status < 500 and not known:
            note.unlink()
        raise BackendUnavailable(f"{where(self._settings)} does not load adapter {id_} ({status}): {_HINT}.")

    def _write(self, note: Path, url: str) -> None:
        if not self._notes.exists():
            self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self._notes.parent)
        write_durably(note, url)

    def _unload(self, id_: str, note: Path, silent: set[str]) -> None:
        """Have a server unload an adapter unless it is one of the `silent`, which it may join.

        Raises: BackendUnavailable.
        """
        try:
            url = note.read_text(encoding="utf-8")
        except FileNotFoundError:  # another thread had it unloaded
            return
        if url in silent:
            raise _left(id_, note, "it does not answer")
        try:
            status, said = self._post(url, "unload_lora_adapter", {"lora_name": _NAME + id_}, _UNLOAD_S)
        except (BackendUnavailable, _NotSent) as error:
            silent.add(url)
            raise _left(id_, note, str(error)) from error
        # One that was started anew does not know it, or takes no such calls. Any other 404 is of what is before it.
        if status != 200 and "cannot be found" not in said and not (status == 404 and _NO_SUCH_CALL.search(said)):
            raise _left(id_, note, f"it answers {status}")
        note.unlink(missing_ok=True)

    def _note_of(self, id_: str, url: str) -> Path:
        return self._notes / f"{id_}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"

    def _post(self, url: str, call: str, body: dict[str, str], longest_s: float) -> tuple[int, str]:
        """Return status and text of an answer in small letters. Raises: BackendUnavailable, _NotSent."""
        same = url == self._settings.base_url
        # Another server is not shown the key of this one.
        settings = self._settings if same else ChatSettings(base_url=url, model="any")
        with opened(settings) as client:
            try:
                answer = client.post(f"{url}/{call}", json=body, timeout=min(longest_s, settings.timeout_s))
                return answer.status_code, answer.text.lower()
            except httpx2.ConnectError as error:
                raise _NotSent(f"{where(settings)} cannot be reached: start it") from error
            except httpx2.TimeoutException as error:
                raise BackendTimeout(f"{where(settings)} did not answer in time to {call}.") from error
            except (httpx2.HTTPError, TooLarge) as error:
                raise BackendUnavailable(f"{where(settings)} broke off in {call} ({type(error).__name__}).") from error


class _NotSent(Exception):
    """The server was not reached: it has heard nothing."""


def _left(id_: str, note: Path, why: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"A server may still answer with adapter {id_} ({why}): it is asked again until it says that it does not. "
        f"Where it is gone for good, remove {note}."
    )


# A chat model behind a vLLM server, which answers with the adapter of a request's cube where that may answer now.


class NamedLending(Protocol):
    """Says which adapter answers for a cube, where nobody can see the model itself."""

    def serving_named(self, cube: str, model: str, about: Sequence[str]) -> ActiveAdapter | None:
        """Return the adapter of a cube that may answer now on the model of this name."""
        ...

    def may_answer(self, id_: str) -> bool:
        """Say whether an adapter may answer now."""
        ...


class VllmChat:
    """A `ChatModel`. Thread-safe; adapters are those that were trained on the model called `base` here.

    Whether the server has that model, nobody can see. What it does not take is answered without an adapter.
    """

    def __init__(self, chat: OpenAIChat, adapters: VllmAdapters, lending: NamedLending, base: str) -> None:
        self._chat = chat
        self._adapters = adapters
        self._lending = lending
        self._base = base

    @property
    def name(self) -> str:
        """The model's name at its endpoint."""
        return self._chat.name

    @property
    def in_steps(self) -> bool:
        """It does not."""
        return self._chat.in_steps

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the model's answer. Raises: as `OpenAIChat.complete`."""
        for adapter, asked in self._ways(request):
            try:
                return _by(adapter, self._chat.complete(asked))
            except NoSuchModel:
                if adapter is None:
                    raise
                self._adapters.lost(adapter)
        raise AssertionError("the last way is the model itself")

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        """Yield the model's answer. Raises: as `OpenAIChat.stream`."""
        for adapter, asked in self._ways(request):
            try:
                with closing(self._chat.stream(asked)) as pieces:
                    for piece in pieces:
                        yield _by(adapter, piece) if isinstance(piece, ChatReply) else piece
                return
            except NoSuchModel:  # which comes before any piece
                if adapter is None:
                    raise
                self._adapters.lost(adapter)

    def close(self) -> None:
        """Take no further calls; safe to call twice. What the server has stays there."""
        self._chat.close()

    def __repr__(self) -> str:
        return f"VllmChat({self.name!r})"

    def _ways(self, request: ChatRequest) -> Iterator[tuple[ActiveAdapter | None, ChatRequest]]:
        """Yield how to ask: with the adapter, once more where the server had lost it, and without."""
        for _ in range(2):
            prefix = request.prefix
            if prefix is None:
                break
            adapter = self._lending.serving_named(prefix.cube, self._base, prefix.about)
            if adapter is None or (name := self._adapters.put(adapter, self._lending.may_answer)) is None:
                break
            yield adapter, replace(request, model=name)
        yield None, request


def _by(adapter: ActiveAdapter | None, reply: ChatReply) -> ChatReply:
    return reply if adapter is None else replace(reply, adapter=adapter.id)
