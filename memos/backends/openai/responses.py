"""Parse responses of an OpenAI-compatible endpoint.

Endpoints repeat the prompt, or even the key, in error messages; errors here carry only the status and a short code.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from memos.backends.openai.requests import sendable
from memos.core.kv_cache import Activation
from memos.core.ports import ChatReply
from memos.core.settings import ChatSettings
from memos.core.streaming import DONE, EventData, StreamedText, without_reasoning
from memos.core.tokens import Tokens, estimate_tokens
from memos.core.types import Json
from memos.errors import BackendTimeout, BackendUnavailable, InvalidAnswer, MemosError, ModelError

_CODE = re.compile(r"[a-z_]{1,50}")  # a key, or a word of the prompt, would have to look like one
_TOO_LONG = ("context_length", "context length", "context size", "context_size", "context window", "prompt is too long")
_REFUSED = ("content_filter", "content_policy", "content management policy")
_NO_CREDIT = ("insufficient_quota", "billing")
_CUT_OFF = ("length", "max_tokens")
_PASSING = {409, 425, 429, 500, 502, 503, 529}
_MOST_TOKENS = 1_000_000_000


class Refused(Exception):
    """The endpoint took the request for a bad one; written otherwise it may be taken."""

    def __init__(self, complaint: str, error: ModelError) -> None:
        super().__init__(str(error))
        self.complaint = complaint
        self.error = error


class NoSuchModel(BackendUnavailable):
    """The endpoint has no model of the name, or no chat completions where it was asked."""


def read_answer(
    content: bytes, content_type: str, prompt_tokens: int, settings: ChatSettings, words: Sequence[str] = ()
) -> ChatReply:
    if "html" in content_type.lower():
        raise BackendUnavailable(
            f"{where(settings)} answers with a web page; check its BASE_URL, which for most servers ends with /v1.",
            permanent=True,
        )
    body = _parsed(content)
    if dig(body, "choices", 0) is None and isinstance(status := dig(body, "error", "code"), int) and status >= 400:
        raise told_status(status, content, {}, settings)
    message = dig(body, "choices", 0, "message")
    if not isinstance(message, dict):
        raise ModelError(f"{where(settings)} sent an answer that is not a chat completion; check its log.")
    finish = dig(body, "choices", 0, "finish_reason")
    if words and finish in _CUT_OFF:
        finish = None  # the word comes first
    reply = finished_answer(message, finish, dig(body, "usage"), prompt_tokens, settings)
    return replace(reply, probabilities=_probabilities(dig(body, "choices", 0, "logprobs", "content"), words))


def _probabilities(tokens: Json, words: Sequence[str]) -> dict[str, float] | None:
    """Return the probabilities of words at the first token that begins an answer, None if nothing is told of them."""
    first = (
        next((each for each in tokens if str(dig(each, "token")).strip()), None) if isinstance(tokens, list) else None
    )
    told = dig(first, "top_logprobs")
    if not words or not isinstance(told, list):
        return None
    found = dict.fromkeys(words, 0.0)
    for each in told:
        said, logprob = str(dig(each, "token")).strip().casefold(), dig(each, "logprob")
        for word in words:
            if said == word.casefold() and isinstance(logprob, int | float):
                found[word] += math.exp(min(0.0, logprob))
    return found if any(found.values()) else None


def finished_answer(
    message: Mapping[str, Json], finish: Json, usage: Json, prompt_tokens: int, settings: ChatSettings
) -> ChatReply:
    raw = message.get("content")
    text = raw if isinstance(raw, str) else ""
    tokens = _counted(usage, prompt_tokens, text + str(message.get("reasoning_content") or ""))
    answer = sendable(without_reasoning(text)).strip()
    _check_finished(finish, bool(message.get("refusal")), tokens, settings)
    if not answer:
        what = "returned its reasoning but no answer" if text.strip() else "returned an empty answer"
        raise InvalidAnswer(
            f"The model {settings.model} {what}: raise MAX_TOKENS, or use another model.", tokens=tokens
        )
    return ChatReply(answer, tokens, _kept(tokens))


def _check_finished(finish: Json, refused: bool, tokens: Tokens, settings: ChatSettings) -> None:
    model = settings.model
    if finish == "content_filter":
        raise ModelError(f"The endpoint's content filter stopped the model {model}.", permanent=True, tokens=tokens)
    if refused:
        raise ModelError(f"The model {model} refused to answer.", permanent=True, tokens=tokens)
    if finish in _CUT_OFF:
        raise InvalidAnswer(
            f"The answer of the model {model} was cut off after {tokens.completion:,} tokens; raise MAX_TOKENS, or "
            "ask for less at once.",
            tokens=tokens,
        )
    if finish in ("tool_calls", "function_call"):
        raise ModelError(
            f"The model {model} called a tool although none was offered; use another model.", tokens=tokens
        )


def told_status(
    status: int, content: bytes, headers: Mapping[str, str], settings: ChatSettings
) -> BackendUnavailable | ModelError | Refused:
    lowered = content[:20_000].decode("utf-8", "replace").lower()
    shown = f"{status} {_code(content)}".strip()
    if status in (400, 413, 422):
        return _told_bad_request(shown, lowered, status, settings)
    return _told_failure(status, shown, lowered, headers, settings)


def _told_bad_request(shown: str, lowered: str, status: int, settings: ChatSettings) -> ModelError | Refused:
    if status == 413 or any(word in lowered for word in _TOO_LONG):
        return InvalidAnswer(
            f"The request is too long for the model {settings.model} ({shown}); send less text, or start the server "
            "with a longer context.",
            permanent=True,
        )
    if any(word in lowered for word in _REFUSED):
        return ModelError(f"The endpoint's content filter refused the request ({shown}).", permanent=True)
    error = ModelError(
        f"{where(settings)} refused the request ({shown}); check its log. The model {settings.model} may not support "
        "what was requested.",
        permanent=True,
    )
    return Refused(lowered, error)


def _told_failure(
    status: int, shown: str, lowered: str, headers: Mapping[str, str], settings: ChatSettings
) -> BackendUnavailable:
    there = where(settings)
    if status == 401:
        return BackendUnavailable(f"{there} refused the key ({shown}); check API_KEY.", permanent=True)
    if status == 402 or (status == 429 and any(word in lowered for word in _NO_CREDIT)):
        return BackendUnavailable(f"{there} has no credit left for this key ({shown}).", permanent=True)
    if status == 403:
        return BackendUnavailable(
            f"{there} does not allow this key to use the model {settings.model} ({shown}).", permanent=True
        )
    if status == 404:
        return NoSuchModel(
            f"{there} has no model {settings.model}, or no path /chat/completions ({shown}); check MODEL, and "
            "BASE_URL, which for most servers ends with /v1.",
            permanent=True,
        )
    after = retry_after_s(headers)
    if status in (408, 504):
        return BackendTimeout(f"{there} reported a timeout ({shown}); try again later.", retry_after_s=after)
    if status in _PASSING or 505 < status < 600:
        return BackendUnavailable(f"{there} cannot answer now ({shown}); try again later.", retry_after_s=after)
    return BackendUnavailable(f"{there} refused the call ({shown}); check BASE_URL.", permanent=True)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds an endpoint asks to wait, given as such or as a date; None for none or nonsense."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value).astimezone(UTC) - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds and seconds < float("inf") else None


def where(settings: ChatSettings) -> str:
    url = urlsplit(settings.base_url or "")
    return f"The model endpoint {url.scheme}://{url.netloc}"  # some gateways take a secret in the path


def _parsed(content: bytes) -> Json:
    try:
        return json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _code(content: bytes) -> str:
    """Return the endpoint's own code of an error when it looks like one, never a sentence."""
    body = _parsed(content[:20_000])
    for key in ("code", "type"):
        value = dig(body, "error", key)
        if isinstance(value, str) and _CODE.fullmatch(value):
            return value
    return ""


