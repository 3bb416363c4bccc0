"""`AgentMemory`: recall before a model is asked and remember after it has answered, alike in every framework."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from memos.core.clock import new_id
from memos.core.closing import Closing
from memos.core.text.rendering import assemble, is_untrusted, memory_section, remembered
from memos.core.text.validation import is_blank
from memos.core.tokens import estimate_tokens
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, RELEVANT, Json, Mode, Trust
from memos.errors import BackendTimeout, BackendUnavailable, Conflict, InvalidInput, MemosError, NotFound

if TYPE_CHECKING:
    from memos.api.client import AsyncMemOSClient, MemOSClient
    from memos.core.types import Hit
    from memos.kernel.memos import MemOS

log = logging.getLogger("memos.integrations")

RECALL_TOOL = (
    "Find what is remembered from earlier conversations with the user. Call this before answering whatever could "
    "depend on the user's preferences, people, projects or past decisions. Ask a full question in plain words."
)
"""What a model is told of a tool that recalls."""

REMEMBER_TOOL = (
    "Remember one durable fact, preference, decision or instruction that the user stated or confirmed, as a full "
    "sentence with names and absolute dates. Not for secrets, for what holds only now, or for guesses."
)
"""What a model is told of a tool that remembers."""

_NOTHING = "Nothing relevant is remembered."
_UNAVAILABLE = "The memory is not available now. Go on without it, and say so if the answer depends on it."
_FRAME_TOKENS = estimate_tokens(memory_section([""]))
_QUESTION_CHARS = 20_000
_THREADS = 4
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_IDENTITY = "user, agent or group"
# Calls that may be about a user who is not known yet, who is then created, as the server does.
_CREATING = frozenset({"memories.add", "memories.feedback", "records.put", "records.put_many"})
_OF_MEMOS = {"memories.search": "search"}


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose memory it is, as a framework's configuration says; what is missing comes from the `AgentMemory`.

    Attributes:
        user: The user, whose own cube it is unless `cube` names another.
        conversation: The thread or session.
        cube: A cube to share, such as a team's.
        agent: The agent that speaks; kept as the speaker of its messages.
    """

    user: str | None = None
    conversation: str | None = None
    cube: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that memory did not answer, while the agent went on."""

    operation: str
    error: Exception
    at: datetime

    def __str__(self) -> str:
        return f"{self.operation}: {self.error}"


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is remembered for a question.

    Attributes:
        text: A section for the prompt: dated, fenced as data, within the token budget; empty if nothing is known.
        hits: The memories in it, best first.
        tokens: The estimated tokens of `text`.
        untrusted: Some of it comes from a source that is not trusted.
        failure: Why memory did not answer; None if it did.
        timings_ms: What the search took, by its parts.
    """

    text: str = ""
    hits: tuple[Hit, ...] = ()
    tokens: int = 0
    untrusted: bool = False
    failure: Failure | None = None
    timings_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def answer(self) -> str:
        """What a tool tells the model, also if nothing is known or memory is away."""
        return _UNAVAILABLE if self.failure is not None else self.text or _NOTHING

    def within(self, token_budget: int) -> Recalled:
        """Return what fits into fewer tokens."""
        hits, text, _ = assemble(self.hits, token_budget - _FRAME_TOKENS)
        return _section(hits, text)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was stored: ids of the memories, and how many of them are new."""

    ids: tuple[str, ...] = ()
    stored: int = 0
    failure: Failure | None = None

    @property
    def answer(self) -> str:
        """What a tool tells the model."""
        return _UNAVAILABLE if self.failure is not None else "Remembered."


class AgentMemory(Closing):
    """The memory of agents, over `MemOS`, `MemOSClient` or `AsyncMemOSClient`. Thread-safe; close it.

    Each call exists twice, blocking and as a coroutine (`recall`, `arecall`). Coroutines over `MemOS` or `MemOSClient`
    run in threads, at most four, which `close` ends; an `AsyncMemOSClient` has only coroutines. `close` leaves `memos`
    open: it is the caller's.

    Args:
        memos: The memory; it stays the caller's to close.
        user: Whose memory it is where the framework names nobody.
        cube: The cube, where the framework names none; by default the user's own.
        token_budget: The most estimated tokens of a recalled section.
        top_k: The most memories in it.
        min_relevance: The least relevance of a memory, from 0 to 1.
        filter: Only memories that pass this filter are recalled.
        mode: `fine` has what is remembered read into facts in the background, where a model is configured.
        timeout_s: The longest that a call may take; None for no limit.
        fail_open: Go on without memory when it fails or takes too long, with a warning in the log, `last_failure` and
            `on_failure`; otherwise raise.
        on_failure: Called with each failure, in the thread it occurs in.
    """

    def __init__(  # noqa: PLR0913 - what a program may choose, all by name
        self,
        memos: MemOS | MemOSClient | AsyncMemOSClient,
        *,
        user: str | None = None,
        cube: str | None = None,
        token_budget: int = 1_000,
        top_k: int = 10,
        min_relevance: float = RELEVANT,
        filter: Mapping[str, Json] | None = None,
        mode: str = Mode.ROUGH,
        timeout_s: float | None = 2.0,
        fail_open: bool = True,
        on_failure: Callable[[Failure], None] | None = None,
    ) -> None:
        self.memos = memos
        self.token_budget, self.top_k, self.min_relevance, self.filter = token_budget, top_k, min_relevance, filter
        self.mode, self.timeout_s, self.fail_open = mode, timeout_s, fail_open
        self.failures = 0
        self.last_failure: Failure | None = None
        self._default = Owner(user=user, cube=cube)
        self._on_failure = on_failure
        self._store = _Store.over(memos, timeout_s)
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    def recall(
        self,
        question: str,
        owner: Owner = Owner(),
        *,
        known: Collection[str] = (),
        filter: Mapping[str, Json] | None = None,
        top_k: int | None = None,
    ) -> Recalled:
        """Return what is remembered for a question.

        Args:
            question: The question in plain words, such as the user's last message.
            owner: Whose memory it is.
            known: Texts that the prompt has already; they are left out.
            filter: Only memories that pass this filter too.
            top_k: The most memories, in place of that of all calls.

        Raises:
            MemosError: Memory failed, and `fail_open` is False.
        """
        if is_blank(question):
            return Recalled()
        options = self._search_options(filter, top_k)
        outcome = self._attempt("recall", "memories.search", owner, (storable(question[:_QUESTION_CHARS]),), options)
        return self._recalled(outcome, known)

    async def arecall(
        self,
        question: str,
        owner: Owner = Owner(),
        *,
        known: Collection[str] = (),
        filter: Mapping[str, Json] | None = None,
        top_k: int | None = None,
    ) -> Recalled:
        """Return what is remembered for a question, as `recall` does."""
        if is_blank(question):
            return Recalled()
        options = self._search_options(filter, top_k)
        outcome = await self._aattempt(
            "recall", "memories.search", owner, (storable(question[:_QUESTION_CHARS]),), options
        )
        return self._recalled(outcome, known)

    def remember(
        self,
        messages: Sequence[Mapping[str, Any]],
        owner: Owner = Owner(),
        *,
        turn: str | None = None,
        untrusted: bool = False,
        info: Mapping[str, Json] | None = None,
    ) -> Remembered:
        """Store the messages of a turn, each once, however often the turn is retried.

        Args:
            messages: Mappings of `role` and `content`, and if known `id`, `name`, `chat_time` and `trust`.
            owner: Whose memory it is; without a conversation, the turn is one of its own.
            turn: The turn's id in the framework, by which a retry is recognised; not needed for messages with ids.
                Without both, a second call stores the messages again.
            untrusted: The answer may repeat text of sources that are not trusted, such as results of tools.
            info: Further data of every memory.

        Raises:
            MemosError: Memory failed, and `fail_open` is False.
        """
        request = self._add_request(messages, owner, turn, untrusted=untrusted, info=info)
        if request is None:
            return Remembered()
        return _remembered(self._attempt("remember", "memories.add", *request))

    async def aremember(
        self,
        messages: Sequence[Mapping[str, Any]],
        owner: Owner = Owner(),
        *,
        turn: str | None = None,
        untrusted: bool = False,
        info: Mapping[str, Json] | None = None,
    ) -> Remembered:
        """Store the messages of a turn, as `remember` does."""
        request = self._add_request(messages, owner, turn, untrusted=untrusted, info=info)
        if request is None:
            return Remembered()
        return _remembered(await self._aattempt("remember", "memories.add", *request))

    def call(
        self, method: str, *given: Any, owner: Owner, fallback: Any = None, fail_open: bool | None = None, **named: Any
    ) -> Any:
        """Call another method of the memory for an owner, named as in the clients, such as `memories.list`.

        Returns `fallback` if the user, or the memory to get, is not known, and also if memory fails, unless `fail_open`
        is False, here or of this object: a program has to know that what it wanted deleted is still there.

        Raises:
            MemosError: Memory failed, and `fail_open` is False.
        """
        return self._attempt(method, method, owner, given, named, fail_open).or_else(fallback)

    async def acall(
        self, method: str, *given: Any, owner: Owner, fallback: Any = None, fail_open: bool | None = None, **named: Any
    ) -> Any:
        """Call another method of the memory for an owner, as `call` does."""
        return (await self._aattempt(method, method, owner, given, named, fail_open)).or_else(fallback)

    def forget(self, owner: Owner = Owner()) -> int:
        """Delete the memories of a conversation, or without one all of an owner's cube; return how many there were.

        A rollback restores each of them; to remove them for good, erase them.

        Raises:
            MemosError: They could not be deleted, whatever `fail_open` says.
        """
        page = _page_of(owner)
        deleted = 0
        while found := self.call("memories.list", owner=owner, fail_open=False, **page):
            ids = [item.id for item in found]
            answer = self.call("memories.delete", ids, owner=owner, fail_open=False)
            deleted += len(getattr(answer, "item_ids", answer))
        return deleted

    async def aforget(self, owner: Owner = Owner()) -> int:
        """Delete the memories of a conversation or a cube, as `forget` does."""
        page = _page_of(owner)
        deleted = 0
        while found := await self.acall("memories.list", owner=owner, fail_open=False, **page):
            ids = [item.id for item in found]
            answer = await self.acall("memories.delete", ids, owner=owner, fail_open=False)
            deleted += len(getattr(answer, "item_ids", answer))
        return deleted

    def close(self) -> None:
        """End the threads, waiting for calls that run; later calls fail."""
        with self._lock:
            self._closed, threads, self._threads = True, self._threads, None
        if threads is not None:
            threads.shutdown(cancel_futures=True)

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _search_options(self, filter: Mapping[str, Json] | None, top_k: int | None) -> dict[str, Any]:
        filters = [dict(each) for each in (self.filter, filter) if each]
        return {
            "top_k": self.top_k if top_k is None else top_k,
            "min_relevance": self.min_relevance,
            "token_budget": max(1, self.token_budget - _FRAME_TOKENS),
            "filter": {"and": filters} if len(filters) > 1 else filters[0] if filters else None,
        }

    def _recalled(self, outcome: _Outcome, known: Collection[str]) -> Recalled:
        if outcome.value is None:
            return Recalled(failure=outcome.failure)
        hits, text = tuple(outcome.value.hits), outcome.value.context
        if any(hit.item.memory in known for hit in hits):
            new = [hit for hit in hits if hit.item.memory not in known]
            hits, text, _ = assemble(new, self.token_budget - _FRAME_TOKENS)
        return replace(_section(hits, text), timings_ms=outcome.value.timings_ms)

    def _add_request(
        self,
        messages: Sequence[Mapping[str, Any]],
        owner: Owner,
        turn: str | None,
        *,
        untrusted: bool,
        info: Mapping[str, Json] | None,
    ) -> tuple[Owner, tuple[Any, ...], dict[str, Any]] | None:
        turn = turn or new_id()
        told = _messages(messages, owner, turn, untrusted=untrusted)
        if not told:
            return None
        conversation = owner.conversation or turn
        return owner, (told,), {"conversation": conversation, "info": dict(info or {}), "mode": self.mode}

    def _attempt(
        self,
        operation: str,
        method: str,
        owner: Owner,
        given: tuple[Any, ...],
        named: Mapping[str, Any],
        fail_open: bool | None = None,
    ) -> _Outcome:
        if self._store.is_async:
            raise InvalidInput(
                "memos", "is an AsyncMemOSClient, which has only coroutines; give a MemOSClient to code that blocks"
            )
        try:
            run = self._store.bind(method, self._complete(owner), given, named)
            running = self._pool().submit(contextvars.copy_context().run, run)
            try:
                return _Outcome(running.result(self.timeout_s), None)
            except TimeoutError:
                if running.done():
                    raise
                running.cancel()  # if it has not begun
                raise self._late() from None
        except Exception as error:  # noqa: BLE001 - memory must not break an agent, whatever happens in it
            return self._failed(operation, method, error, fail_open)

    async def _aattempt(
        self,
        operation: str,
        method: str,
        owner: Owner,
        given: tuple[Any, ...],
        named: Mapping[str, Any],
        fail_open: bool | None = None,
    ) -> _Outcome:
        try:
            run = self._store.bind(method, self._complete(owner), given, named)
            try:
                async with asyncio.timeout(self.timeout_s) as limit:
                    if self._store.is_async:
                        self._check_open()
                        return _Outcome(await run(), None)
                    context = contextvars.copy_context()
                    return _Outcome(
                        await asyncio.get_running_loop().run_in_executor(self._pool(), context.run, run), None
                    )
            except TimeoutError:
                if not limit.expired():
                    raise
                raise self._late() from None
        except Exception as error:  # noqa: BLE001 - as above
            return self._failed(operation, method, error, fail_open)

    def _complete(self, owner: Owner) -> Owner:
        user, cube = owner.user or self._default.user, owner.cube or self._default.cube
        if not user:
            raise InvalidInput(
                "user", "is missing; name the user in the framework's configuration, or give AgentMemory(user=...)"
            )
        return replace(owner, user=user, cube=cube)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            self._check_open()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="memos-integration")
            return self._threads

    def _check_open(self) -> None:
        if self._closed:
            raise BackendUnavailable("This AgentMemory is closed; make another one.", permanent=True)

    def _late(self) -> BackendTimeout:
        return BackendTimeout(f"Not done within {self.timeout_s} seconds; raise timeout_s if memory is slow here.")

    def _failed(self, operation: str, method: str, error: Exception, fail_open: bool | None) -> _Outcome:
        missing = error.what if isinstance(error, NotFound) else None
        unknown = missing == _IDENTITY or (missing is not None and method == "memories.get")
        if unknown and fail_open is None and method not in _CREATING:
            return _Outcome(None, None)  # what nobody has told memory is no failure of it
        if not (self.fail_open if fail_open is None else fail_open):
            raise error
        failure = Failure(operation, error, datetime.now(UTC))
        # A traceback only for what nobody expects.
        log.warning(
            "Memory failed (%s), the agent goes on without it: %s",
            operation,
            error,
            exc_info=None if isinstance(error, MemosError) else error,
        )
        with self._lock:
            self.failures += 1
            self.last_failure = failure
        if self._on_failure is not None:
            try:
                self._on_failure(failure)
            except Exception:
                log.exception("on_failure failed")
        return _Outcome(None, failure)


class _Outcome(NamedTuple):
    value: Any
    failure: Failure | None

    def or_else(self, fallback: Any) -> Any:
        return fallback if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class _Store:
    """Calls the methods of `MemOS` and of the clients alike: by the clients' names, for an owner."""

    memos: Any
    embedded: bool
    is_async: bool

    @classmethod
    def over(cls, memos: Any, timeout_s: float | None) -> Self:
        if not hasattr(memos, "memories"):
            raise InvalidInput("memos", f"must be a MemOS, MemOSClient or AsyncMemOSClient, not {type(memos).__name__}")
        if not hasattr(memos, "using"):
            return cls(memos, embedded=True, is_async=False)
        # Once more at once: a server that restarted has closed the connections that the client kept.
        client = memos.using(timeout_s=timeout_s, connect_timeout_s=timeout_s, retries=1, pause_s=0.05)
        return cls(client, embedded=False, is_async=hasattr(memos, "aclose"))

    def bind(self, method: str, owner: Owner, given: tuple[Any, ...], named: Mapping[str, Any]) -> Callable[[], Any]:
        """Return a call of a method for an owner; over an asynchronous client, it returns a coroutine."""
        if self.embedded:
            return partial(self._embedded, method, owner, given, named)
        cubes = "cubes" if method == "memories.search" else "cube"
        of: dict[str, Any] = {} if owner.cube is None else {cubes: [owner.cube] if cubes == "cubes" else owner.cube}
        return partial(attrgetter(method)(self.memos), *given, **named, **of, user=owner.user)

    def _embedded(self, method: str, owner: Owner, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        actor = str(owner.user)
        home = self._home(actor, creates=method in _CREATING)
        cube = owner.cube or home
        of: dict[str, Any] = {"cubes": [cube]} if method == "memories.search" else {"cube": cube}
        return attrgetter(_OF_MEMOS.get(method, method))(self.memos)(*given, **named, **of, actor=actor)

    def _home(self, user: str, *, creates: bool) -> str:
        """Return a user's own cube; the user is created as a server creates who is named with an admin's key."""
        if user == LOCAL_OWNER:
            return DEFAULT_CUBE
        memos: MemOS = self.memos
        try:
            found = memos.users.get(user)
        except NotFound:
            if not (creates and memos.settings.server.new_users):
                raise
            try:
                found = memos.users.create(user)
            except Conflict:  # another thread created it meanwhile
                found = memos.users.get(user)
        return found.home or DEFAULT_CUBE


def _page_of(owner: Owner) -> dict[str, Any]:
    session = owner.conversation
    only = None if session is None else {"or": [{"conversation": session}, {"info.session": session}]}
    return {"filter": only, "limit": 500}


def _section(hits: tuple[Hit, ...], text: str) -> Recalled:
    if not hits:
        return Recalled()
    section = memory_section([remembered(text)])
    return Recalled(section, hits, estimate_tokens(section), any(is_untrusted(hit.sources) for hit in hits))


def _remembered(outcome: _Outcome) -> Remembered:
    if outcome.value is None:
        return Remembered(failure=outcome.failure)
    ids, known = tuple(outcome.value.item_ids), outcome.value.duplicates
    return Remembered(ids, 0 if outcome.value.replayed else len(ids) - len(known))


def _messages(
    messages: Sequence[Mapping[str, Any]], owner: Owner, turn: str, *, untrusted: bool
) -> list[dict[str, Any]]:
    """Return messages to store, without empty ones; their ids are made of what they say and where.

    So a turn that is retried stores what it said before only once, and another answer beside the first.
    """
    told: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for message in messages:
        role, text = str(message["role"]), storable(str(message["content"]))
        if is_blank(text):
            continue
        known = json.dumps([message.get("id") or turn, role, text])
        seen[known] = seen.get(known, 0) + 1
        digest = hashlib.blake2b(f"{known}{seen[known]}".encode(), digest_size=16)
        entry = {"role": role, "content": text, "message_id": digest.hexdigest()}
        speaker = message.get("name") or (owner.agent if role == "assistant" else None)
        trust = message.get("trust") or (Trust.UNTRUSTED if untrusted and role == "assistant" else None)
        given = {"name": speaker, "chat_time": message.get("chat_time"), "trust": trust}
        told.append(entry | {name: value for name, value in given.items() if value is not None})
    return told


def storable(text: str) -> str:
    """Return text without what no store keeps: NUL and lone surrogates."""
    return _UNSTORABLE.sub("\ufffd", text)


def missing_extra(module: str, extra: str, error: ImportError) -> ImportError:
    """Return the error of a module of this package whose framework is not installed."""
    needed = (error.name or extra).partition(".")[0]
    return ImportError(
        f"memos.integrations.{module} needs the package {needed}: pip install 'hippocube[{extra}]'", name=error.name
    )
