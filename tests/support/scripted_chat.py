"""A chat model that answers from a script, for tests of what asks models: no mock, it keeps the port's contract."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterable

from memos.backends.openai.chat import with_small_images
from memos.backends.openai.requests import sendable
from memos.core.ports import ChatReply, ChatRequest
from memos.core.tokens import Tokens, estimate_tokens
from memos.errors import BackendUnavailable, InvalidAnswer
from memos.reader.facts.extractor import KNOWN, WRITTEN

Answer = str | ChatReply | Exception
Script = Iterable[Answer] | Callable[[ChatRequest], Answer]


PASSING = json.dumps(
    {
        "facts": [
            {"type": "user", "subject": "Ada", "text": f"Ada said: {text}", "quote": text, "message": number}
            for number, (text, word) in enumerate(WRITTEN, start=1)
            if word is not None
        ]
    }
)
"""An answer that passes the examination of what writes facts."""


def is_writing_examination(request: ChatRequest) -> bool:
    return all(text in request.messages[-1].content for text, _ in WRITTEN)


def is_known_sentence(request: ChatRequest) -> bool | None:
    """Return whether a sentence of the examination lasts, None for any other question."""
    return dict(KNOWN).get(request.messages[-1].content.removeprefix("Sentence: ")) if request.words else None


class ScriptedChat:
    """Gives a list's answers in order, or a function's; an exception is raised, an empty answer is an InvalidAnswer.

    Tokens are estimated unless a `ChatReply` says them. `requests` are the calls that reached it. With `writes` it
    passes the examinations that precede the first fine reading, which are then neither scripted nor among `requests`.
    """

    def __init__(self, script: Script, name: str = "scripted", *, writes: bool = True) -> None:
        self._answer_to = script if callable(script) else None
        self._answers = iter(()) if callable(script) else iter(script)
        self._name = name
        self._writes = writes
        self._lock = threading.Lock()
        self._closed = False
        self.requests: list[ChatRequest] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def in_steps(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return self._closed

    def complete(self, request: ChatRequest) -> ChatReply:
        if self._closed:
            raise BackendUnavailable("This scripted model is closed.", permanent=True)
        with_small_images(request)
        if self._writes and is_writing_examination(request):
            return ChatReply(PASSING, Tokens())
        if self._writes and (lasts := is_known_sentence(request)) is not None:
            return ChatReply("Fact" if lasts else "Nothing", Tokens())
        with self._lock:
            self.requests.append(request)
            answer = None if self._answer_to else next(self._answers, None)
        if self._answer_to is not None:
            answer = self._answer_to(request)  # outside the lock: it may wait for another call
        if answer is None:
            raise AssertionError(f"the script has no answer left for request {len(self.requests)}")
        if isinstance(answer, Exception):
            raise answer
        reply = answer if isinstance(answer, ChatReply) else self._reply(request, answer)
        text = sendable(reply.text).strip()
        if not text:
            raise InvalidAnswer("The scripted model gave an empty answer.", tokens=reply.tokens)
        return ChatReply(text, reply.tokens, probabilities=reply.probabilities)

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        reply = self.complete(request)
        half = len(reply.text) // 2
        yield from (piece for piece in (reply.text[:half], reply.text[half:]) if piece)
        yield reply

    def close(self) -> None:
        self._closed = True

    @staticmethod
    def _reply(request: ChatRequest, text: str) -> ChatReply:
        return ChatReply(text, Tokens(request.estimated_tokens, estimate_tokens(text), estimated=True))
