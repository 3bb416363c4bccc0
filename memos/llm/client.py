"""Asks a language model and returns what can be used: free text, or an object that fits a schema; else an error.

An answer that does not fit is shown to the model once, with what is wrong. Good answers are remembered.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from memos.core.ports import ChatMessage, ChatModel, ChatReply, ChatRequest
from memos.core.settings import ChatSettings, Purpose, Settings
from memos.core.tokens import Tokens
from memos.core.types import Json
from memos.errors import BackendUnavailable, MemosError, ModelError, UnfitAnswer
from memos.llm.cache import ResponseCache, key_of
from memos.llm.usage import UsageMeter

# Finds JSON in what a model wrote: bare, fenced, after an introduction, before an afterword. Pure.

# A text with more openings than this is no answer, and trying each could take time that grows with their square.
_MOST_TRIES = 64
_OPENING = re.compile(r"[{\[]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def json_values(text: str) -> Iterator[str]:
    """Yield the JSON objects and lists in a text, outermost ones, in order, each as strict JSON.

    NaN and infinities are no JSON; NUL characters and lone surrogates in strings become U+FFFD.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = 0
    for _ in range(_MOST_TRIES):
        opening = _OPENING.search(text, at)
        if opening is None:
            return
        try:
            value, at = decoder.raw_decode(text, opening.start())
            found = json.dumps(_storable(value), allow_nan=False)  # 1e999 is read as infinity
        except (ValueError, RecursionError):  # also a number of 5,000 digits, and brackets nested too deep
            at = opening.end()
        else:
            yield found


def _storable(value: Json) -> Json:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, dict):
        return {_storable(name): _storable(each) for name, each in value.items()}
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_SHOWN_CHARS = 8_000
_SHOWN_PROBLEMS = 20
_IMAGE_TOKENS = 2_000

Answer = TypeVar("Answer", bound=BaseModel)


Spending = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]
"""Sets tokens aside for a call of a model with a purpose, and is told how many it took. Raises: LimitReached."""


@contextmanager
def free(_: int, __: str) -> Iterator[Callable[[int], None]]:
    """Set nothing aside."""
    yield lambda _: None


