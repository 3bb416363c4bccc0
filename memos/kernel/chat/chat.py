"""`MemOS.chat`: answer with memories, raise the heat of what the answer cites, and store the exchange.

An answer that failed or was interrupted stores nothing and raises no heat.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Self, Unpack
from zoneinfo import ZoneInfo

from memos.core.identities import Right
from memos.core.ports import ChatReply, ChatRequest
from memos.core.text.matching import stems
from memos.core.text.validation import MAX_MESSAGE_BYTES, check_text
from memos.core.types import AddReceipt, Json, Mode, Trust
from memos.errors import BackendUnavailable, InvalidInput, MemosError, NotFound
from memos.kernel.chat.prompts import Recalling, history_of, request_of
from memos.kernel.chat.results import (
    ChatOptions,
    ChatPrompt,
    ChatResult,
    PromptMessage,
    Question,
    Recalled,
    RecallOptions,
    Reference,
)
from memos.kernel.context import Context
from memos.kernel.local_models import Models
from memos.kernel.memories import Memories
from memos.kernel.tiers import Tiers
from memos.llm.client import LLMClient
from memos.llm.usage import UsageMeter
from memos.reader.arguments import info_of, member_of, tags_of

_MARKS = re.compile(r"[ \t]{0,8}\[m\d{1,4}(?:\s{0,3}[,;]\s{0,3}m?\d{1,4}){0,50}\]")
# What may be the beginning of one; a model that writes on for longer than this means something else.
_BEGUN = re.compile(r"[ \t]{0,8}(?:\[(?:m[\dm,;\s]{0,300})?)?\Z")
_LONGEST = 310


class CitationMarks:
    """Removes citation marks from a streamed answer (or keeps them, with `kept`) and counts the citations."""

    def __init__(self, known: Collection[str], *, kept: bool = False) -> None:
        self._known = set(known)
        self._kept = kept
        self._held = ""
        self._begun = False
        self.cited: dict[str, None] = {}  # the known marks so far, in the order of their first use

    def feed(self, piece: str) -> str:
        """Return the part of the text so far that can be shown."""
        text = self._held + piece
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST))
        held = len(text) if begun is None else begun.start()
        self._held = text[held:]
        return self._told(text[:held])

    def end(self) -> str:
        """Return the rest, without trailing white space."""
        text, self._held = self._held, ""
        return self._told(text).rstrip()

    def _told(self, text: str) -> str:
        told = _MARKS.sub(self._cite, text)
        told = told if self._begun else told.lstrip()
        self._begun = self._begun or bool(told)
        return told

    def _cite(self, found: re.Match[str]) -> str:
        known = [mark for number in re.findall(r"\d+", found[0]) if (mark := f"m{int(number)}") in self._known]
        self.cited |= dict.fromkeys(known)
        return found[0] if self._kept or not known else ""


def without_marks(text: str, known: Collection[str], *, kept: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return an answer without its citation marks, and the marks."""
    marks = CitationMarks(known, kept=kept)
    return (marks.feed(text) + marks.end()).rstrip(), tuple(marks.cited)


log = logging.getLogger("memos.chatting")

_Asking = Callable[..., Generator[str | ChatReply, None, None]]


@dataclass(frozen=True, slots=True)
class _Ready:
    question: Question
    asker: LLMClient
    cube: str
    recalled: Recalled
    request: ChatRequest

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(reference.mark for reference in self.recalled.shown)

    def meter(self) -> UsageMeter:
        return UsageMeter("chat", cube=self.cube)


