"""Former names of services and methods of `MemOS`. Remove them with version 0.3."""

from __future__ import annotations

import warnings
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from memos.core.types import Json
from memos.reader.arguments import fraction_of

# Former methods of `MemOS` by the service that has them now.
MOVED = {
    "memories": "derived erase_receipt extractions history list page read_finely receipt rollback",
    "search": "recall rerank",
    "tiers": "analyse consolidate move pin reflect segments",
    "maintenance": "backup backups catch_up check_ready finish_erasures forget_backup reembed reindex verify",
    "statistics": "overview totals",
}
# Former attributes of `MemOS` and what they are called now.
RENAMED = {
    "asker": "models.chat",
    "exchanges": "conversations",
    "model_here": "models.local",
    "profile": "profiles",
    "reader": "models.reader",
    "travel": "transfer",
    "used": "tiers.mark_used",
    "why_not": "search.explain_missing",
    "working_memory": "context",
    **{name: f"{service}.{name}" for service, names in MOVED.items() for name in names.split()},
}


def least_relevance(min_relevance: Json, relevance: Json) -> float:
    """Return the least relevance of a call, which may come under its former name. Raises: InvalidInput."""
    if relevance is None:
        return fraction_of("min_relevance", min_relevance)
    warnings.warn("`relevance` is now `min_relevance`", DeprecationWarning, stacklevel=3)
    return fraction_of("relevance", relevance)


class FormerNames:
    if not TYPE_CHECKING:  # type checkers are to refuse them

        def __getattr__(self, name: str) -> Any:
            """Return what a former name stands for. Raises: AttributeError."""
            if (path := RENAMED.get(name)) is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warnings.warn(f"MemOS.{name} is now MemOS.{path}", DeprecationWarning, stacklevel=2)
            return attrgetter(path)(self)
