"""Lets what a call of a tool came to stand before the messages that it sums up, when a question asks for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from memos.core.types import ItemType
from memos.memcube.ledger import items
from memos.search.question import Intent, Question
from memos.search.rank import Recalled


def told_by_calls(connection: sa.Connection, question: Question, pool: Sequence[Recalled]) -> Mapping[str, str]:
    """Return by message the best recalled call that it is part of, or that was made for what it asks.

    Nothing unless the question asks whether something was done before, and with what result.
    """
    if Intent.DONE not in question.intents:
        return {}
    calls = [entry for entry in pool if entry.item.type == ItemType.TOOL_TRAJECTORY]
    if not calls:
        return {}
    links = items.links_from(connection, [entry.item.id for entry in calls])
    found: dict[str, str] = {}
    for entry in sorted(calls, key=lambda entry: (-entry.fused.score, entry.item.id)):
        for _, message in links.get(entry.item.id, ()):
            found.setdefault(message, entry.item.id)
    return found
