"""Imports exports of other programs into cubes: checked first, then batch by batch; resumable, bad records reported."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Literal
from zoneinfo import ZoneInfo

from memos.core.text.redaction import mask
from memos.core.types import LOCAL_OWNER, AddReceipt, Item, ItemType, Mode
from memos.errors import BackendUnavailable, Conflict, InvalidInput, NotFound
from memos.kernel.memories import Addition
from memos.kernel.memos import MemOS
from memos.reader.arguments import member_of, within, zone_of
from memos.reader.importers.base import ExportRecord
from memos.reader.importers.formats import CheckedRecord, Format, checked, detect, label_of, read_export
from memos.reader.importers.sources import ExportOptions, Given
from memos.reader.messages import read_messages

OnBad = Literal["stop", "skip"]
Owners = Literal["refuse", "split", "together"]

BATCH = 50  # messages of one transaction: small enough to show progress, large enough to share a flush
_SHOWN = 20
_SHOWN_BAD = 50
_SHOWN_CHARS = 500
_SHOWN_OWNERS = 5
_REMEDY = "fix it, or skip bad records (--on-bad skip)"
_OTHERS = "memories of other owners"
IMPORTED = "imported again"
"""Why a version was written that an import brought."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was not stored, and why."""

    place: str
    problem: str


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The result of an import: messages stored now, known before, and refused.

    `updated` counts known memories that the other program has changed since. `left_out` counts what is not taken, such
    as hidden and empty turns, other branches, reasoning, and `left_out_by` says how many for which reason;
    `out_of_order` counts messages earlier than the one before, stored in the file's order. `note` names parts of the
    format that are not imported. `masked` counts secrets and, where the cube masks it, personal data that was not
    stored. `cubes` are those that were written to.
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
    updated: int = 0
    left_out_by: Mapping[str, int] = field(default_factory=dict)
    cubes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Import:
    """The options of an import: source, user, and how to treat bad records and several owners.

    `on_progress` gets the number of messages done and the total. `owner` is the one whose memories are taken; without
    it, those of several owners are refused, split into a cube each, or put together.
    """

    memos: MemOS
    path: str
    format: str
    actor: str = LOCAL_OWNER
    on_bad: OnBad = "skip"
    on_progress: Callable[[int, int], None] | None = None
    note: str = ""
    mode: str = Mode.ROUGH
    owner: str | None = None
    owners: Owners = "refuse"


@dataclass(frozen=True, slots=True)
class Part:
    """The input of one cube; `read` yields its records from the beginning on every call."""

    cube: str
    zone: ZoneInfo
    read: Callable[[], Iterator[ExportRecord]]


def import_export(  # noqa: PLR0913 - one keyword an option of the command
    memos: MemOS,
    path: Given,
    *,
    cube: str,
    actor: str = LOCAL_OWNER,
    conversation: str | None = None,
    format: Format | None = None,
    on_bad: OnBad = "skip",
    on_progress: Callable[[int, int], None] | None = None,
    mode: str = Mode.ROUGH,
    owner: str | None = None,
    owners: Owners = "refuse",
    time_zone: str | None = None,
    options: ExportOptions = ExportOptions(),  # noqa: B008 - it is frozen
) -> ImportSummary:
    """Store an export's messages in order. It is read twice, entry by entry: to check, then to store.

    A message is identified by its id or else by conversation, text, speaker, time and occurrence: importing a file
    again, also a corrected or longer one, adds only what is missing. A memory that the other program changed since is
    updated, unless it was changed here.

    Args:
        memos: The installation.
        path: A file, a ZIP archive, a folder, a pattern, several of these, or the URL of a Qdrant or Neo4j server.
        cube: The cube to store into.
        actor: Who imports.
        conversation: Conversation of messages without one; by default the name of their file.
        format: What the export is of; by default it is recognised.
        on_bad: What to do at a record that cannot be read; `stop` ends the import before anything is stored.
        on_progress: Gets the number of messages done and the total.
        mode: `fine` also reads the messages into facts, in the background.
        owner: Take only the memories of this user of the other program.
        owners: What to do with memories of several users: `refuse`, `split` into a cube each, or keep `together`.
        time_zone: Time zone of times without an offset; by default the cube's.
        options: What the export does not say of itself.

    Raises:
        InvalidInput: It cannot be read, or holds memories of several owners.
        NotFound: The cube does not exist.
        Conflict: A stored message has the same id and other text, with `on_bad="stop"`.
    """
    zone = ZoneInfo(memos.cubes.get(cube, actor=actor).time_zone) if time_zone is None else zone_of(time_zone)
    memos.cubes.get(cube, actor=actor)
    found = format or detect(path, options.name)
    mode_ = member_of("mode", mode, Mode)
    doing = Import(memos, label_of(path), found, actor, on_bad, on_progress, mode=mode_, owner=owner, owners=owners)
    return import_parts(doing, [Part(cube, zone, lambda: read_export(path, found, conversation, options))])


