"""A temporary installation filled and asked through the public API; knows no benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from benchmarks.data import Message, Session
from benchmarks.metrics import first_seen
from memos import MemOS, Settings
from memos.core.ports import ChatModel, Embedder
from memos.core.types import Hit, SearchResult

_MESSAGES_PER_ADD = 500


@contextmanager
def installation(
    settings: Settings | None = None, embedder: Embedder | None = None, chat_model: ChatModel | None = None
) -> Iterator[MemOS]:
    """Open an empty installation with these or the default settings and models, removed afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="hippocube-bench-") as folder,
        MemOS.open(folder, settings=settings, embedder=embedder, chat_model=chat_model) as memos,
    ):
        yield memos


def fill(memos: MemOS, cube: str, sessions: Sequence[Session]) -> None:
    """Make the cube and add each session as a conversation; everything is indexed when it returns."""
    memos.cubes.create(cube)
    add_sessions(memos, cube, sessions)


def add_sessions(memos: MemOS, cube: str, sessions: Sequence[Session]) -> None:
    """Add each session as a conversation of a cube that is there; everything is indexed when it returns."""
    for session in sessions:
        for start in range(0, len(session.messages), _MESSAGES_PER_ADD):
            batch = [_message(message) for message in session.messages[start : start + _MESSAGES_PER_ADD]]
            key = f"{session.name}:{batch[0]['message_id']}"
            # Asked again, the same request stores nothing and waits for the indexes once more.
            while not memos.add(batch, cube=cube, conversation=session.name, idempotency_key=key).indexed:
                pass


def ask(memos: MemOS, cube: str, question: str, *, asked: datetime | None, **options: Any) -> SearchResult:
    """Search one cube. Raises: RuntimeError when a recall arm was missing, since no figure would be ours."""
    result = memos.search(question, cubes=[cube], reference_time=asked, **options)
    if result.missing_arms:
        raise RuntimeError(f"A part of a search did not answer (missing: {', '.join(result.missing_arms)}).")
    return result


def source_messages(hits: Sequence[Hit]) -> list[tuple[str | None, str | None]]:
    """Return the distinct source messages of hits in order, as conversation and message id."""
    return first_seen((source.conversation, source.external_id) for hit in hits for source in hit.sources)


def _message(message: Message) -> dict[str, Any]:
    sent = {"role": message.role, "content": message.text, "message_id": message.id}
    if message.name is not None:
        sent["name"] = message.name
    if message.at is not None:
        sent["chat_time"] = message.at.isoformat()
    return sent
