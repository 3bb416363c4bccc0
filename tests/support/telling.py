"""Statements told one by one, as tests of what is true over time need them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memos import MemOS

BEGAN = datetime(2025, 3, 1, 9, tzinfo=UTC)


def tell(memos: MemOS, *texts: str, cube: str = "default", speaker: str = "Sam") -> list[str]:
    """Say each text in a conversation of its own, three days apart."""
    ids = []
    for place, text in enumerate(texts):
        at = BEGAN + timedelta(days=3 * place)
        said = {"role": "user", "name": speaker, "content": text, "chat_time": at.isoformat()}
        ids += memos.add(said, cube=cube, conversation=f"{cube}-{place}").item_ids
    return ids