def most_tokens(messages: Sequence[ChatMessage], answer: int) -> int:
    """Return more tokens than a question with its answer should take: real ones are longer than two bytes."""
    asked = sum(len(message.content.encode("utf-8", "surrogatepass")) // 2 + 8 for message in messages)
    return asked + sum(_IMAGE_TOKENS * len(message.images) for message in messages) + answer


class LLMClient:
    """A chat model with a memory for its answers; thread-safe. Every call is counted on the caller's meter."""

    def __init__(
        self, model: ChatModel, cache: ResponseCache, spending: Spending | None = None, max_tokens: int = 1_024
    ) -> None:
        self._model = model
        self._cache = cache
        self._spending = spending or free
        self._max_tokens = max_tokens

    @property
    def model(self) -> str:
        """The name of the model asked."""
        return self._model.name

    @property
    def remembered(self) -> tuple[int, int]:
        """How many questions were answered from memory, and how many not."""
        return self._cache.hits, self._cache.misses

    def say(
        self,
        messages: Sequence[ChatMessage],
        *,
        meter: UsageMeter,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> str:
        """Return the model's answer as it is, never empty. Raises: InvalidInput, ModelError, BackendUnavailable."""
        request = ChatRequest(tuple(messages), max_tokens, temperature)
        key, generation = key_of(self.model, request), self._cache.generation
        if (known := self._cache.get(key)) is not None:
            meter.count(self.model, known.tokens, 0.0, cached=True)
            return known.text
        reply = self._complete(request, meter)
        self._cache.put(key, reply, generation)
        return reply.text

    def talk(self, request: ChatRequest, *, meter: UsageMeter) -> ChatReply:
        """Return the model's answer in a talk with a person: never a remembered one, and it is not remembered.

        Raises: ModelError, BackendUnavailable, BackendTimeout.
        """
        return self._complete(request, meter)

    def stream(self, request: ChatRequest, *, meter: UsageMeter) -> Generator[str | ChatReply, None, None]:
        """Yield such an answer piece by piece, and last of all the whole; closed before, it counts as failed.

        Raises: as `talk`.
        """
        asked = most_tokens(request.messages, 0)
        with self._spending(asked + (request.max_tokens or self._max_tokens), meter.purpose) as took:
            started, tokens, failed, begun, shown = time.monotonic(), Tokens(), True, False, 0
            try:
                with closing(self._model.stream(request)) as pieces:
                    for piece in pieces:
                        if isinstance(piece, ChatReply):
                            tokens, failed = piece.tokens, False
                        begun, shown = True, shown + bool(piece)
                        yield piece
            except ModelError as error:
                tokens = error.tokens or Tokens()
                raise
            finally:
                # Who hangs up before the end is not told what it took, and pays for what was asked and shown.
                took(tokens.prompt + tokens.completion or (asked + shown if begun else 0))
                meter.count(self.model, tokens, time.monotonic() - started, failed=failed)

    def steps(self, request: ChatRequest, *, meter: UsageMeter) -> Generator[str | ChatReply, None, None]:
        """Yield last of all the whole of such an answer; before it a model that works here says what it has got.

        So that it can be closed between two steps. Raises: as `talk`.
        """
        if self._model.in_steps:
            yield from self.stream(request, meter=meter)
        else:
            yield self._complete(request, meter)

    def ask(
        self,
        messages: Sequence[ChatMessage],
        schema: type[Answer],
        *,
        meter: UsageMeter,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> Answer:
        """Return an object that fits the schema, after one repair at most.

        Raises: InvalidInput, ModelError (no usable answer, or none that fits), BackendUnavailable, BackendTimeout.
        """
        shape = schema.model_json_schema()
        request = ChatRequest(tuple(messages), max_tokens, temperature, shape, schema.__name__)
        key, generation = key_of(self.model, request), self._cache.generation
        if (known := self._cache.get(key)) is not None:
            try:
                remembered = schema.model_validate_json(known.text)
            except ValidationError:  # another class with the same schema may check more
                self._cache.drop(key)
            else:
                meter.count(self.model, known.tokens, 0.0, cached=True)
                return remembered
        answer, reply = self._fitting(request, schema, meter)
        self._cache.put(key, reply, generation)
        return answer

    def forget(self) -> None:
        """Drop every remembered answer; what is being asked now is not remembered either."""
        self._cache.forget()

    def close(self) -> None:
        """Close the model; safe to call twice."""
        self._model.close()

    def _fitting(self, request: ChatRequest, schema: type[Answer], meter: UsageMeter) -> tuple[Answer, ChatReply]:
        first = self._complete(request, meter)
        answer, text, problem = _read(first.text, schema)
        tokens = first.tokens
        if answer is None:
            second = self._complete(_repair(request, first.text, problem), meter)
            answer, text, problem = _read(second.text, schema)
            tokens = Tokens(
                tokens.prompt + second.tokens.prompt,
                tokens.completion + second.tokens.completion,
                tokens.estimated or second.tokens.estimated,
            )
        if answer is None:
            # Without the problem itself: it quotes the answer, which may be memory text.
            raise UnfitAnswer(
                f"The model {self.model} gave no {schema.__name__}, even when shown what was wrong: use a larger "
                "model, or ask for less at once.",
                tokens=tokens,
            )
        return answer, ChatReply(text, tokens)

    def _complete(self, request: ChatRequest, meter: UsageMeter) -> ChatReply:
        request = replace(request, later=meter.task is not None)
        most = most_tokens(request.messages, request.max_tokens or self._max_tokens)
        with self._spending(most, meter.purpose) as took:
            started = time.monotonic()
            try:
                reply = self._model.complete(request)
            except MemosError as error:
                tokens = (isinstance(error, ModelError) and error.tokens) or Tokens()
                took(tokens.prompt + tokens.completion)
                meter.count(self.model, tokens, time.monotonic() - started, failed=True)
                raise
            took(reply.tokens.prompt + reply.tokens.completion)
            meter.count(self.model, reply.tokens, time.monotonic() - started)
            return reply


def _read(text: str, schema: type[Answer]) -> tuple[Answer | None, str, str]:
    """Return the first value in a text that fits, as an object and as JSON, or what is wrong with the first one."""
    problem = ""
    for value in json_values(text):
        try:
            return schema.model_validate_json(value), value, ""
        except ValidationError as error:
            problem = problem or _told(error)
    return None, "", problem or "There is no complete JSON object in it."


def _told(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "\n".join(
        f"- {'.'.join(map(str, each['loc'])) or 'the whole'}: {each['msg']}" for each in problems[:_SHOWN_PROBLEMS]
    )


def _repair(request: ChatRequest, answer: str, problem: str) -> ChatRequest:
    """Return a request that shows the model its answer and what is wrong with it."""
    shown = answer if len(answer) <= _SHOWN_CHARS else answer[:_SHOWN_CHARS] + " [cut off here]"
    wanted = (
        f"That answer cannot be used:\n{problem[:_SHOWN_CHARS]}\n\nAnswer again, with nothing but one JSON object that "
        f"fits this JSON Schema:\n{json.dumps(request.schema, ensure_ascii=False)}"
    )
    talk = (ChatMessage("assistant", shown), ChatMessage("user", wanted))
    return replace(request, messages=request.messages + talk)


# The askers of an installation, one for each purpose that has a model; opened when first asked for.


CACHE_BYTES = 16 * 2**20
"""Memory for answers of one model that are given again to the same question."""


class LLMClients:
    """Purposes with equal settings share one model, with its limits and its remembered answers. Thread-safe.

    A `given` model serves every purpose but vision, whatever is configured, and stays its owner's to close; so does
    the one that looks at images when it is `given_vision`. `spending` sets tokens aside for each call.
    """

    def __init__(
        self,
        settings: Settings,
        open_model: Callable[[ChatSettings], ChatModel],
        given: ChatModel | None = None,
        given_vision: ChatModel | None = None,
        spending: Spending = free,
    ) -> None:
        self._settings = settings
        self._open_model = open_model
        self._given = given
        self._given_vision = given_vision
        self._spending = spending
        self._opened: dict[tuple[ChatSettings, int | None], LLMClient] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, purpose: Purpose) -> LLMClient | None:
        """Return the asker of a purpose, None when no model is configured for it. Raises: BackendUnavailable."""
        given = self._given_for(purpose)
        settings = self._settings.model_for(purpose) if given is None else self._settings.chat_model
        return None if settings is None else self.of(settings, given)

    def of(self, settings: ChatSettings, given: ChatModel | None = None) -> LLMClient:
        """Return the asker of a model, opened when it is not yet. Raises: BackendUnavailable, InvalidInput."""
        key = settings, None if given is None else id(given)
        with self._lock:
            if self._closed:
                raise BackendUnavailable("This program is closing and asks its models nothing more.", permanent=True)
            if key not in self._opened:
                model = self._open_model(settings) if given is None else given
                self._opened[key] = LLMClient(model, ResponseCache(CACHE_BYTES), self._spending, settings.max_tokens)
            return self._opened[key]

    def has(self, purpose: Purpose) -> bool:
        """Say whether a purpose has a model, without opening it."""
        return self._given_for(purpose) is not None or self._settings.model_for(purpose) is not None

    def _given_for(self, purpose: Purpose) -> ChatModel | None:
        return self._given_vision if purpose == "vision" else self._given

    @property
    def reader(self) -> LLMClient | None:
        """What extracts memories and decides between statements, None without a model."""
        return self.get("reader")

    @property
    def chat(self) -> LLMClient | None:
        """What talks and summarises, None without a model."""
        return self.get("chat")

    @property
    def vision(self) -> LLMClient | None:
        """What describes images, None without a model that is said to see."""
        return self.get("vision")

    @property
    def remembered(self) -> tuple[int, int]:
        """How many questions were answered from memory, and how many not."""
        each = [asker.remembered for asker in self._each()]
        return sum(hits for hits, _ in each), sum(misses for _, misses in each)

    def forget(self) -> None:
        """Drop every remembered answer, after an erasure."""
        for asker in self._each():
            asker.forget()

    def close(self) -> None:
        """Close what was opened; safe to call twice."""
        with self._lock:
            self._closed = True
            mine = [asker for (_, given), asker in self._opened.items() if given is None]
        for asker in mine:
            asker.close()

    def _each(self) -> list[LLMClient]:
        with self._lock:
            return list(self._opened.values())
