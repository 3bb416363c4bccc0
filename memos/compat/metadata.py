"""The free-form metadata of MemoryOS programs, as items and prompts take it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from memos.core.types import Json
from memos.errors import InvalidInput


def info_of(meta_data: Json) -> dict[str, Json]:
    """Return metadata as an item's info takes it: what is nested becomes JSON text. Raises: InvalidInput."""
    if meta_data is None:
        return {}
    if not isinstance(meta_data, Mapping):
        raise InvalidInput("meta_data", f"must be an object, not {type(meta_data).__name__}")
    return {name: _flat(value) for name, value in meta_data.items() if value is not None}


def _flat(value: Json) -> Json:
    scalars = value if isinstance(value, list | tuple) else [value]
    if all(isinstance(each, str | bool | int | float) for each in scalars):
        return value
    return _dumped("meta_data", value)


def metadata_of(metadata: Json) -> Mapping[str, Json] | None:
    """Return metadata about a conversation when a prompt can show it. Raises: InvalidInput."""
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise InvalidInput("user_conversation_meta_data", f"must be an object, not {type(metadata).__name__}")
    _dumped("user_conversation_meta_data", metadata)
    return metadata


def _dumped(where: str, value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(where, "cannot be written as JSON; use text, numbers, lists and objects") from error
