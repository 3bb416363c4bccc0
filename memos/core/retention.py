"""Values of retention: rules, and what they do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from memos.core.types import ItemType, Status


class RetentionAction(StrEnum):
    """The action of a retention rule, weakest first."""

    ARCHIVE = "archive"
    DELETE = "delete"
    ERASE = "erase"


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """A rule for items of a cube older than `age_days`; an empty tuple matches any.

    An item matches if it has one of the types, one of the tags and one of the statuses.
    """

    id: Annotated[str, "Id of the rule"]
    cube: Annotated[str, "Cube it is for"]
    action: Annotated[RetentionAction, "`archive`, `delete` or `erase`"]
    types: Annotated[tuple[ItemType, ...], "Types of memories it applies to; empty: all"]
    tags: Annotated[tuple[str, ...], "Tags of memories it applies to; empty: all"]
    statuses: Annotated[tuple[Status, ...], "Statuses of memories it applies to; empty: all"]
    age_days: Annotated[float, "Minimum age in days"]
    actor: Annotated[str, "Who made it"]
    created_at: Annotated[datetime, "When it was created"]


@dataclass(frozen=True, slots=True)
class RetentionEffect:
    """Number of items a rule affects or affected; `items` are the first of them.

    `derived` counts further items that are erased because they were derived from those.
    """

    rule: Annotated[RetentionRule, "The rule"]
    count: Annotated[int, "Memories it applies to"]
    items: Annotated[tuple[str, ...], "Ids of the first of them"]
    derived: Annotated[int, "Number of derived memories erased with them"] = 0
