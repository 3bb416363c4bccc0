"""What one search asks, and what may come back. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from memos.core.clock import to_micros
from memos.core.filters import And, Condition, Node, Not, Op, fields_of
from memos.core.types import FOUND, TOLD, Scope, Status
from memos.memcube.ledger import items

MAX_TOP_K = 1_000
"""Largest `top_k` of a search."""

MAX_QUERY_CHARS = 20_000
"""Longest question in characters."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One question: `filter` is parsed, `as_of` a record time, `reference_time` when it is asked, in `zone`.

    `rerank`: the first candidates are read together with the question; only asked for where there is a reranker.
    """

    query: str
    scope: Scope
    top_k: int
    filter: Node | None
    as_of: datetime | None
    reference_time: datetime
    zone: ZoneInfo
    token_budget: int | None
    explain: bool
    rerank: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What may come back: the caller's filter, and what every search leaves out unless the filter names it.

    That is other statuses than active and archived, and facts that have ended. What awaits review is left out whatever
    the filter names. `wanted` says all of it; `pushed` is what the index judges besides `live`; `hold` judges the rest
    on a brief.
    """

    wanted: Node
    pushed: Node | None
    live: bool
    statuses: frozenset[Status]
    ended_by: int | None

    @classmethod
    def of(cls, request: SearchRequest) -> Rules:
        """Return the rules of one search."""
        named = fields_of(request.filter)
        parts: list[Node] = [] if request.filter is None else [request.filter]
        statuses = frozenset(Status) - {Status.PENDING} if "status" in named else FOUND
        parts.append(Condition("status", Op.IN, tuple(str(status) for status in sorted(statuses))))
        ended_by = None if named & {"valid_to", "status"} else to_micros(request.reference_time)
        if ended_by is not None:
            fact = Condition("type", Op.NIN, tuple(str(kind) for kind in TOLD))
            parts.append(Not(And((fact, Condition("valid_to", Op.LTE, ended_by)))))
        wanted = And(tuple(parts))
        live = "status" not in named and request.as_of is None
        return cls(wanted, request.filter if live else wanted, live, statuses, ended_by)

    def narrowed(self, node: Node) -> Rules:
        """Return these rules for what passes another filter, too."""
        pushed = node if self.pushed is None else And((self.pushed, node))
        return replace(self, wanted=And((self.wanted, node)), pushed=pushed)

    def hold(self, brief: items.Brief) -> bool:
        """Say whether the standing rules let a candidate through; the caller's filter is judged by the ledger."""
        if brief.status not in self.statuses:
            return False
        if self.ended_by is None or brief.valid_to is None or brief.type in TOLD:
            return True
        return brief.valid_to > self.ended_by
