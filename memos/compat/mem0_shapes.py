"""mem0's arguments and results as those of this storage, and back: scopes, filters, messages, memories. Pure."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

from pydantic import SecretStr

from memos.core.settings import ChatSettings, Settings
from memos.core.types import RELEVANT, Json
from memos.errors import InvalidInput, NotFound

log = logging.getLogger("memos.compat")

USUAL = 0.1
"""mem0's usual threshold of a score, which is our usual relevance of 0.03."""

SCOPES = ("user_id", "agent_id", "run_id")
"""What says whose a memory is."""

_SCALE = 0.6566  # the logarithm of 0.1 over that of 0.03
_ENDS = "expires_on"  # the expiration date as a number, which filters can compare
_KEPT = (*SCOPES, "actor_id")
_INNER = {*_KEPT, "role", "expiration_date", _ENDS}
_ROLES = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
_SHOWN: Json = {"status": {"in": ["active", "archived"]}}
_FIELDS = {"created_at": "said_at", "updated_at": "updated_at", "role": "role", "data": "memory", "memory": "memory"}
_OPERATORS = {name: name for name in ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")}
_OPERATORS |= {"contains": "like", "icontains": "like"}
_ORDER = ("gt", "gte", "lt", "lte")
# Providers whose endpoint speaks OpenAI's protocol: the name of the field with its address, and the usual address.
_ENDPOINTS = {
    "openai": ("openai_base_url", "https://api.openai.com/v1"),
    "deepseek": ("deepseek_base_url", "https://api.deepseek.com/v1"),
    "lmstudio": ("lmstudio_base_url", "http://localhost:1234/v1"),
    "ollama": ("ollama_base_url", "http://localhost:11434/v1"),
    "vllm": ("vllm_base_url", "http://localhost:8000/v1"),
}
# Where mem0 takes address and key from if the configuration has none.
_ENVIRONMENT = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "deepseek": ("DEEPSEEK_API_BASE", "DEEPSEEK_API_KEY"),
}
_UNUSED = ("vector_store", "embedder", "graph_store", "reranker", "history_db_path", "custom_instructions")


class WrongValue(InvalidInput, ValueError):
    """An argument is wrong; also a ValueError, as mem0 raises."""


class MemoryNotFound(NotFound, ValueError):
    """There is no such memory; also a ValueError, as mem0 raises."""

    def __init__(self, memory_id: str) -> None:
        super().__init__("memory", memory_id)


@contextmanager
def as_values() -> Iterator[None]:
    """Raise a wrong argument as mem0 does."""
    try:
        yield
    except InvalidInput as error:
        raise WrongValue(error.field, error.reason) from error


def scope_of(**given: Any) -> dict[str, str]:
    """Return the ids that are given."""
    scope = {}
    for name, value in given.items():
        if value is None:
            continue
        told = str(value).strip()
        if not told or any(each.isspace() for each in told):
            raise WrongValue(name, "must be an id without white space")
        scope[name] = told
    return scope


def required_scope(**given: Any) -> dict[str, str]:
    scope = scope_of(**given)
    if not scope:
        raise WrongValue("user_id", "is required, or agent_id or run_id")
    return scope