def cube_of_owner(format: str, owner: str) -> str:
    """Return the cube that an import makes for one of several owners."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", owner):
        return f"{format}-{owner}"
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", owner)[:32]
    # The tilde is in no plain id, so no plain one can be spelt like this.
    return f"{format}-~{readable}~{hashlib.sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


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
    """Preview of an export; nothing is stored. `owners` are the users of the other program that it has."""

    format: str
    messages: int
    conversations: int
    left_out: int
    bad: tuple[BadRecord, ...]
    bad_count: int
    first: tuple[PreviewedMessage, ...]
    more: bool
    left_out_by: Mapping[str, int] = field(default_factory=dict)
    owners: tuple[str, ...] = ()


def preview_export(  # noqa: PLR0913 - one keyword an option
    memos: MemOS,
    path: Given,
    *,
    cube: str,
    actor: str = LOCAL_OWNER,
    conversation: str | None = None,
    format: Format | None = None,
    limit: int = 2_000,
    time_zone: str | None = None,
    options: ExportOptions = ExportOptions(),  # noqa: B008 - it is frozen
) -> ImportPreview:
    """Read the first `limit` records of an export and say what would be stored. Raises: InvalidInput, NotFound."""
    own = memos.cubes.get(cube, actor=actor).time_zone
    zone = ZoneInfo(own) if time_zone is None else zone_of(time_zone)
    found = format or detect(path, options.name)
    records = checked(read_export(path, found, conversation, options), zone, memos.clock.now())
    read = [entry.record for entry in islice(records, within("limit", limit, 1, 10_000) + 1)]
    more = len(read) > limit
    read = read[:limit]
    good = [record for record in read if record.problem is None and record.message]
    bad = [BadRecord(record.place, record.problem) for record in read if record.problem is not None]
    reasons: Counter[str] = Counter()
    for record in read:
        reasons[record.reason] += record.left_out
    return ImportPreview(
        found,
        len(good),
        len({record.conversation for record in good}),
        reasons.total(),
        tuple(bad[:_SHOWN_BAD]),
        len(bad),
        tuple(_previewed(record, zone, memos.clock.now()) for record in good[:_SHOWN]),
        more,
        dict(+reasons),
        tuple(sorted({record.owner for record in good if record.owner})),
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
        return _of_owner(checked(part.read(), part.zone, now), doing.owner)

    surveys = [_survey(reading(part), doing) for part in parts]
    for survey in surveys:
        _check_owners(survey, doing)
    begin()
    bad = [entry for survey in surveys for entry in survey.bad]
    total = len(bad) + sum(survey.readable for survey in surveys)
    cubes: dict[str, None] = {}
    done = _Outcome()
    for part, survey in zip(parts, surveys, strict=True):
        split = doing.owners == "split" and doing.owner is None and len(survey.owners) > 1
        for batch in _batches(_readable(reading(part), doing)):
            owner = batch[0][0].owner if split else ""
            cube = _owners_cube(doing, part.cube, owner) if owner else part.cube
            cubes[cube] = None
            done = done.plus(_store(doing, cube, batch))
            if doing.on_progress is not None:
                doing.on_progress(len(bad) + len(done.bad) + done.added + done.known + done.updated, total)
    reasons: Counter[str] = Counter()
    for survey in surveys:
        reasons.update(survey.left_out)
    return ImportSummary(
        added=done.added,
        known=done.known,
        bad=(*bad, *done.bad),
        conversations=sum(len(survey.conversations) for survey in surveys),
        left_out=reasons.total(),
        out_of_order=sum(survey.out_of_order for survey in surveys),
        format=doing.format,
        indexed=_indexed(doing),
        note=doing.note,
        masked=done.masked,
        updated=done.updated,
        left_out_by=dict(reasons),
        cubes=tuple(cubes),
    )


@dataclass(slots=True)
class _Survey:
    readable: int = 0
    out_of_order: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    bad: list[BadRecord] = field(default_factory=list)
    conversations: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)


def _of_owner(records: Iterable[CheckedRecord], owner: str | None) -> Iterator[CheckedRecord]:
    """Yield the records of one owner, and of nobody in particular; those of others count as left out."""
    for entry in records:
        record = entry.record
        if owner is None or record.owner in ("", owner):
            yield entry
        elif record.message:
            yield replace(entry, record=replace(record, message={}, left_out=1, reason=_OTHERS))


def _survey(records: Iterable[CheckedRecord], doing: Import) -> _Survey:
    survey = _Survey()
    for entry in records:
        record = entry.record
        if record.left_out:
            survey.left_out[record.reason] += record.left_out
        if record.problem is not None:
            if doing.on_bad == "stop":
                raise InvalidInput(doing.path, f"{record.place} {record.problem}; {_REMEDY}")
            survey.bad.append(BadRecord(record.place, record.problem))
        elif record.message:
            survey.readable += 1
            survey.out_of_order += entry.late
            survey.conversations.add(record.conversation)
            if record.owner:
                survey.owners.add(record.owner)
    return survey


def _check_owners(survey: _Survey, doing: Import) -> None:
    """Refuse to mix several people's memories in one cube unless asked to."""
    found = sorted(survey.owners)
    if doing.owner is not None and not survey.readable:
        raise InvalidInput("owner", f"{doing.owner!r:.80} has no memories there")
    if doing.owners == "refuse" and len(found) > 1:
        shown = ", ".join(each[:60] for each in found[:_SHOWN_OWNERS])
        more = f" and {len(found) - _SHOWN_OWNERS} more" if len(found) > _SHOWN_OWNERS else ""
        raise InvalidInput(
            "owners",
            f"are {len(found)} in this export ({shown}{more}), and would be mixed in one cube; take one with "
            "--owner NAME, give each a cube with --owners split, or say that they are one person's with --owners "
            "together",
        )


