"""Imports a chat export into a cube: batch by batch, resumable, every bad record reported."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from memos.errors import Conflict, InvalidInput
from memos.kernel import MemOS
from memos.model import LOCAL_OWNER
from memos.reader.chatexport import ExportRecord, batches, read_export
from memos.reader.messages import read_messages
from memos.settings import LimitSettings
from memos.text.checks import check_name

OnBad = Literal["stop", "skip"]

_REMEDY = "mend it, or skip bad records (--on-bad skip)"


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
    """Store an export's messages in order.

    Each message is known by its id or, without one, by its conversation, words, speaker, time and how often that
    was said before: importing again, also a mended or longer file, adds only what is missing.
    With `on_bad="stop"` nothing is stored when a record is unreadable.
    Raises: InvalidInput, NotFound (cube), Conflict (a stored message has the same id and other text).
    """
    zone = ZoneInfo(memos.cubes.get(cube, actor=actor).time_zone)
    records = _named(_checked(read_export(path, conversation), zone, memos.clock.now(), memos.settings.limits))
    bad = [BadRecord(record.place, record.problem) for record in records if record.problem is not None]
    if bad and on_bad == "stop":
        raise InvalidInput(str(path), f"{bad[0].place} {bad[0].problem}; {_REMEDY}")
    added = known = 0
    done = len(bad)
    indexed = True
    for batch in batches(records):
        stored, before, refused, caught_up = _store(memos, batch, cube, actor, path, on_bad)
        added, known, indexed = added + stored, known + before, indexed and caught_up
        bad += refused
        done += len(batch)
        if on_progress is not None:
            on_progress(done, len(records))
    return ImportSummary(added, known, tuple(bad), len({r.conversation for r in records if not r.problem}), indexed)


def _checked(records: list[ExportRecord], zone: ZoneInfo, now: datetime, limits: LimitSettings) -> list[ExportRecord]:
    """Mark every record that `add` would refuse, so that each is named by its own place before anything is stored."""
    told: dict[tuple[str, str], tuple[str, str]] = {}
    checked = []
    for record in records:
        problem = record.problem
        if problem is None:
            try:
                check_name("conversation", record.conversation)
                [message] = read_messages([record.message], zone, now, limits)
            except InvalidInput as error:
                problem = f"is refused: {error.field.removeprefix('messages[0].')} {error.reason}"
            else:
                if message.message_id is not None:
                    key = (record.conversation, message.message_id)
                    text, place = told.setdefault(key, (message.text, record.place))
                    if text != message.text:
                        problem = f"has the message id {message.message_id!r} of {place} and other text"
        checked.append(replace(record, problem=problem))
    return checked


def _named(records: list[ExportRecord]) -> list[ExportRecord]:
    """Give every readable message without an id one made of what it says, the same in every import."""
    said: Counter[str] = Counter()
    named = []
    for record in records:
        if record.problem is None and "message_id" not in record.message:
            told = json.dumps([record.conversation, record.message], sort_keys=True)
            said[told] += 1
            digest = hashlib.sha256(f"{said[told]} {told}".encode()).hexdigest()[:32]
            named.append(replace(record, message={**record.message, "message_id": f"import:{digest}"}))
        else:
            named.append(record)
    return named


def _store(
    memos: MemOS, batch: list[ExportRecord], cube: str, actor: str, path: Path, on_bad: OnBad
) -> tuple[int, int, list[BadRecord], bool]:
    """Store one batch; when it is refused and bad records are skipped, store its records one by one."""
    try:
        receipt = memos.add(
            [record.message for record in batch], cube=cube, actor=actor, conversation=batch[0].conversation
        )
    except Conflict as error:
        if on_bad == "stop":
            place = batch[0].place if len(batch) == 1 else f"{batch[0].place} to {batch[-1].place}"
            raise Conflict(f"{path}: {place}: {error} Or {_REMEDY}.") from error
        if len(batch) == 1:
            return 0, 0, [BadRecord(batch[0].place, str(error))], True
    else:
        before = len(receipt.duplicates)
        return len(receipt.item_ids) - before, before, [], receipt.indexed
    parts = [_store(memos, [record], cube, actor, path, on_bad) for record in batch]
    return (
        sum(part[0] for part in parts),
        sum(part[1] for part in parts),
        [entry for part in parts for entry in part[2]],
        all(part[3] for part in parts),
    )
