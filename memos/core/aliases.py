"""Other programs' words for our parameters, accepted beside our own on every surface (ADR 31)."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypedDict

from memos.core.types import Json, Mode
from memos.errors import InvalidInput, shown

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "agent_id": ("actor", "user"),
        "conversation_id": ("conversation",),
        "created_at": ("chat_time",),
        "cube": ("cubes",),
        "cubes": ("cube",),
        "id": ("item", "item_ids"),
        "ids": ("item_ids",),
        "infer": ("mode",),
        "item_id": ("item", "item_ids"),
        "limit": ("top_k",),
        "memory_id": ("item", "item_ids"),
        "metadata": ("info",),
        "run_id": ("conversation",),
        "session_id": ("conversation",),
        "thread_id": ("conversation",),
        "threshold": ("min_relevance",),
        "timestamp": ("chat_time",),
        "user_id": ("actor", "user"),
    }
)
"""Our words for each alias; it stands for the first that the call takes."""

_LISTS = frozenset({"item_ids", "ids", "about", "cubes"})


class ActorAliases(TypedDict, total=False):
    """Aliases of `actor` or `user`: who acts."""

    user_id: str | None
    agent_id: str | None


class CubeAliases(ActorAliases, total=False):
    """Aliases of a call about one cube."""

    cubes: str | Sequence[str] | None


class _IdAliases(ActorAliases, total=False):
    memory_id: str
    item_id: str
    id: str


class ItemAliases(CubeAliases, _IdAliases, total=False):
    """Aliases of a call about one memory."""


class ItemsAliases(ItemAliases, total=False):
    """Aliases of a call about several memories."""

    ids: str | Sequence[str]


class ConversationAliases(CubeAliases, total=False):
    """Aliases of a call about a conversation."""

    conversation_id: str | None
    session_id: str | None
    thread_id: str | None
    run_id: str | None


class AddAliases(ConversationAliases, total=False):
    """Aliases of `add`."""

    metadata: Mapping[str, Json] | None
    infer: bool


class FeedbackAliases(ConversationAliases, ItemsAliases, total=False):
    """Aliases of `feedback`."""

    timestamp: datetime | str | float | None
    created_at: datetime | str | float | None


class SearchAliases(ActorAliases, total=False):
    """Aliases of `search`."""

    cube: str | None
    limit: int
    threshold: float


class SearchItemAliases(SearchAliases, _IdAliases, total=False):
    """Aliases of a search for one memory."""


def own_signature(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a function without the aliases that it declares as `**_aliases`."""
    signature = inspect.signature(function)
    return signature.replace(parameters=[each for each in signature.parameters.values() if each.name != "_aliases"])


def known_words(signature: inspect.Signature) -> frozenset[str]:
    """Return our words for the arguments of a call; one with `**fields` of a memory takes its `info`."""
    return frozenset(signature.parameters) | ({"info"} if "fields" in signature.parameters else frozenset())


def bind(signature: inspect.Signature, given: Sequence[Any], named: Mapping[str, Any]) -> inspect.BoundArguments:
    """Bind arguments, some perhaps under aliases, to a signature. Raises: TypeError, InvalidInput."""
    positional = signature.bind_partial(*given).arguments
    if positional.keys() & named.keys():
        return signature.bind(*given, **named)  # raises: one argument twice
    resolved = resolve_aliases({**positional, **named}, known_words(signature))
    taken = signature.parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values())
    unknown = [] if takes_any else sorted(resolved.keys() - taken.keys())
    if unknown:
        words = ", ".join(name for name in taken if name != "self")
        raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}; the arguments are {words}")
    return signature.bind(**resolved)


def resolve_aliases(
    given: Mapping[str, Any], known: Collection[str], aliases: Mapping[str, tuple[str, ...]] = ALIASES, where: str = ""
) -> dict[str, Any]:
    """Return arguments under our own names; other names that are not in `known` stay as they are.

    An alias with the value None is left out. `cube` is one of `cubes`, and the other way round. `run_id` names the
    conversation, or goes into `info` where another conversation is given.

    Raises:
        InvalidInput: Two names of one argument have different values; `where` is put before the name.
    """
    resolved = dict(given)
    for alias in sorted(given.keys() & aliases.keys() - set(known), key=lambda name: (name == "run_id", name)):
        word = next((word for word in aliases[alias] if word in known), None)
        if word is None:
            continue
        raw = resolved.pop(alias)
        if raw is None:
            continue
        value, present = _converted(where + alias, word, raw), resolved.get(word)
        if present is None:
            resolved[word] = value
        elif _same(present, value) or _same(present, raw):
            continue
        elif alias == "run_id" and "info" in known:
            resolved["info"] = _with_run_id(resolved.get("info"), value)
        else:
            raise InvalidInput(
                where + alias, f"is another word for `{word}`, which has another value; give one of them"
            )
    return resolved


def _converted(alias: str, word: str, value: Any) -> Any:
    if word == "mode":
        if not isinstance(value, bool):
            raise InvalidInput(alias, f"must be true or false, not {shown(value)}")
        return str(Mode.FINE if value else Mode.ROUGH)
    if word == "cube" and isinstance(value, list | tuple):
        if len(value) != 1:
            raise InvalidInput(alias, f"must name one cube here, not {len(value)}")
        return value[0]
    return [value] if word in _LISTS and isinstance(value, str) else value


def _same(one: Any, other: Any) -> bool:
    """Return True if two values are equal; False where comparing them fails, as with arrays or very deep lists."""
    one, other = (list(value) if isinstance(value, tuple) else value for value in (one, other))
    try:
        return bool(one == other)
    except (ValueError, RecursionError):
        return False


def _with_run_id(info: Json, value: Json) -> Json:
    if info is not None and not isinstance(info, Mapping):
        return info  # refused where it is checked
    if info and info.get("run_id", value) != value:
        raise InvalidInput("run_id", "has another value in `info`; give one of them")
    return {**(info or {}), "run_id": value}


# Names that other programs use for a field; the first that a body has is suggested.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    **ALIASES,
    "content": ("messages", "text", "memory"),
    "cube_id": ("cube", "cubes"),
    "k": ("top_k",),
    "max_results": ("top_k",),
    "mem_cube_id": ("cube", "cubes"),
    "memory_ids": ("item_ids",),
    "n_results": ("top_k",),
    "question": ("query",),
    "text": ("messages", "memory", "query"),
    "timestamp": ("chat_time", "reference_time"),
    "user_name": ("user",),
}


def unknown_name(what: str, name: str, known: Collection[str]) -> str:
    """Return the reason why a field or argument is refused, with the name that was probably meant."""
    other = next((each for each in _OTHER_NAMES.get(name, ()) if each in known), None)
    if other is not None:
        return f"unknown {what}; here it is `{other}`"
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"unknown {what}; did you mean `{close[0]}`?"
    return f"unknown {what}; known are {', '.join(f'`{each}`' for each in known)}" if known else f"unknown {what}"
