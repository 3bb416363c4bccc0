"""Build chat requests for an OpenAI-compatible endpoint, and adapt them to what it refused.

Endpoints differ in the name of the token limit, support for a temperature, ways to enforce JSON, and token counts in
streams.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from memos.core.kv_cache import salt_of
from memos.core.ports import ChatMessage, ChatRequest
from memos.core.settings import ChatSettings
from memos.core.types import Json

Limit = Literal["max_tokens", "max_completion_tokens"]
JsonMode = Literal["json_schema", "json_object", "none"]

_WEAKER: Mapping[JsonMode, JsonMode] = {"json_schema": "json_object", "json_object": "none"}
_UNSENDABLE = re.compile("[\0\ud800-\udfff]")
_MOST_SCHEMAS = 1000
_TOP_LOGPROBS = 5  # the most that every endpoint with them gives


@dataclass(frozen=True, slots=True)
class Dialect:
    """The features an endpoint supports for one schema, as learned from its refusals."""

    limit: Limit = "max_tokens"
    temperature: bool = True
    usage: bool = True
    logprobs: bool = True
    json: JsonMode = "json_schema"

    def after(self, complaint: str, first: Dialect, *, wants_json: bool, wants_words: bool = False) -> Dialect | None:
        """Return what to try after a refusal, None when nothing is left; `first` is what the call began with."""
        named = complaint.lower()
        if "max_tokens" in named or "max_completion_tokens" in named:
            if self.limit == first.limit:
                return replace(self, limit="max_completion_tokens" if self.limit == "max_tokens" else "max_tokens")
        elif ("temperature" in named or "top_p" in named) and self.temperature:
            return replace(self, temperature=False)
        elif "stream_options" in named and self.usage:
            return replace(self, usage=False)
        elif "logprobs" in named and self.logprobs:
            return replace(self, logprobs=False)
        # Not every endpoint names the field it does not know, so any other refusal may mean the format.
        if wants_json and self.json != "none":
            return replace(self, json=_WEAKER[self.json])
        if wants_words and self.logprobs:
            return replace(self, logprobs=False)
        return None


class Dialects:
    """Remembers what an endpoint took; the way to JSON for each schema, since a schema may be refused alone."""

    def __init__(self) -> None:
        self._common = Dialect()
        self._json: dict[str, JsonMode] = {}
        self._lock = threading.Lock()

    def known(self, request: ChatRequest) -> Dialect:
        with self._lock:
            return replace(self._common, json=self._json.get(_digest(request.schema), "json_schema"))

    def learn(self, request: ChatRequest, dialect: Dialect) -> None:
        with self._lock:
            self._common = replace(dialect, json="json_schema")
            if request.schema is not None:
                if len(self._json) >= _MOST_SCHEMAS:
                    self._json.clear()
                self._json[_digest(request.schema)] = dialect.json


def payload(request: ChatRequest, settings: ChatSettings, dialect: Dialect, *, stream: bool = False) -> dict[str, Any]:
    texts = [sendable(each.content) for each in request.messages]
    body: dict[str, Any] = {"model": settings.model}
    if stream:
        body |= {"stream": True, **({"stream_options": {"include_usage": True}} if dialect.usage else {})}
    body[dialect.limit] = request.max_tokens or settings.max_tokens
    if dialect.temperature:
        body["temperature"] = request.temperature or 0.0
        if request.top_p is not None:
            body["top_p"] = request.top_p
    if request.words and dialect.logprobs:
        body |= {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
    if request.schema is not None:
        if dialect.json == "json_schema":
            strict = strict_schema(request.schema)
            shape = {"name": request.schema_name, "schema": strict or request.schema, "strict": strict is not None}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        else:
            # In the last message, since some models' templates take no system message, or only a first one.
            texts[-1] += in_words(request.schema)
        if dialect.json == "json_object":
            body["response_format"] = {"type": "json_object"}
    if settings.prefix_cache == "salt" and request.prefix is not None:
        body["cache_salt"] = salt_of(request.prefix.cube, settings.api_key)
    body["messages"] = [
        {"role": each.role, "content": _content(text, each)} for each, text in zip(request.messages, texts, strict=True)
    ]
    return body


def in_words(schema: Mapping[str, Json]) -> str:
    told = json.dumps(schema, ensure_ascii=False)
    return f"\n\nAnswer with nothing but one JSON object that fits this JSON Schema:\n{told}"


def _content(text: str, message: ChatMessage) -> str | list[dict[str, Any]]:
    if not message.images:
        return text
    urls = [f"data:{image.media_type};base64,{b64encode(image.data).decode()}" for image in message.images]
    return [{"type": "text", "text": text}, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]


def sendable(text: str) -> str:
    """Return text that UTF-8 can carry and that no server cuts short: lone surrogates and NUL become U+FFFD."""
    return _UNSENDABLE.sub("\ufffd", text)


def strict_schema(schema: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return the schema as strict mode wants it: every property required and no others; None if it cannot be."""
    # Source: https://platform.openai.com/docs/guides/structured-outputs (supported schemas).
    try:
        return dict(_strict(schema))
    except _FreeForm:
        return None


class _FreeForm(Exception):
    pass


def _strict(node: Json) -> Json:
    if not isinstance(node, Mapping):
        return node
    if "$ref" in node:
        return {"$ref": node["$ref"]}  # strict mode allows no sibling keys
    out: dict[str, Json] = {}
    for word, value in node.items():
        match word:
            case "default" | "discriminator" | "additionalProperties":
                continue
            case "properties" | "$defs":
                out[word] = {name: _strict(each) for name, each in value.items()}
            case "anyOf" | "oneOf" | "allOf" | "prefixItems":
                out["anyOf" if word == "oneOf" else word] = [_strict(each) for each in value]
            case _:
                out[word] = _strict(value)
    if node.get("type") == "object":
        if not node.get("properties") or node.get("additionalProperties"):
            raise _FreeForm
        out |= {"additionalProperties": False, "required": list(node["properties"])}
    return out


def _digest(schema: Mapping[str, Json] | None) -> str:
    return hashlib.sha256(json.dumps(schema, sort_keys=True, default=str).encode()).hexdigest()
