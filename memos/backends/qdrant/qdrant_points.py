"""What a point is in a Qdrant engine, embedded or server: its vectors' names, its payload, the indexed fields.

Knows neither engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memos.core.types import Arm, Json

FOREVER = 2**53 - 1
"""`recorded_to` of a current version: the largest integer a float range holds exactly."""

DENSE = (Arm.TURN.value, Arm.WINDOW.value)
ASKED = dict.fromkeys((arm.value for arm in (Arm.STANDING, Arm.OF_SELF, Arm.NAMED, Arm.DATED)), Arm.TURN.value)
"""Which vectors an arm asks that has none of its own."""

AT_LEAST = {Arm.TURN_BM25.value: 0.0, Arm.WINDOW_BM25.value: 0.0, Arm.DATED.value: float("-inf")}
"""Scores above which an arm finds a point, where that is not the noise of a vector's arithmetic."""

SPARSE = (Arm.TURN_BM25.value, Arm.WINDOW_BM25.value)

# Of 13,712 texts' vectors a search finds 99.3 % of the true ten and 97.7 % of the true fifty (docs/log.md).
BUILD_WIDTH = 200
SEARCH_WIDTH = 64
# Of the least telling arm 97 % of the true ten of 10,386 are enough, and 98 % of the first four.
SEARCH_WIDTHS = {arm.value: 32 if arm is Arm.OF_SELF else SEARCH_WIDTH for arm in Arm}

KEYWORDS = ("item", "type", "status", "tags", "conversation", "key", "role", "speaker")
INTEGERS = (
    "said_at",
    "created_at",
    "updated_at",
    "valid_from",
    "valid_to",
    "recorded_from",
    "recorded_to",
    "revision",
    "version",
    "live",
)

STANDING = "standing"
"""Which standing arm finds a point, and of which cube; other points have none. Each value has graphs of its own."""


def stored_payload(payload: Mapping[str, Json]) -> dict[str, Any]:
    """Return a point's payload as the engines keep it: `recorded_to` always there, booleans of `info` apart."""
    info = payload.get("info")
    kept = {"recorded_to": FOREVER, **payload, **split_flags(info if isinstance(info, Mapping) else {})}
    if stands := kept.pop(STANDING, 0):
        kept[STANDING] = standing_value(stands, payload["cube"])
    return kept


def standing_value(stands: Any, cube: Any) -> str:
    """Return the value of `STANDING` for points of a cube, by what `STANDING_OF` says of the arm."""
    return f"{stands}:{cube}"


def split_flags(info: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Return an info object as the payload keeps it: booleans apart from other values."""
    kept: dict[str, dict[str, Json]] = {"info": {}, "flags": {}}
    for name, value in info.items():
        values = value if isinstance(value, list | tuple) else [value]
        flags = [int(entry) for entry in values if isinstance(entry, bool)]
        others = [entry for entry in values if not isinstance(entry, bool)]
        if flags:
            kept["flags"][name] = flags
        if others:
            kept["info"][name] = others
    return kept


def point_key(payload: Any) -> str:
    """Return which item and version a point's payload names, as "item:version"."""
    return f"{payload['item']}:{payload['version']}"