class Chat:
    """Chats of one open installation: `memos.chat("…")` and `memos.chat.stream("…")`. Thread-safe."""

    def __init__(
        self, context: Context, models: Models, memories: Memories, tiers: Tiers, recalling: Recalling
    ) -> None:
        self._context = context
        self._models = models
        self._memories = memories
        self._tiers = tiers
        self._recalling = recalling

    def __call__(self, query: str, **options: Unpack[ChatOptions]) -> ChatResult:
        """Answer a question with the chat model and memories, and store the exchange; after an error nothing is.

        The options are the fields of `Question`. Raises: InvalidInput, NotFound, PermissionDenied, ModelError,
        BackendUnavailable (also without a chat model), BackendTimeout.
        """
        ready = self._ready(Question(query, **options))
        began = time.perf_counter()
        reply = ready.asker.chat(ready.request, meter=ready.meter())
        text, cited = without_marks(reply.text, ready.marks, kept=ready.question.marks)
        return self._finish(ready, reply, text or reply.text, cited, time.perf_counter() - began)

    def stream(self, query: str, **options: Unpack[ChatOptions]) -> ChatStream:
        """Stream the answer; the exchange is stored once it is complete and consumed. Raises as a call, at once."""
        ready = self._ready(Question(query, **options))
        return ChatStream(self._pieces(ready, ready.asker.stream))

    def steps(self, query: str, **options: Unpack[ChatOptions]) -> ChatStream:
        """Return the answer in cancellable steps, for callers that want only the result. Raises as a call."""
        ready = self._ready(Question(query, **options))
        return ChatStream(self._pieces(ready, ready.asker.steps))

    def recall(self, query: str, *, marks: bool = False, **options: Unpack[RecallOptions]) -> Recalled:
        """Return the memory section for a question, for callers with own models. Raises: InvalidInput, NotFound."""
        return self._recalling(Question(check_text("query", query, MAX_MESSAGE_BYTES), **options), marks=marks)

    def prompt(self, query: str, **options: Unpack[ChatOptions]) -> ChatPrompt:
        """Return what a chat would send to the model, which need not be configured. Nothing is sent or stored.

        Raises: InvalidInput, NotFound.
        """
        question = Question(query, **options)
        asker = self._models.chat_named(question.model)
        recalled, request = self._prepare(question)
        return ChatPrompt(
            tuple(PromptMessage(message.role, message.content) for message in request.messages),
            None if asker is None else asker.model,
            recalled.shown,
            recalled.tokens,
            request.estimated_tokens,
        )

    def model(self) -> str | None:
        """Return the name of the model that answers, None if none is configured."""
        asker = self._models.chat_named(None)
        return None if asker is None else asker.model

    def check_store(self, cube: str, *, actor: str) -> None:
        """Check that an actor may store exchanges in a cube. Raises: NotFound, PermissionDenied, Conflict."""
        self._context.scopes.check([cube], actor, right=Right.WRITE)

    def _ready(self, question: Question) -> _Ready:
        context = self._context
        asker = self._models.chat_named(question.model)
        if asker is None:
            raise BackendUnavailable(
                "No language model is configured. Set MEMOS_CHAT_MODEL__BASE_URL and MEMOS_CHAT_MODEL__MODEL, or set "
                "MEMOS_CHAT_MODEL__MODEL to local:PATH, for the process that opens this installation, and restart it.",
                permanent=True,
            )
        _check_query(question)
        scope = context.scopes.check(question.cubes, question.actor)
        cube = scope.cubes[0] if question.store_in is None else question.store_in
        if question.store:  # before anything is paid for
            self.check_store(cube, actor=question.actor)
            tags_of(question.tags)
            info_of(question.info)
            member_of("mode", question.mode, Mode)
        return _Ready(question, asker, cube, *self._prepare(question))

    def _prepare(self, question: Question) -> tuple[Recalled, ChatRequest]:
        _check_query(question)
        scope = self._context.scopes.check(question.cubes, question.actor)
        history = history_of(question, ZoneInfo(scope.time_zone), self._context.clock.now())
        if history:
            known = {question.query, *(message.content for message in history)}
            question = replace(question, recent=False, known=known)
        recalled = self._recalling(question, marks=True)
        return recalled, request_of(question, recalled, history, cube=scope.cubes[0])

    def _pieces(self, ready: _Ready, asked: _Asking) -> Generator[str, None, ChatResult]:
        began = time.perf_counter()
        marks = CitationMarks(ready.marks, kept=ready.question.marks)
        reply: ChatReply | None = None
        with closing(asked(ready.request, meter=ready.meter())) as pieces:
            for piece in pieces:
                if isinstance(piece, ChatReply):
                    reply = piece
                elif (shown := marks.feed(piece)) or not piece:
                    yield shown
        if shown := marks.end():
            yield shown
        assert reply is not None  # the port's contract
        text, cited = without_marks(reply.text, ready.marks, kept=ready.question.marks)
        return self._finish(ready, reply, text or reply.text, cited, time.perf_counter() - began)

    def _finish(self, ready: _Ready, reply: ChatReply, text: str, marks: Sequence[str], seconds: float) -> ChatResult:
        by_mark = {reference.mark: reference for reference in ready.recalled.shown}
        told = f"{ready.question.query} {text}"
        found = (by_mark[mark] for mark in marks)
        cited = tuple({each.item: each for each in found if _may_support(each.memory, told)}.values())
        self._count(cited, ready.question.actor)
        began = time.perf_counter()
        receipt, not_stored = None, None
        if ready.question.store:
            plain, _ = without_marks(reply.text, ready.marks)
            receipt, not_stored = self._store(ready, plain or reply.text, cited)
        timings = {
            **ready.recalled.timings_ms,
            "model": round(seconds * 1000, 2),
            "store": round((time.perf_counter() - began) * 1000, 2),
        }
        return ChatResult(
            text,
            ready.asker.model,
            cited,
            ready.recalled.shown,
            receipt,
            not_stored,
            ready.recalled.tokens,
            reply.tokens.prompt,
            reply.tokens.completion,
            reply.tokens.estimated,
            timings,
            reply.activation,
            reply.adapter,
        )

    def _count(self, cited: Sequence[Reference], actor: str) -> None:
        by_cube: dict[str, list[str]] = {}
        for reference in cited:
            by_cube.setdefault(reference.cube, []).append(reference.item)
        for cube, ids in by_cube.items():
            try:
                self._tiers.used(ids, cube=cube, actor=actor)
            except (NotFound, BackendUnavailable) as error:  # dropped, or closed, while the model was answering
                log.info("citations were not counted: %s", error.code)

    def _store(self, ready: _Ready, answer: str, cited: Sequence[Reference]) -> tuple[AddReceipt | None, str | None]:
        question = ready.question
        # The answer may repeat untrusted text, so it must not be stored as trusted.
        trust = str(Trust.UNTRUSTED if ready.recalled.untrusted else Trust.TRUSTED)
        said: list[dict[str, Json]] = [
            {"role": "user", "content": question.query},
            {
                "role": "assistant",
                "content": answer,
                "trust": trust,
                "recalled": list(ready.recalled.ids),
                "cited": [reference.item for reference in cited],
            },
        ]
        try:
            receipt = self._memories.add(
                said,
                cube=ready.cube,
                actor=question.actor,
                conversation=question.conversation,
                tags=question.tags,
                info=question.info,
                mode=question.mode,
            )
        except MemosError as error:
            log.warning("an exchange was answered but not stored: %s", error.code)
            return None, str(error)
        return receipt, None


def _may_support(memory: str, told: str) -> bool:
    """Return False if a memory shares no word with a question and its answer: a small model cites whatever is there."""
    if not (memory.isascii() and told.isascii()):
        return True  # an answer in another language than the memory shares none
    words, others = stems(memory), stems(told)
    return not words or not others or not words.isdisjoint(others)


def _check_query(question: Question) -> None:
    if not check_text("query", question.query, MAX_MESSAGE_BYTES).strip():
        raise InvalidInput("query", "must not be empty")


class ChatStream:
    """A streamed answer; `result` is set after the last piece. Closed earlier, nothing is stored."""

    def __init__(self, pieces: Generator[str, None, ChatResult]) -> None:
        self._pieces = pieces
        self.result: ChatResult | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not (piece := self.step()):
            pass
        return piece

    def step(self) -> str:
        """Return the next piece, or "" after each step of reading the prompt. Raises: StopIteration (at the end)."""
        try:
            return next(self._pieces)
        except StopIteration as ended:
            self.result = self.result or ended.value
            raise StopIteration from None

    def close(self) -> None:
        """Cancel the answer; safe to call twice."""
        self._pieces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