def _counted(usage: Json, prompt_tokens: int, answer: str) -> Tokens:
    """Return what a call took, by the endpoint's count where it gives one."""
    # Source of what is cached: https://platform.openai.com/docs/guides/prompt-caching; vLLM and llama.cpp say the same.
    asked, said = dig(usage, "prompt_tokens"), dig(usage, "completion_tokens")
    if _is_count(asked) and _is_count(said):
        cached = dig(usage, "prompt_tokens_details", "cached_tokens")
        return Tokens(asked, said, cached=min(cached, asked) if _is_count(cached) else None)
    return Tokens(prompt_tokens, estimate_tokens(answer), estimated=True)


def _kept(tokens: Tokens) -> Activation | None:
    if tokens.cached is None:
        return None
    return Activation(tokens.prompt, tokens.cached, "server" if tokens.cached else None)


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS


def dig(value: Json, *path: str | int) -> Json:
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


@dataclass(slots=True)
class _Collected:
    text: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    refusal: str = ""
    finish: Json = None
    usage: Json = None
    done: bool = False

    def take(self, event: Json) -> str:
        usage, choice = dig(event, "usage"), dig(event, "choices", 0)
        self.usage = usage if isinstance(usage, dict) else self.usage
        self.finish = dig(choice, "finish_reason") or self.finish
        self.refusal += _text(dig(choice, "delta", "refusal"))
        self.thoughts.append(_text(dig(choice, "delta", "reasoning_content")))
        self.text.append(_text(dig(choice, "delta", "content")))
        return self.text[-1]

    @property
    def message(self) -> dict[str, Json]:
        thoughts = "".join(self.thoughts)
        return {"content": "".join(self.text), "refusal": self.refusal, "reasoning_content": thoughts}


def read_stream(
    chunks: Iterable[bytes], prompt_tokens: int, settings: ChatSettings
) -> Generator[str | ChatReply, None, None]:
    """Yield the text of a stream that came with status 200, without thoughts, and last the finished answer."""
    collected = _Collected()
    answering = StreamedText()
    events = EventData()
    for chunk in chunks:
        for data in _fed(events, chunk, settings):
            if data.strip() == DONE:
                collected.done = True
            elif shown := sendable(answering.feed(collected.take(_event(data, collected, prompt_tokens, settings)))):
                yield shown
        if collected.done:
            break
    if not collected.done and collected.finish is None:
        raise BackendUnavailable(f"{where(settings)} closed the connection in the middle of its answer; try again.")
    if shown := sendable(answering.end()):
        yield shown
    yield finished_answer(collected.message, collected.finish, collected.usage, prompt_tokens, settings)


def _fed(events: EventData, chunk: bytes, settings: ChatSettings) -> list[str]:
    try:
        return list(events.feed(chunk))
    except ValueError as error:
        raise ModelError(f"{where(settings)} sent an answer that is not an event stream; check its log.") from error


def _event(data: str, collected: _Collected, prompt_tokens: int, settings: ChatSettings) -> Json:
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
    return ModelError(f"{where(settings)} failed in the middle of its answer; check its log.", tokens=spent)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
