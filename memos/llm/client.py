"""Ask a language model for text or for an object that fits a schema, with one repair and a cache of valid answers."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from memos.core.ports import ChatMessage, ChatModel, ChatReply, ChatRequest
from memos.core.settings import ChatSettings, Purpose, Settings
from memos.core.tokens import Tokens
from memos.core.types import Json
from memos.errors import BackendUnavailable, InvalidAnswer, MemosError, ModelError
from memos.llm.usage import UsageMeter

_ENTRY_BYTES = 400  # a key, a reply and their entry in the dictionary, in addition to the text


class ResponseCache:
    """A least-recently-used cache of answers, limited in bytes and entries. Thread-safe."""

    def __init__(self, max_bytes: int, max_entries: int = 10_000) -> None:
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._replies: OrderedDict[str, ChatReply] = OrderedDict()
        self._bytes = 0
        self._generation = 0
        self.hits = self.misses = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._replies)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    @property
    def generation(self) -> int:
        """The number to take before a request and to pass to `put` with its answer."""
        return self._generation

    def get(self, key: str) -> ChatReply | None:
        with self._lock:
            if (reply := self._replies.get(key)) is None:
                self.misses += 1
            else:
                self.hits += 1
                self._replies.move_to_end(key)
            return reply

    def put(self, key: str, reply: ChatReply, generation: int) -> None:
        """Store an answer, unless the cache was emptied since its request was made."""
        size = _size(reply)
        with self._lock:
            if generation != self._generation or size > self._max_bytes or self._max_entries < 1:
                return  # an erase came in between; this may be an answer about erased text
            self._drop(key)
            self._replies[key] = reply
            self._bytes += size
            while self._bytes > self._max_bytes or len(self._replies) > self._max_entries:
                _, oldest = self._replies.popitem(last=False)
                self._bytes -= _size(oldest)

    def drop(self, key: str) -> None:
        with self._lock:
            self._drop(key)

    def forget(self) -> None:
        """Drop every answer; what is being asked now is not kept either."""
        with self._lock:
            self._replies.clear()
            self._bytes = 0
            self._generation += 1

    def _drop(self, key: str) -> None:
        if (old := self._replies.pop(key, None)) is not None:
            self._bytes -= _size(old)


def key_of(model: str, request: ChatRequest) -> str:
    messages = [
        (message.role, message.content, *(hashlib.sha256(image.data).hexdigest() for image in message.images))
        for message in request.messages
    ]
    options = request.max_tokens, request.temperature, request.schema, request.schema_name, request.top_p, request.words
    # ASCII escapes keep lone surrogates apart and encodable.
    return hashlib.sha256(json.dumps((model, messages, *options), sort_keys=True).encode()).hexdigest()


def _size(reply: ChatReply) -> int:
    return _ENTRY_BYTES + len(reply.text.encode("utf-8", "surrogatepass"))


# A text with more openings than this is no answer, and trying each could take time that grows with their square.
_MOST_TRIES = 64
_WORD = re.compile(r"\W*(\w+)")
_WORD_TOKENS = 8  # some models begin with a mark, or a blank
_LEAST_PROBABILITY = 0.5
_OPENING = re.compile(r"[{\[]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def json_values(text: str) -> Iterator[str]:
    # NaN and infinities are not JSON; NUL characters and lone surrogates become U+FFFD.
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
    raise ValueError(f"{name} is not JSON")


_SHOWN_CHARS = 8_000
_SHOWN_PROBLEMS = 20
_IMAGE_TOKENS = 2_000

Answer = TypeVar("Answer", bound=BaseModel)


Spending = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]
"""Reserves tokens for a model call with a purpose, and yields a callback for the tokens used. Raises: LimitReached."""


@contextmanager
def unlimited(_: int, __: str) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


def most_tokens(messages: Sequence[ChatMessage], answer: int) -> int:
    """Return an upper bound of the tokens of a question and its answer: a token is at least two bytes."""
    asked = sum(len(message.content.encode("utf-8", "surrogatepass")) // 2 + 8 for message in messages)
    return asked + sum(_IMAGE_TOKENS * len(message.images) for message in messages) + answer


class LLMClient:
    """A chat model with a cache of its answers; every call is counted on the caller's meter. Thread-safe."""

    def __init__(
        self, model: ChatModel, cache: ResponseCache, spending: Spending | None = None, max_tokens: int = 1_024
    ) -> None:
        self._model = model
        self._cache = cache
        self._spending = spending or unlimited
        self._max_tokens = max_tokens

    @property
    def model(self) -> str:
        return self._model.name

    @property
    def cache_counts(self) -> tuple[int, int]:
        return self._cache.hits, self._cache.misses

    def complete_text(
        self,
        messages: Sequence[ChatMessage],
        *,
        meter: UsageMeter,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> str:
        request = ChatRequest(tuple(messages), max_tokens, temperature)
        key, generation = key_of(self.model, request), self._cache.generation
        if (known := self._cache.get(key)) is not None:
            meter.count(self.model, known.tokens, 0.0, cached=True)
            return known.text
        reply = self._complete(request, meter)
        self._cache.put(key, reply, generation)
        return reply.text

    def complete_choice(
        self, messages: Sequence[ChatMessage], words: tuple[str, ...], *, meter: UsageMeter
    ) -> Mapping[str, float]:
        """Return how probable each word is as the answer; without probabilities, 1 for the one answered.

        Raises: InvalidAnswer (another answer than one of `words`), BackendUnavailable, ModelError.
        """
        request = ChatRequest(tuple(messages), _WORD_TOKENS, 0.0, words=words)
        key, generation = key_of(self.model, request), self._cache.generation
        if (known := self._cache.get(key)) is not None:
            meter.count(self.model, known.tokens, 0.0, cached=True)
            return known.probabilities or {}
        reply = self._complete(request, meter)
        found = reply.probabilities or _chosen(reply.text, words)
        if sum(found.values()) < _LEAST_PROBABILITY:
            raise InvalidAnswer(
                f"The model {self.model} answered with another word than {', '.join(words)}; use a larger model.",
                tokens=reply.tokens,
            )
        self._cache.put(key, replace(reply, probabilities=found), generation)
        return found

    def chat(self, request: ChatRequest, *, meter: UsageMeter) -> ChatReply:
        """Return the answer to a chat request; never cached."""
        return self._complete(request, meter)

    def stream(self, request: ChatRequest, *, meter: UsageMeter) -> Generator[str | ChatReply, None, None]:
        """Yield the answer in pieces and finally the whole reply; closing early counts as a failed call."""
        meter.check()
        asked = most_tokens(request.messages, 0)
        with self._spending(asked + (request.max_tokens or self._max_tokens), meter.purpose) as took:
            started = time.monotonic()
            tokens = Tokens()
            failed = True
            begun = False
            shown = 0
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
                # A stream closed early reports no usage, so charge for the prompt and the text shown.
                took(tokens.prompt + tokens.completion or (asked + shown if begun else 0))
                meter.count(self.model, tokens, time.monotonic() - started, failed=failed)

    def steps(self, request: ChatRequest, *, meter: UsageMeter) -> Generator[str | ChatReply, None, None]:
        """Yield a local model's progress and finally the whole reply, so that a caller can stop in between."""
        if self._model.in_steps:
            yield from self.stream(request, meter=meter)
        else:
            yield self._complete(request, meter)

    def complete_json(
        self,
        messages: Sequence[ChatMessage],
        schema: type[Answer],
        *,
        meter: UsageMeter,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> Answer:
        """Return an object that fits `schema`; an invalid answer is sent back for repair once."""
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

    def ask(self, messages: Sequence[ChatMessage], schema: type[Answer], **options: Any) -> Answer:
        """Call `complete_json`, as this was called before. Deprecated."""
        warnings.warn("LLMClient.ask is now called complete_json.", DeprecationWarning, stacklevel=2)
        return self.complete_json(messages, schema, **options)

    def forget(self) -> None:
        self._cache.forget()

    def close(self) -> None:
        self._model.close()

    def _fitting(self, request: ChatRequest, schema: type[Answer], meter: UsageMeter) -> tuple[Answer, ChatReply]:
        first = self._complete(request, meter)
        answer, text, problem = _read(first.text, schema)
        tokens = first.tokens
        if answer is None:
            second = self._complete(_repair(request, first.text, problem), meter)
            answer, text, problem = _read(second.text, schema)
            prompt, completion, estimated, _ = second.tokens
            tokens = Tokens(tokens.prompt + prompt, tokens.completion + completion, tokens.estimated or estimated)
        if answer is None:
            # Without the problem itself: it quotes the answer, which may be memory text.
            raise InvalidAnswer(
                f"The model {self.model} returned no valid {schema.__name__}, even after a correction; use a larger "
                "model, or ask for less at once.",
                tokens=tokens,
            )
        return answer, ChatReply(text, tokens)

    def _complete(self, request: ChatRequest, meter: UsageMeter) -> ChatReply:
        meter.check()
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


def _chosen(text: str, words: Sequence[str]) -> dict[str, float]:
    said = _WORD.match(text)
    return {word: float(said is not None and said[1].casefold() == word.casefold()) for word in words}


def _read(text: str, schema: type[Answer]) -> tuple[Answer | None, str, str]:
    problem = ""
    for value in json_values(text):
        try:
            return schema.model_validate_json(value), value, ""
        except ValidationError as error:
            problem = problem or _told(error)
    return None, "", problem or "It contains no complete JSON object."


def _told(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "\n".join(
        f"- {'.'.join(map(str, each['loc'])) or 'the whole'}: {each['msg']}" for each in problems[:_SHOWN_PROBLEMS]
    )


def _repair(request: ChatRequest, answer: str, problem: str) -> ChatRequest:
    shown = answer if len(answer) <= _SHOWN_CHARS else answer[:_SHOWN_CHARS] + " [cut off here]"
    wanted = (
        f"That answer cannot be used:\n{problem[:_SHOWN_CHARS]}\n\nAnswer again, with nothing but one JSON object that "
        f"fits this JSON Schema:\n{json.dumps(request.schema, ensure_ascii=False)}"
    )
    talk = (ChatMessage("assistant", shown), ChatMessage("user", wanted))
    return replace(request, messages=request.messages + talk)


CACHE_BYTES = 16 * 2**20
"""Memory for answers of one model that are given again to the same question."""


class LLMClients:
    """Clients by purpose; equal settings share one client, with its limits and cache. Thread-safe."""

    # A `given` model serves every purpose but vision, whatever is configured; the caller closes it. `given_vision` does
    # the same for vision. `spending` reserves tokens for each call.

    def __init__(
        self,
        settings: Settings,
        open_model: Callable[[ChatSettings], ChatModel],
        given: ChatModel | None = None,
        given_vision: ChatModel | None = None,
        spending: Spending = unlimited,
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
        given = self._given_for(purpose)
        settings = self._settings.model_for(purpose) if given is None else self._settings.chat_model
        return None if settings is None else self.of(settings, given)

    def of(self, settings: ChatSettings, given: ChatModel | None = None) -> LLMClient:
        key = settings, None if given is None else id(given)
        with self._lock:
            if self._closed:
                raise BackendUnavailable("This process is shutting down and calls no model any more.", permanent=True)
            if key not in self._opened:
                model = self._open_model(settings) if given is None else given
                self._opened[key] = LLMClient(model, ResponseCache(CACHE_BYTES), self._spending, settings.max_tokens)
            return self._opened[key]

    def has(self, purpose: Purpose) -> bool:
        return self._given_for(purpose) is not None or self._settings.model_for(purpose) is not None

    def _given_for(self, purpose: Purpose) -> ChatModel | None:
        return self._given_vision if purpose == "vision" else self._given

    @property
    def reader(self) -> LLMClient | None:
        return self.get("reader")

    @property
    def chat(self) -> LLMClient | None:
        return self.get("chat")

    @property
    def vision(self) -> LLMClient | None:
        return self.get("vision")

    @property
    def cache_counts(self) -> tuple[int, int]:
        each = [asker.cache_counts for asker in self._each()]
        return sum(hits for hits, _ in each), sum(misses for _, misses in each)

    def forget(self) -> None:
        for asker in self._each():
            asker.forget()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            mine = [asker for (_, given), asker in self._opened.items() if given is None]
        for asker in mine:
            asker.close()

    def _each(self) -> list[LLMClient]:
        with self._lock:
            return list(self._opened.values())