def metadata_of(given: Mapping[str, Any] | None, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without what says whose a memory is, which cannot be set by it."""
    given = given or {}
    for name in _KEPT:
        if name in given and given[name] != before.get(name):
            log.warning("mem0: metadata[%r] is ignored; whose a memory is cannot be set by metadata.", name)
    return {name: value for name, value in given.items() if name not in _INNER}


def ending(value: Any) -> dict[str, Json]:
    """Return what is stored of an expiration date."""
    if value is None:
        return {}
    try:
        day = value.date() if isinstance(value, datetime) else value
        day = day if isinstance(day, date) else date.fromisoformat(day)
    except (TypeError, ValueError):
        raise WrongValue("expiration_date", "must be a date such as 2027-01-31") from None
    return {"expiration_date": day.isoformat(), _ENDS: int(f"{day:%Y%m%d}")}


def without_ending(info: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in info.items() if name not in ("expiration_date", _ENDS)}


def messages_of(given: Any, timestamp: Any) -> list[dict[str, Any]]:
    """Return what is stored of a text, a message or messages: no system prompts, as with mem0."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    elif isinstance(given, Mapping):
        given = [given]
    elif not isinstance(given, list):
        raise WrongValue("messages", "must be a text, a message or a list of messages")
    told = []
    for each in given:
        message = each if isinstance(each, Mapping) else {}
        role, content = _ROLES.get(str(message.get("role"))), message.get("content")
        if role is None or not content:
            if message.get("role") != "system":
                log.warning("mem0: a message without a known role or content is left out.")
            continue
        entry = {"role": role, "content": [content] if isinstance(content, Mapping) else content}
        entry |= {name: message[name] for name in ("name", "tool_call_id") if message.get(name)}
        told.append(entry if timestamp is None else {**entry, "chat_time": timestamp})
    return told


def said_by_user(messages: Sequence[dict[str, Any]], user: str | None) -> list[dict[str, Any]]:
    """Return messages whose speaker is the user unless they name one: imported memories of mem0 have that speaker, too.

    A statement replaces an older one of the same speaker only.
    """
    unnamed = {} if user is None else {"name": user}
    return [{**unnamed, **message} if message["role"] == "user" else message for message in messages]


def by_actor(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[str | None, list[dict[str, Any]]]]:
    """Yield runs of messages of one actor: what is stored beside them is the same."""
    run: list[dict[str, Any]] = []
    for message in messages:
        if run and message.get("name") != run[-1].get("name"):
            yield run[-1].get("name"), run
            run = []
        run.append(message)
    if run:
        yield run[-1].get("name"), run


def text_of(content: Json) -> str:
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def read_filters(filters: Any, *, show_expired: bool) -> tuple[dict[str, str], Json]:
    """Return whose memories filters are about, and a filter for those among them."""
    if not isinstance(filters, Mapping | None):
        raise WrongValue("filters", "must be a dictionary")
    rest = dict(filters or {})
    if isinstance(rest.get("AND"), list):  # ids may be in it too
        inner = [dict(each) for each in rest["AND"] if isinstance(each, Mapping)]
        rest |= {name: each.pop(name) for each in inner for name in SCOPES if name in each and name not in rest}
        rest["AND"] = [each for each in inner if each] or [{}]
    if not any(name in rest for name in SCOPES):
        raise WrongValue("filters", "must have at least one of user_id, agent_id and run_id: {'user_id': 'ana'}")
    scope = scope_of(**{name: rest[name] for name in SCOPES if rest.get(name) != "*" and name in rest})
    user = {"user_id"} & scope.keys()  # whose cube it is says that
    parts = [_SHOWN, *_conditions({name: value for name, value in {**rest, **scope}.items() if name not in user})]
    if not show_expired:
        parts.append({"not": {f"info.{_ENDS}": {"lt": int(f"{datetime.now(UTC):%Y%m%d}")}}})
    return scope, {"and": parts}


def _conditions(filters: Mapping[str, Any]) -> Iterator[Json]:
    for name, value in filters.items():
        if name in ("AND", "OR", "NOT"):
            if not isinstance(value, list) or not value or not all(isinstance(each, Mapping) for each in value):
                raise WrongValue(name, "must be a list of at least one condition")
            parts = [{"and": list(_conditions(each))} for each in value if each]
            if parts:
                yield {"and": parts} if name == "AND" else {"or": parts} if name == "OR" else {"not": {"or": parts}}
        else:
            field = name.removeprefix("metadata.")
            yield from _condition(_FIELDS.get(field, f"info.{field}"), value)


def _condition(field: str, value: Any) -> Iterator[Json]:
    if value is None or value == "*":
        yield {field: {"exists": value is not None}}
    elif isinstance(value, list):
        yield from _condition(field, {"in": value})
    elif not isinstance(value, Mapping):
        yield {field: {"eq": value}}
    else:
        for operator, operand in value.items():
            yield _comparison(field, operator, operand)


def _comparison(field: str, operator: str, operand: Any) -> Json:
    if operator not in _OPERATORS:
        raise WrongValue("filters", f"unsupported operator {operator!r}; known are {', '.join(_OPERATORS)}")
    is_number = isinstance(operand, int | float) and not isinstance(operand, bool)
    if operator in _ORDER and field.startswith("info.") and not is_number:
        raise WrongValue(field.removeprefix("info."), f"{operator} compares numbers; store dates as numbers")
    if operator in ("in", "nin") and not operand:
        nothing: Json = {"id": {"eq": "-"}}
        return nothing if operator == "in" else {"not": nothing}
    return {field: {_OPERATORS[operator]: operand}}


def check_top_k(top_k: Any) -> None:
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
        raise WrongValue("top_k", "must be a whole number from 0")


def check_named(named: Mapping[str, Any], method: str) -> None:
    """Refuse further arguments: ids belong into the filters."""
    if scopes := [name for name in SCOPES if name in named]:
        raise WrongValue(scopes[0], f"belongs into the filters of {method}(): filters={{'{scopes[0]}': '…'}}")
    if named:
        raise TypeError(f"{method}() got an unexpected keyword argument {next(iter(named))!r}")


def least_relevance(threshold: Any) -> float:
    if threshold is None or threshold == USUAL:
        return RELEVANT
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise WrongValue("threshold", "must be a number from 0 to 1")
    return float(threshold ** (1 / _SCALE))


def score_of(relevance: float | None) -> float:
    return float((relevance or 0.0) ** _SCALE)


def result_of(item: Any, scope: Mapping[str, str]) -> dict[str, Any]:
    """Return a memory as mem0 does; what was read out of messages belongs to whom the filters name."""
    info = dict(item.info)
    told = {
        "id": item.id,
        "memory": item.memory,
        "hash": hashlib.md5(item.memory.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest(),
        "metadata": {name: value for name, value in info.items() if name not in _INNER} or None,
        "created_at": (item.said_at or item.created_at).isoformat(),
        "updated_at": item.updated_at.isoformat(),
        "role": str(item.role),
    }
    user = {"user_id": scope["user_id"]} if "user_id" in scope else {}
    return told | user | {name: info[name] for name in (*_KEPT, "expiration_date") if name in info}


def changes_of(versions: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the changes of a memory's text, metadata and existence."""
    for version in versions:
        before, after = version.before, version.after
        names = ("memory", "info", "status")
        if before is not None and all(getattr(before, name) == getattr(after, name) for name in names):
            continue
        deleted = after.status == "deleted"
        yield {
            "id": version.id,
            "memory_id": version.item,
            "old_memory": None if before is None else before.memory,
            "new_memory": None if deleted else after.memory,
            "event": "DELETE" if deleted else "ADD" if before is None else "UPDATE",
            "created_at": after.created_at.isoformat(),
            "updated_at": version.recorded_at.isoformat(),
            "is_deleted": deleted,
            "actor_id": after.info.get("actor_id"),
            "role": str(after.role),
        }


def settings_of(config: Any, *, given: bool) -> Settings | None:
    """Return the settings for a configuration of mem0, None for the usual ones."""
    if config is None:
        return None
    told = config.model_dump(exclude_unset=True) if hasattr(config, "model_dump") else config
    if not isinstance(told, Mapping):
        raise WrongValue("config", "must be mem0's configuration, an object or a dictionary")
    if unused := [name for name in _UNUSED if told.get(name) is not None]:
        log.warning("mem0: %s of the configuration: not used, hippocube has its own.", ", ".join(unused))
    llm = told.get("llm")
    if llm is None:
        return None
    if given:
        log.warning("mem0: llm of the configuration: not used, the given installation has its own.")
        return None
    provider, options = llm.get("provider", "openai"), llm.get("config") or {}
    if provider not in _ENDPOINTS:
        log.warning("mem0: the llm provider %r is not known here; set MEMOS_CHAT_MODEL__BASE_URL and MODEL.", provider)
        return None
    field, usual = _ENDPOINTS[provider]
    given_url, given_key = (os.environ.get(name) for name in _ENVIRONMENT.get(provider, ("", "")))
    url = str(options.get(field) or given_url or usual).rstrip("/")
    key = options.get("api_key") or given_key
    return Settings(
        chat_model=ChatSettings(
            base_url=f"{url}/v1" if provider == "ollama" and not url.endswith("/v1") else url,
            model=options.get("model") or "gpt-4.1-mini",
            api_key=None if key is None else SecretStr(key),
        )
    )
