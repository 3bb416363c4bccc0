"""Reads an answer that an OpenAI-compatible endpoint streams; what it says of failures is not quoted."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from memos.backends.openai.requests import sendable
from memos.backends.openai.responses import Refused, dig, finished_answer, told_status, where
from memos.core.ports import ChatReply
from memos.core.settings import ChatSettings
from memos.core.streaming import DONE, Answering, EventData
from memos.core.tokens import Tokens, estimate_tokens
from memos.core.types import Json
from memos.errors import BackendUnavailable, MemosError, ModelError


@dataclass(slots=True)
class _Collected:
    """What the events said so far."""

    text: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    refusal: str = ""
    finish: Json = None
    usage: Json = None
    done: bool = False

    def take(self, event: Json) -> str:
        """Add one event; return its text."""
        usage, choice = dig(event, "usage"), dig(event, "choices", 0)
        self.usage = usage if isinstance(usage, dict) else self.usage
        self.finish = dig(choice, "finish_reason") or self.finish
        self.refusal += _text(dig(choice, "delta", "refusal"))
        self.thoughts.append(_text(dig(choice, "delta", "reasoning_content")))
        self.text.append(_text(dig(choice, "delta", "content")))
        return self.text[-1]

    @property
    def message(self) -> dict[str, Json]:
        """Return the message as an answer in one piece would have it."""
        thoughts = "".join(self.thoughts)
        return {"content": "".join(self.text), "refusal": self.refusal, "reasoning_content": thoughts}


def read_stream(
    chunks: Iterable[bytes], prompt_tokens: int, settings: ChatSettings
) -> Generator[str | ChatReply, None, None]:
    """Yield the text of a stream that came with status 200, without thoughts, and last the finished answer.

    Raises: ModelError, BackendUnavailable (it ended without an end).
    """
    collected, answering, events = _Collected(), Answering(), EventData()
    for chunk in chunks:
        for data in _fed(events, chunk, settings):
            if data.strip() == DONE:
                collected.done = True
            elif shown := sendable(answering.feed(collected.take(_event(data, collected, prompt_tokens, settings)))):
                yield shown
        if collected.done:
            break
    if not collected.done and collected.finish is None:
        raise BackendUnavailable(f"{where(settings)} broke off in the middle of its answer: try again.")
    if shown := sendable(answering.end()):
        yield shown
    yield finished_answer(collected.message, collected.finish, collected.usage, prompt_tokens, settings)


def _fed(events: EventData, chunk: bytes, settings: ChatSettings) -> list[str]:
    try:
        return list(events.feed(chunk))
    except ValueError as error:
        raise ModelError(f"{where(settings)} sent something that is no stream: look into its log.") from error


def _event(data: str, collected: _Collected, prompt_tokens: int, settings: ChatSettings) -> Json:
    """Return one event's content. Raises: MemosError when it tells of a failure."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if dig(event, "error") is None:
        return event
    spent = Tokens(prompt_tokens, estimate_tokens("".join(collected.text)), estimated=True)
    raise _told(event, spent, settings)


def _told(event: Json, spent: Tokens, settings: ChatSettings) -> MemosError:
    status = dig(event, "error", "code")
    if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
        told = told_status(status, json.dumps(event).encode(), {}, settings)
        return told.error if isinstance(told, Refused) else told
    return ModelError(f"{where(settings)} failed in the middle of its answer: look into its log.", tokens=spent)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
