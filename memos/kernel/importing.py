"""Imports chat exports into cubes: checked first, then batch by batch; resumable, every bad record reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from memos.core.text.redaction import mask
from memos.core.types import LOCAL_OWNER, Mode
from memos.errors import Conflict, InvalidInput
from memos.kernel.memos import MemOS
from memos.reader.arguments import member_of, within
from memos.reader.importers.base import ExportRecord
from memos.reader.importers.formats import CheckedRecord, Format, checked, detect, read_export
from memos.reader.messages import read_messages

OnBad = Literal["stop", "skip"]

BATCH = 50  # messages of one transaction: small enough to show progress, large enough to share a flush
_SHOWN = 20
_SHOWN_BAD = 50
_SHOWN_CHARS = 500
_REMEDY = "fix it, or skip bad records (--on-bad skip)"


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was not stored, and why."""

    place: str
    problem: str


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The result of an import: messages stored now, known before, and refused.

    `left_out` counts entries nobody said (hidden and empty turns, other branches, reasoning); `out_of_order` counts
    messages earlier than the one before, stored in the file's order. `note` names parts of the format that are not
    imported. `masked` counts secrets and, where the cube masks it, personal data that was not stored.
    """

    added: int
    known: int
    bad: tuple[BadRecord, ...]
    conversations: int
    left_out: int
    out_of_order: int
    format: str
    indexed: bool
    note: str = ""
    masked: int = 0


@dataclass(frozen=True, slots=True)
class Import:
    """The options of an import: target, source, user, and how to treat bad records.

    `on_progress` gets the number of messages done and the total.
    """

    memos: MemOS
    path: Path
    format: str
    actor: str = LOCAL_OWNER
    on_bad: OnBad = "stop"
    on_progress: Callable[[int, int], None] | None = None
    note: str = ""
    mode: str = Mode.ROUGH


@dataclass(frozen=True, slots=True)
class Part:
    """The input of one cube; `read` yields its records from the beginning on every call."""

    cube: str
    zone: ZoneInfo
    read: Callable[[], Iterator[ExportRecord]]


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
    mode: str = Mode.ROUGH,
) -> ImportSummary:
    """Store an export's messages in order. The file is read twice, entry by entry: to check, then to store.

    A message is identified by its id or else by conversation, text, speaker, time and occurrence: importing a file
    again, also a corrected or longer one, adds only what is missing. With `on_bad="stop"` an unreadable record stops
    the import before anything is stored. Raises: InvalidInput, NotFound, Conflict (a stored message has the same id and
    other text).
    """
    zone = ZoneInfo(memos.cubes.get(cube, actor=actor).time_zone)
    found = format or detect(path)
    doing = Import(memos, path, found, actor, on_bad, on_progress, mode=member_of("mode", mode, Mode))
    return import_parts(doing, [Part(cube, zone, lambda: read_export(path, found, conversation))])


@dataclass(frozen=True, slots=True)
class PreviewedMessage:
    """A message of an export as it would be stored, with secrets masked and long texts cut."""

    conversation: str
    speaker: str
    role: str
    said_at: datetime | None
    text: str


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """Preview of a chat export; nothing is stored."""

    format: str
    messages: int
    conversations: int
    left_out: int
    bad: tuple[BadRecord, ...]
    bad_count: int
    first: tuple[PreviewedMessage, ...]
    more: bool


def preview_export(
    memos: MemOS,
    path: Path,
    *,
    cube: str,
    actor: str = LOCAL_OWNER,
    conversation: str | None = None,
    format: Format | None = None,
    limit: int = 2_000,
) -> ImportPreview:
    """Read the first `limit` records of an export and say what would be stored. Raises: InvalidInput, NotFound."""
    zone = ZoneInfo(memos.cubes.get(cube, actor=actor).time_zone)
    found = format or detect(path)
    records = checked(read_export(path, found, conversation), zone, memos.clock.now())
    read = [entry.record for entry in islice(records, within("limit", limit, 1, 10_000) + 1)]
    more = len(read) > limit
    read = read[:limit]
    good = [record for record in read if record.problem is None and record.message]
    bad = [BadRecord(record.place, record.problem) for record in read if record.problem is not None]
    return ImportPreview(
        found,
        len(good),
        len({record.conversation for record in good}),
        sum(record.left_out for record in read),
        tuple(bad[:_SHOWN_BAD]),
        len(bad),
        tuple(_previewed(record, zone, memos.clock.now()) for record in good[:_SHOWN]),
        more,
    )


def _previewed(record: ExportRecord, zone: ZoneInfo, now: datetime) -> PreviewedMessage:
    [message] = read_messages([record.message], zone, now)
    text, _ = mask(message.text)
    text = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    said_at = message.chat_time if "chat_time" in record.message else None
    return PreviewedMessage(record.conversation, message.name or str(message.role), str(message.role), said_at, text)


def import_parts(doing: Import, parts: Sequence[Part], begin: Callable[[], None] = lambda: None) -> ImportSummary:
    """Check all parts, call `begin`, then store them, as `import_export` does with one.

    Raises: InvalidInput, NotFound, Conflict (as `import_export`).
    """
    now = doing.memos.clock.now()

    def reading(part: Part) -> Iterator[CheckedRecord]:
        return checked(part.read(), part.zone, now)

    surveys = [_survey(reading(part), doing) for part in parts]
    begin()
    bad = [entry for survey in surveys for entry in survey.bad]
    total = len(bad) + sum(survey.readable for survey in surveys)
    added = known = masked = 0
    indexed = True
    for part in parts:
        for batch in _batches(_readable(reading(part), doing)):
            outcome = _store(doing, part.cube, batch)
            added = added + outcome.added
            known = known + outcome.known
            indexed = indexed and outcome.indexed
            masked += outcome.masked
            bad += outcome.bad
            if doing.on_progress is not None:
                doing.on_progress(len(bad) + added + known, total)
    return ImportSummary(
        added=added,
        known=known,
        bad=tuple(bad),
        conversations=sum(len(survey.conversations) for survey in surveys),
        left_out=sum(survey.left_out for survey in surveys),
        out_of_order=sum(survey.out_of_order for survey in surveys),
        format=doing.format,
        indexed=indexed,
        note=doing.note,
        masked=masked,
    )


@dataclass(slots=True)
class _Survey:
    readable: int = 0
    left_out: int = 0
    out_of_order: int = 0
    bad: list[BadRecord] = field(default_factory=list)
    conversations: set[str] = field(default_factory=set)


def _survey(records: Iterable[CheckedRecord], doing: Import) -> _Survey:
    survey = _Survey()
    for entry in records:
        record = entry.record
        survey.left_out += record.left_out
        if record.problem is not None:
            if doing.on_bad == "stop":
                raise InvalidInput(str(doing.path), f"{record.place} {record.problem}; {_REMEDY}")
            survey.bad.append(BadRecord(record.place, record.problem))
        elif record.message:
            survey.readable += 1
            survey.out_of_order += entry.late
            survey.conversations.add(record.conversation)
    return survey


def _readable(records: Iterable[CheckedRecord], doing: Import) -> Iterator[ExportRecord]:
    for entry in records:
        record = entry.record
        if record.problem is not None and doing.on_bad == "stop":
            told = f"{record.place} {record.problem}; the file was changed while it was read; import it again"
            raise InvalidInput(str(doing.path), told)
        if record.problem is None and record.message:
            yield record


def _batches(records: Iterable[ExportRecord]) -> Iterator[list[ExportRecord]]:
    for _, run in groupby(records, key=lambda record: (record.conversation, record.tags, record.info)):
        while batch := list(islice(run, BATCH)):
            yield batch


@dataclass(frozen=True, slots=True)
class _Outcome:
    added: int = 0
    known: int = 0
    bad: tuple[BadRecord, ...] = ()
    indexed: bool = True
    masked: int = 0


def _store(doing: Import, cube: str, batch: list[ExportRecord]) -> _Outcome:
    first = batch[0]
    try:
        receipt = doing.memos.add(
            [record.message for record in batch],
            cube=cube,
            actor=doing.actor,
            conversation=first.conversation,
            tags=first.tags,
            info=first.info,
            mode=doing.mode,
        )
    except Conflict as error:
        if doing.on_bad == "stop":
            place = first.place if len(batch) == 1 else f"{first.place} to {batch[-1].place}"
            raise Conflict(f"{doing.path}: {place}: {error} Or {_REMEDY}.") from error
        if len(batch) == 1:
            return _Outcome(bad=(BadRecord(first.place, str(error)),))
    else:
        before = len(receipt.duplicates)
        masked = sum(each.count for each in receipt.masked)
        return _Outcome(len(receipt.item_ids) - before, before, indexed=receipt.indexed, masked=masked)
    parts = [_store(doing, cube, [record]) for record in batch]
    return _Outcome(
        sum(part.added for part in parts),
        sum(part.known for part in parts),
        tuple(entry for part in parts for entry in part.bad),
        all(part.indexed for part in parts),
        sum(part.masked for part in parts),
    )
