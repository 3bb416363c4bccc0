"""How the embedded engine's Python classes write filters; what a filter means is in `qdrant_filters`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qdrant_edge import (
    FieldCondition,
    Filter,
    HasIdCondition,
    IsEmptyCondition,
    MatchAny,
    MatchValue,
    RangeFloat,
)

_NOTHING = Filter(must=[HasIdCondition(set())])


class EdgeDialect:
    """The `Dialect` of `qdrant_edge`."""

    def group(self, *, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()) -> Filter:
        """Return a filter of three lists."""
        return Filter(must=list(must), should=list(should) or None, must_not=list(must_not))

    def among(self, key: str, values: Sequence[str] | Sequence[int]) -> FieldCondition:
        """Return a match; one value is matched in half the time of a list of one."""
        several: Any = list(values)
        match = MatchValue(several[0]) if len(several) == 1 else MatchAny(several)
        return FieldCondition(key, match=match)

    def within(self, key: str, **bounds: float) -> FieldCondition:
        """Return a range of floats."""
        return FieldCondition(key, range=RangeFloat(**bounds))

    def empty(self, key: str) -> IsEmptyCondition:
        """Return the condition that there is no value."""
        return IsEmptyCondition(key)

    def nothing(self) -> Filter:
        """Return a filter that nothing passes."""
        return _NOTHING
