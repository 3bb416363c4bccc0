"""Imports a chat export into a cube: batch by batch, resumable, every bad record reported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memos.errors import InvalidInput
from memos.kernel import MemOS
from memos.model import LOCAL_OWNER
from memos.reader.chatexport import ExportRecord, batches, read_export

OnBad = Literal["stop", "skip"]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that was not stored, and why."""

    place: str
    problem: str


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What an import did: messages stored now, known from before, and refused."""

    added: int
    known: int
    bad: tuple[BadRecord, ...]
    conversations: int
    indexed: bool


def import_export(
    memos: MemOS,
    path: Path,
    *,
    cube: str,
    actor: str = LOCAL_OWNER,
    conversation: str | None = None,
    on_bad: OnBad = "stop",
    on_progress: Callable[[int, int], None] | None = None,
) -> ImportSummary:
    """Store an export's messages in order. Running it again after an interruption adds only what is missing.

    With `on_bad="stop"` nothing is stored when a record is unreadable. Raises: InvalidInput, NotFound (cube).
    """
    records = read_export(path, conversation)
    bad = [BadRecord(record.place, record.problem) for record in records if record.problem is not None]
    if bad and on_bad == "stop":
        raise InvalidInput(str(path), f"{bad[0].place} {bad[0].problem}; mend it, or skip bad records (--on-bad skip)")
    added = known = done = 0
    indexed = True
    for batch in batches(records):
        stored, before, refused, caught_up = _store(memos, batch, cube, actor, path, on_bad)
        added, known, indexed = added + stored, known + before, indexed and caught_up
        bad += refused
        done += len(batch)
        if on_progress is not None:
            on_progress(done, len(records))
    return ImportSummary(added, known, tuple(bad), len({r.conversation for r in records if not r.problem}), indexed)


def _store(
    memos: MemOS, batch: list[ExportRecord], cube: str, actor: str, path: Path, on_bad: OnBad
) -> tuple[int, int, list[BadRecord], bool]:
    """Store one batch; when it is refused and bad records are skipped, store its records one by one."""
    try:
        receipt = memos.add(
            [record.message for record in batch],
            cube=cube,
            actor=actor,
            conversation=batch[0].conversation,
            idempotency_key=_key(path, batch),
        )
    except InvalidInput as error:
        if on_bad == "stop":
            place = batch[0].place if len(batch) == 1 else f"{batch[0].place} to {batch[-1].place}"
            raise InvalidInput(str(path), f"{place}: {error}; mend it, or skip bad records (--on-bad skip)") from error
        if len(batch) == 1:
            return 0, 0, [BadRecord(batch[0].place, str(error))], True
    else:
        before = len(receipt.item_ids) if receipt.replayed else len(receipt.duplicates)
        return len(receipt.item_ids) - before, before, [], receipt.indexed
    parts = [_store(memos, [record], cube, actor, path, on_bad) for record in batch]
    return (
        sum(part[0] for part in parts),
        sum(part[1] for part in parts),
        [entry for part in parts for entry in part[2]],
        all(part[3] for part in parts),
    )


def _key(path: Path, batch: list[ExportRecord]) -> str:
    """Name a batch by its place in the file and what it says, so that the same file imported again is recognised."""
    told = json.dumps([path.name, batch[0].conversation, [(r.place, r.message) for r in batch]], sort_keys=True)
    return "import:" + hashlib.sha256(told.encode()).hexdigest()
