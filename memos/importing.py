"""Imports a chat export into a cube: checked first, then batch by batch; resumable, every bad record reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from memos.errors import Conflict, InvalidInput
from memos.kernel import MemOS
from memos.model import LOCAL_OWNER
from memos.reader.exports.checks import CheckedRecord, checked
from memos.reader.exports.formats import Format, detect, read_export
from memos.reader.exports.record import ExportRecord

OnBad = Literal["stop", "skip"]

BATCH = 50
"""Messages of one transaction: small enough to show progress, large enough to share a flush."""

_REMEDY = "mend it, or skip bad records (--on-bad skip)"


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that was not stored, and why."""

    place: str
    problem: str


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What an import did: messages stored now, known from before, and refused.

    `left_out` counts what the format keeps but nobody said (hidden and empty turns, other branches, reasoning);
    `out_of_order` counts messages whose time is earlier than that of the message before, stored in the file's order.
    """

    added: int
    known: int
    bad: tuple[BadRecord, ...]
    conversations: int
    left_out: int
    out_of_order: int
    format: Format
    indexed: bool


def import_export(  # noqa: PLR0913 - one keyword an option of the command
    memos: MemOS,
    path: Path,
    *,
    cube: str,
    actor: str = LOCAL_OWNER,
    conversation: str | None = None,
    format: Format | None = None,
    on_bad: OnBad = "stop",
    on_progress: Callable[[int, int], None] | None = None,
) -> ImportSummary:
    """Store an export's messages in order. The file is read twice, entry by entry: to check it, then to store it.

    Each message is known by its id or, without one, by its conversation, words, speaker, time and how often that
    was said before: importing again, also a mended or longer file, adds only what is missing.
    With `on_bad="stop"` nothing is stored when a record is unreadable. Of every message a digest is held, not the
    words. `on_progress` gets how many messages are done, and of how many.
    Raises: InvalidInput, NotFound (cube), Conflict (a stored message has the same id and other text).
    """
    zone = ZoneInfo(memos.cubes.get(cube, actor=actor).time_zone)
    now = memos.clock.now()
    found = format or detect(path)

    def reading() -> Iterator[CheckedRecord]:
        return checked(read_export(path, found, conversation), zone, now, memos.settings.limits)

    survey = _survey(reading(), path, on_bad)
    target = _Target(memos, cube, actor, path, on_bad)
    added = known = 0
    refused: list[BadRecord] = []
    indexed = True
    for batch in _batches(_readable(reading(), path, on_bad)):
        outcome = _store(target, batch)
        added, known, indexed = added + outcome.added, known + outcome.known, indexed and outcome.indexed
        refused += outcome.bad
        if on_progress is not None:
            done = len(survey.bad) + added + known + len(refused)
            on_progress(done, len(survey.bad) + survey.readable)
    return ImportSummary(
        added=added,
        known=known,
        bad=(*survey.bad, *refused),
        conversations=len(survey.conversations),
        left_out=survey.left_out,
        out_of_order=survey.out_of_order,
        format=found,
        indexed=indexed,
    )


@dataclass(slots=True)
class _Survey:
    """What the first reading of a file counted."""

    readable: int = 0
    left_out: int = 0
    out_of_order: int = 0
    bad: list[BadRecord] = field(default_factory=list)
    conversations: set[str] = field(default_factory=set)


def _survey(records: Iterable[CheckedRecord], path: Path, on_bad: OnBad) -> _Survey:
    survey = _Survey()
    for entry in records:
        record = entry.record
        survey.left_out += record.left_out
        if record.problem is not None:
            if on_bad == "stop":
                raise InvalidInput(str(path), f"{record.place} {record.problem}; {_REMEDY}")
            survey.bad.append(BadRecord(record.place, record.problem))
        elif record.message:
            survey.readable += 1
            survey.out_of_order += entry.late
            survey.conversations.add(record.conversation)
    return survey


def _readable(records: Iterable[CheckedRecord], path: Path, on_bad: OnBad) -> Iterator[ExportRecord]:
    for entry in records:
        record = entry.record
        if record.problem is not None and on_bad == "stop":
            told = f"{record.place} {record.problem}; the file was changed while it was read, import it again"
            raise InvalidInput(str(path), told)
        if record.problem is None and record.message:
            yield record


def _batches(records: Iterable[ExportRecord]) -> Iterator[list[ExportRecord]]:
    """Yield records in runs of one conversation, at most `BATCH` together."""
    for _, run in groupby(records, key=lambda record: record.conversation):
        while batch := list(islice(run, BATCH)):
            yield batch


@dataclass(frozen=True, slots=True)
class _Target:
    """Where an import goes, and how it takes what is refused."""

    memos: MemOS
    cube: str
    actor: str
    path: Path
    on_bad: OnBad


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one batch."""

    added: int = 0
    known: int = 0
    bad: tuple[BadRecord, ...] = ()
    indexed: bool = True


def _store(target: _Target, batch: list[ExportRecord]) -> _Outcome:
    """Store one batch; when it is refused and bad records are skipped, store its records one by one."""
    first = batch[0]
    try:
        receipt = target.memos.add(
            [record.message for record in batch],
            cube=target.cube,
            actor=target.actor,
            conversation=first.conversation,
        )
    except Conflict as error:
        if target.on_bad == "stop":
            place = first.place if len(batch) == 1 else f"{first.place} to {batch[-1].place}"
            raise Conflict(f"{target.path}: {place}: {error} Or {_REMEDY}.") from error
        if len(batch) == 1:
            return _Outcome(bad=(BadRecord(first.place, str(error)),))
    else:
        before = len(receipt.duplicates)
        return _Outcome(len(receipt.item_ids) - before, before, indexed=receipt.indexed)
    parts = [_store(target, [record]) for record in batch]
    return _Outcome(
        sum(part.added for part in parts),
        sum(part.known for part in parts),
        tuple(entry for part in parts for entry in part.bad),
        all(part.indexed for part in parts),
    )
