"""How the Qdrant client's Python classes write filters; what a filter means is in `qdrant_filters`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memos.backends.qdrant.server_client import models


class ServerDialect:
    """The `Dialect` of `qdrant_client`."""

    def group(
        self, *, must: Sequence[Any] = (), should: Sequence[Any] = (), must_not: Sequence[Any] = ()
    ) -> models.Filter:
        """Return a filter of three lists."""
        # An empty list stays: a filter without any could be read as another condition.
        return models.Filter(must=list(must), should=list(should) or None, must_not=list(must_not) or None)

    def among(self, key: str, values: Sequence[str] | Sequence[int]) -> models.FieldCondition:
        """Return a match of one value or several."""
        match: Any = models.MatchValue(value=values[0]) if len(values) == 1 else models.MatchAny(any=list(values))
        return models.FieldCondition(key=key, match=match)

    def within(self, key: str, **bounds: float) -> models.FieldCondition:
        """Return a range of floats."""
        return models.FieldCondition(key=key, range=models.Range(**bounds))

    def empty(self, key: str) -> models.IsEmptyCondition:
        """Return the condition that there is no value."""
        return models.IsEmptyCondition(is_empty=models.PayloadField(key=key))

    def nothing(self) -> models.Filter:
        """Return a filter that nothing passes."""
        return models.Filter(must=[models.HasIdCondition(has_id=[])])