def _owners_cube(doing: Import, base: str, owner: str) -> str:
    """Return the cube of an owner, made if it is new, with the time zone of the cube that was named."""
    cube = cube_of_owner(doing.format, owner)
    try:
        doing.memos.cubes.get(cube, actor=doing.actor)
    except NotFound:
        zone = doing.memos.cubes.get(base, actor=doing.actor).time_zone
        described = f"{doing.format} user {owner[:100]!r}"
        doing.memos.cubes.create(cube, actor=doing.actor, description=described, time_zone=zone)
    return cube


def _readable(records: Iterable[CheckedRecord], doing: Import) -> Iterator[ExportRecord]:
    for entry in records:
        record = entry.record
        if record.problem is not None and doing.on_bad == "stop":
            told = f"{record.place} {record.problem}; the file was changed while it was read; import it again"
            raise InvalidInput(doing.path, told)
        if record.problem is None and record.message:
            yield record


def _indexed(doing: Import) -> bool:
    """Wait until what was stored is indexed, too; return False if an index is out of reach."""
    try:
        return doing.memos.maintenance.catch_up()
    except BackendUnavailable:
        return False


def _batches(records: Iterable[ExportRecord]) -> Iterator[list[list[ExportRecord]]]:
    """Yield what one transaction stores: records of one owner, by conversation, tags and info, in their order."""
    batch: list[list[ExportRecord]] = []
    for of, run in groupby(records, key=lambda record: (record.owner, record.conversation, record.tags, record.info)):
        while part := list(islice(run, BATCH)):
            if batch and (batch[0][0].owner != of[0] or len(part) + sum(map(len, batch)) > BATCH):
                yield batch
                batch = []
            batch.append(part)
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class _Outcome:
    added: int = 0
    known: int = 0
    updated: int = 0
    bad: tuple[BadRecord, ...] = ()
    masked: int = 0

    def plus(self, other: _Outcome) -> _Outcome:
        return _Outcome(
            self.added + other.added,
            self.known + other.known,
            self.updated + other.updated,
            (*self.bad, *other.bad),
            self.masked + other.masked,
        )


