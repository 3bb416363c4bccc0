"""How results look as JSON, for `--json` and HTTP alike: plain names, ISO 8601 times, nothing left out."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from memos.core.types import Json
from memos.errors import InvalidInput, MemosError


def view(value: Any) -> Json:
    """Return the JSON form of any value of `memos.model`, or of a list or mapping of them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: view(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): view(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [view(entry) for entry in value]
    return value


def error_view(error: MemosError) -> Json:
    """Return an error as JSON: its code, the sentence, and the field for invalid input."""
    told: dict[str, Json] = {"code": error.code, "message": str(error)}
    if isinstance(error, InvalidInput):
        told["field"] = error.field
    return {"error": told}