def _store(doing: Import, cube: str, batch: Sequence[Sequence[ExportRecord]]) -> _Outcome:
    additions = [
        Addition([record.message for record in part], part[0].conversation, part[0].tags, part[0].info)
        for part in batch
    ]
    try:
        receipts = doing.memos.memories.add_all(additions, cube=cube, actor=doing.actor, mode=doing.mode, wait=False)
    except Conflict as error:
        if len(batch) > 1:
            return _together(_store(doing, cube, [part]) for part in batch)
        return _in_conflict(doing, cube, batch[0], error)
    return _together(_stored(doing, cube, part, receipt) for part, receipt in zip(batch, receipts, strict=True))


def _together(outcomes: Iterable[_Outcome]) -> _Outcome:
    done = _Outcome()
    for outcome in outcomes:
        done = done.plus(outcome)
    return done


def _stored(doing: Import, cube: str, part: Sequence[ExportRecord], receipt: AddReceipt) -> _Outcome:
    before = len(receipt.duplicates)
    masked = sum(each.count for each in receipt.masked)
    updated = sum(
        _date(doing, cube, record, item) and item in receipt.duplicates
        for record, item in zip(part, receipt.item_ids, strict=True)
        if record.valid_from is not None or record.valid_to is not None
    )
    return _Outcome(len(receipt.item_ids) - before, before - updated, updated, masked=masked)


def _in_conflict(doing: Import, cube: str, part: Sequence[ExportRecord], error: Conflict) -> _Outcome:
    first = part[0]
    revised = any(record.revised for record in part)
    if len(part) == 1 and revised and error.item is not None:
        return _revise(doing, cube, first, error.item)
    if doing.on_bad == "stop" and not revised:
        place = first.place if len(part) == 1 else f"{first.place} to {part[-1].place}"
        raise Conflict(f"{doing.path}: {place}: {error} Or {_REMEDY}.") from error
    if len(part) == 1:
        return _Outcome(bad=(BadRecord(first.place, str(error)),))
    return _together(_store(doing, cube, [[record]]) for record in part)


def _revise(doing: Import, cube: str, record: ExportRecord, id_: str) -> _Outcome:
    """Write the newer text of a memory, unless it was changed or deleted here."""
    zone = ZoneInfo(doing.memos.cubes.get(cube, actor=doing.actor).time_zone)
    [message] = read_messages([record.message], zone, doing.memos.clock.now())
    item = _item(doing, cube, id_)
    if item is None or item.memory in (message.text, mask(message.text)[0]):
        return _Outcome(known=1)
    if not _is_as_imported(doing, cube, id_):
        told = f"was changed since, and so was item {id_} here, which is left as it is"
        return _Outcome(bad=(BadRecord(record.place, told),))
    doing.memos.update(id_, message.text, cube=cube, actor=doing.actor, reason=IMPORTED)
    _date(doing, cube, record, id_)
    return _Outcome(updated=1)


def _date(doing: Import, cube: str, record: ExportRecord, id_: str) -> bool:
    """Give a memory the time in which it held, as a fact that may be over; return True if that changed it."""
    if record.valid_from is None and record.valid_to is None:
        return False
    item = _item(doing, cube, id_)
    wanted: dict[str, Any] = {"valid_to": record.valid_to, "type": str(ItemType.LONG_TERM)}
    if record.valid_from is not None:
        wanted["valid_from"] = record.valid_from
    changed = {name: value for name, value in wanted.items() if getattr(item, name, value) != value}
    if item is None or not changed or not _is_as_imported(doing, cube, id_):
        return False
    doing.memos.update(id_, cube=cube, actor=doing.actor, reason=IMPORTED, **changed)
    return True


def _item(doing: Import, cube: str, id_: str) -> Item | None:
    """Return an item, None if it was deleted here: what was deleted stays so."""
    try:
        return doing.memos.get(id_, cube=cube, actor=doing.actor)
    except NotFound:
        return None


def _is_as_imported(doing: Import, cube: str, id_: str) -> bool:
    """Return True if nobody but an import has written a version of an item."""
    versions = doing.memos.memories.history(id_, cube=cube, actor=doing.actor)
    return all(version.reason in ("added", IMPORTED) for version in versions)
