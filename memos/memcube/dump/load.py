"""Loads a checked dump into a ledger, in one transaction: as a new cube, or into one that is there.

Whatever the file says, its rows are of the one cube they are loaded into, and refer to each other alone. Knows no
index; what the indexes have to follow is in the outbox.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy import exc

from memos.core.clock import Clock, from_micros, to_micros
from memos.core.graph import Alias
from memos.core.types import Cube, CubeKind, FileKind, FileState, Fingerprint, ItemType, Json, LinkKind, Tier, Trust
from memos.errors import Conflict
from memos.memcube import changes
from memos.memcube import erasure as erase
from memos.memcube import images as pictures
from memos.memcube.backup import rows
from memos.memcube.backup.files import ProgressReporter
from memos.memcube.backup.rows import ID, Bounds
from memos.memcube.changes import Change
from memos.memcube.dump import kv as dump_kv
from memos.memcube.dump.container import NAMES, TABLES, DumpReader, bad, left_out, part_of
from memos.memcube.dump.ids import OWN, IdResolution, Ids, Kind, other_id
from memos.memcube.dump.parts import contents, digest_of, link, unknown
from memos.memcube.ledger import cubes, entities, files, items, outbox, reading, records, tasks
from memos.memcube.ledger import cubes as templates
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as tiers
from memos.memcube.ledger.columns import CUBE, is_sealed
from memos.memcube.ledger.tasks import PRIORITY, NewTask

_NEW_REVISION = 1  # an index never saw these ids: what was erased here does not get them again

_REFERENCES: dict[str, dict[str, Kind]] = {
    "items": {"conversation_id": Kind.CONVERSATION, "version_id": Kind.VERSION},
    "versions": {"item_id": Kind.ITEM, "superseded_by": Kind.ITEM},
    "messages": {"conversation_id": Kind.CONVERSATION},
    "sources": {"item_id": Kind.ITEM, "message_id": Kind.MESSAGE, "extraction_id": Kind.EXTRACTION},
    "links": {"from_id": Kind.ITEM, "to_id": Kind.ITEM},
    "files": {"item_id": Kind.ITEM, "replaced_by": Kind.FILE},
    "file_items": {"item_id": Kind.ITEM, "file_id": Kind.FILE},
    "extraction_items": {"item_id": Kind.ITEM, "extraction_id": Kind.EXTRACTION},
    "pages": {"conversation_id": Kind.CONVERSATION, "segment_id": Kind.SEGMENT},
    "warmth": {"item_id": Kind.ITEM},
}
# What a row is part of: without that it is left out.
_OWNER = {
    "versions": "item_id", "sources": "item_id", "links": "from_id", "file_items": "item_id", "warmth": "item_id",
    "extraction_items": "extraction_id",
}  # fmt: skip
# Where ids may stand in the middle of something.
_QUOTING = {"versions": ("reason", "info"), "files": ("info",), "messages": ("content",), "segments": ("spans",)}
_SOMEWHERE = re.compile(ID.pattern)
_SHOWN = 1000
_TRIES = 20
_TABLES: dict[Kind, sa.Table] = {kind: t.metadata.tables[name] for name, kind in OWN.items()}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a dump goes and how far it is trusted.

    `keeps_ids`: who loads may see every cube, so that ids need not hide which others are taken. `sees` are the cubes
    the actor may look at, None for all; what was erased from those stays erased unless `restore_erased`.
    """

    cube: str
    actor: str
    merge: bool = False
    trust: bool = False
    restore_erased: bool = False
    keeps_ids: bool = True
    sees: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    cube: Annotated[str, "Cube it was loaded into"]
    merged: Annotated[bool, "Whether the cube existed before"]
    trusted: Annotated[bool, "Whether its memories are trusted"]
    items: Annotated[int, "Memories added"]
    versions: Annotated[int, "Their versions"]
    messages: Annotated[int, "Messages added"]
    files: Annotated[int, "Documents and images added"]
    skipped: Annotated[int, "Memories that existed at the same version"]
    differing: Annotated[tuple[str, ...], "Memories that existed at another version and were not changed"]
    erased: Annotated[int, "Memories left out because they were erased here"]
    unsourced: Annotated[int, "Memories left out: untrusted, with a message that exists here as their source"]
    left_out: Annotated[tuple[str, ...], "Parts that this version does not support"]
    kv_blocks: Annotated[int, "Blocks of activation memory loaded"] = 0
    kv_left_out: Annotated[str | None, "Why the file's blocks were left out"] = None
    adapters: Annotated[int, "Adapters that passed their evaluation here and can be activated"] = 0
    adapters_left_out: Annotated[str | None, "Why the file's other adapters were left out"] = None


@dataclass(frozen=True, slots=True)
class Load:
    reader: DumpReader
    bounds: Bounds
    ids: Ids
    target: Target
    fingerprint: Fingerprint
    clock: Clock
    ticker: ProgressReporter

    @property
    def vectors_fit(self) -> bool:
        return self.reader.manifest.embedder == self.fingerprint


def load(connection: sa.Connection, work: Load) -> Loaded:
    """Load a dump; whoever called commits or not. Raises: InvalidInput, Conflict, NotFound."""
    target, head = work.target, work.reader.manifest.cube
    try:
        if target.merge:
            change = changes.begin(connection, target.cube, target.actor, work.clock)
            _check_merge(connection, work)
            before = _problems(connection, target.cube, trusted=target.trust)
        else:
            _make(connection, work)
            change, before = None, set()
        secret = cubes.entity_salt(connection, target.cube)
        settling = _Settling(connection, work.reader, work.bounds, work.ids, target, secret)
        _settle(settling)
        _refuse_all_erased(work, settling.erased)
        _insert_everything(connection, work, change)
        if target.trust and not target.merge:
            dump_kv.load_prefix(connection, work.reader, work.ids, target.cube, work.bounds.now)
        if change is None:
            _settle_chain(connection, target.cube, head.event_seq)
            change = changes.begin(connection, target.cube, target.actor, work.clock)
        if fresh := sorted(_problems(connection, target.cube, trusted=target.trust) - before):
            raise bad(f"its rows are inconsistent ({fresh[0]})")
        return _finish(change, work, settling.erased)
    except exc.IntegrityError as error:
        why = " ".join(str(error.orig).split("DETAIL:")[0].split())  # what follows shows values
        raise bad(f"its rows contradict each other ({why})") from error


def size_of(connection: sa.Connection, work: Load) -> int:
    if is_sealed(connection):
        v, f = t.versions.c, t.files.c
        made = [id_ for batch in work.ids.new_ids(Kind.ITEM) for id_ in batch]
        stored = [id_ for batch in work.ids.new_ids(Kind.FILE) for id_ in batch]
        texts: int = sum(len(x.encode()) for x in items.scalars_in(connection, sa.select(v.memory), v.item_id, made))
        files_bytes: int = sum(items.scalars_in(connection, sa.select(f.bytes), f.id, stored))
        return texts + files_bytes
    text = sa.cast(t.versions.c.memory, sa.LargeBinary)
    size = sa.func.length(text) if connection.dialect.name == "sqlite" else sa.func.octet_length(t.versions.c.memory)
    queries = (
        (Kind.ITEM, sa.select(sa.func.sum(size)), t.versions.c.item_id),
        (Kind.FILE, sa.select(sa.func.sum(t.files.c.bytes)), t.files.c.id),
    )
    return sum(
        int(connection.scalar(query.where(column.in_(batch))) or 0)
        for kind, query, column in queries
        for batch in work.ids.new_ids(kind)
    )


def _make(connection: sa.Connection, work: Load) -> None:
    head, target = work.reader.manifest.cube, work.target
    # Of a cube that was dropped here this is another one: a restored backup must not drop it again.
    dropped = sa.select(t.tombstones.c.id).where(t.tombstones.c.cube_id == target.cube).limit(1)
    made = from_micros(head.created_at) if connection.scalar(dropped) is None else work.clock.now()
    new = Cube(target.cube, target.actor, head.description, head.time_zone, work.fingerprint, made)
    cubes.create(connection, replace(new, kind=CubeKind(head.kind), redact_pii=head.redact_pii))
    until = None if head.lone_until is None else from_micros(head.lone_until)
    own = t.cubes.c.id == target.cube
    connection.execute(sa.update(t.cubes).where(own).values(heat_tau_s=head.heat_tau_s, lone_until=until))
    if target.trust and head.template is not None:
        templates.set_template(connection, target.cube, head.template)


def _check_merge(connection: sa.Connection, work: Load) -> None:
    here = cubes.get(connection, work.target.cube)
    if here.redact_pii and not work.reader.manifest.cube.redact_pii:
        raise Conflict(
            f"Cube {here.id!r} masks personal data, but the cube in the file does not; load the file as a new cube."
        )


def _refuse_all_erased(work: Load, erased: Mapping[str, str]) -> None:
    new = work.ids.count(Kind.ITEM, IdResolution.NEW)
    if new and len(erased) >= new and not work.target.merge:
        raise Conflict(
            "All memories of this file were erased here since, or the cube was dropped; to restore them, load it with "
            "restore_erased (--restore-erased)."
        )


def _insert_everything(connection: sa.Connection, work: Load, change: Change | None) -> None:
    if work.target.merge:
        _place_conversations(connection, work)
    for table in TABLES:
        if table is t.events and work.target.merge:
            continue
        entries = _events(work) if table is t.events else _rows(work, table, change)
        rows.insert_all(connection, table, entries, work.ticker)
        if table is t.files:
            _insert_contents(connection, work)
    entities.rebuild(connection, work.target.cube)
    if work.target.trust and work.reader.has(NAMES):
        merged = work.reader.rows(t.entity_aliases, work.bounds)
        entities.add_aliases(connection, work.target.cube, (_alias(row, work.target.actor) for row in merged))


def _alias(row: rows.Row, actor: str) -> Alias:
    return Alias(row["id"], row["name"], row["entity"], row["root"], actor, from_micros(row["created_at"]))


def _rows(work: Load, table: sa.Table, change: Change | None) -> Iterator[rows.Row]:
    if table is t.warmth and work.target.merge:
        return
    own = _own(work, table)
    for number, row in enumerate(work.reader.rows(table, work.bounds), start=1):
        owner = _OWNER.get(table.name)
        if owner is not None:
            kind = _REFERENCES[table.name][owner]
            if _found(work.ids, kind, row[owner], table, number)[1] is not IdResolution.NEW:
                continue
        old = row.get("id", "")
        if table.name in OWN:
            row["id"], fate = _found(work.ids, OWN[table.name], old, table, number)
            if fate is not IdResolution.NEW:
                continue
        if _is_cut(work, table, row, number):
            continue
        _rename(work, table, row, number)
        _adapt(work, table, row, old, change)
        yield row | own


def _own(work: Load, table: sa.Table) -> rows.Row:
    own = {"cube_id": work.target.cube, "revision": _NEW_REVISION}
    return {name: own[name] for name in left_out(table)}


def _found(ids: Ids, kind: Kind, old: str, table: sa.Table, number: int) -> tuple[str, IdResolution]:
    found = ids.find(kind, old)
    if found is None:
        raise bad(f"{part_of(table)}, line {number} refers to a {kind.name.lower()} that is missing in the file")
    return found


def _is_cut(work: Load, table: sa.Table, row: dict[str, Any], number: int) -> bool:
    if table is t.extraction_items:
        return _found(work.ids, Kind.ITEM, row["item_id"], table, number)[1] is IdResolution.LEFT_OUT
    if table is not t.links:
        return False
    fate = _found(work.ids, Kind.ITEM, row["to_id"], table, number)[1]
    # What was made of something goes when that is erased, whoever says so.
    strange = fate is IdResolution.KEPT and not work.target.trust and row["kind"] != LinkKind.DERIVED_FROM
    return fate is IdResolution.LEFT_OUT or strange


def _rename(work: Load, table: sa.Table, row: dict[str, Any], number: int) -> None:
    for column, kind in _REFERENCES.get(table.name, {}).items():
        if row[column] is not None:
            id_, fate = _found(work.ids, kind, row[column], table, number)
            row[column] = None if fate is IdResolution.LEFT_OUT and table.c[column].nullable else id_
    if work.ids.changed:
        for column in _QUOTING.get(table.name, ()):
            row[column] = _requoted(work.ids, row[column])


def _requoted(ids: Ids, value: Any) -> Any:
    """Return a value with the ids of here wherever one of the dump's stands in it."""
    if isinstance(value, str):
        return _SOMEWHERE.sub(lambda found: ids.anything(found[0]) or found[0], value)
    if isinstance(value, list):
        return [_requoted(ids, entry) for entry in value]
    if isinstance(value, dict):
        return {name: _requoted(ids, entry) for name, entry in value.items()}
    return value


def _adapt(work: Load, table: sa.Table, row: dict[str, Any], old: str, change: Change | None) -> None:
    """Change what is otherwise in this installation: trust, tiers, vectors, places; `old` is the dump's id."""
    if table is t.messages and not work.target.trust:
        row["trust"] = str(Trust.UNTRUSTED)
    elif table is t.segments and not work.vectors_fit:
        row["vector"] = None
    if change is None:
        return
    if table is t.conversations:
        row["first_short"] = 0
    elif table is t.items:
        row["created_at"], row["cold"] = to_micros(change.now), False
        if (place := work.ids.place_of(old)) is not None:
            row["position"], row["page"], row["session"] = place
    elif table is t.versions and row["type"] == ItemType.MESSAGE and row["tier"] == Tier.MID:
        row["tier"] = str(Tier.SHORT)


def _place_conversations(connection: sa.Connection, work: Load) -> None:
    for row in work.reader.rows(t.conversations, work.bounds):
        found = work.ids.find(Kind.CONVERSATION, row["id"])
        if found is None or found[1] is not IdResolution.KEPT:
            continue
        mine = t.conversations.c.id == found[0]
        here = connection.execute(sa.select(t.conversations).where(mine)).one()
        last = work.ids.append(row["id"], (here.next_position - 1, here.next_page, here.session))
        if last is not None:
            at = None if row["said_at"] is None else from_micros(row["said_at"])
            values = {"next_position": last[0] + 1, "next_page": last[1], "session": last[2], "said_at": at}
            connection.execute(sa.update(t.conversations).where(mine).values(values))


def _insert_contents(connection: sa.Connection, work: Load) -> None:
    for name, part in contents(work.reader):
        id_, fate = work.ids.find(Kind.FILE, name.removeprefix("files/")) or ("", IdResolution.LEFT_OUT)
        if not id_:
            raise bad(f"{name} belongs to no file in it")
        held, ordinal = bytearray(), 0
        for block in work.reader.blocks(name, part):
            held += block
            while len(held) >= files.PART_BYTES:
                _insert_part(connection, work, fate, id_, ordinal, bytes(held[: files.PART_BYTES]))
                del held[: files.PART_BYTES]
                ordinal += 1
        if held:
            _insert_part(connection, work, fate, id_, ordinal, bytes(held))


def _insert_part(
    connection: sa.Connection, work: Load, fate: IdResolution, file: str, ordinal: int, data: bytes
) -> None:
    if fate is IdResolution.NEW:
        part = sa.insert(t.file_parts).values(file_id=file, ordinal=ordinal, data=data)
        connection.execute(part, execution_options={CUBE: work.target.cube})


def _events(work: Load) -> Iterator[rows.Row]:
    end, own = bytes(32), _own(work, t.events)
    for row in work.reader.rows(t.events, work.bounds):
        if work.ids.changed:
            if row["item_id"] is not None:
                row["item_id"] = work.ids.anything(row["item_id"]) or row["item_id"]
            digest = base64.b64decode(row["digest"])
            if row["body"] is not None:
                told: Json = _requoted(work.ids, json.loads(row["body"]))
                row["body"] = json.dumps(told, ensure_ascii=False, sort_keys=True)
                digest = digest_of(base64.b64decode(row["salt"]), row["body"])
            end = link(end, row["seq"], digest)
            row["digest"], row["chain"] = (base64.b64encode(each).decode() for each in (digest, end))
        yield row | own


def _settle_chain(connection: sa.Connection, cube: str, seq: int) -> None:
    mine = sa.and_(t.events.c.cube_id == cube, t.events.c.seq == seq)
    end = connection.scalar(sa.select(t.events.c.chain).where(mine))
    segments = sa.select(sa.func.count()).where(t.segments.c.cube_id == cube).scalar_subquery()
    values = {"event_seq": seq, "event_chain": bytes(32) if end is None else end, "segments": segments}
    connection.execute(sa.update(t.cubes).where(t.cubes.c.id == cube).values(values))


def _finish(change: Change, work: Load, erased: Mapping[str, str]) -> Loaded:
    """Tell the indexes, the tasks and the chain; erase again what was erased here."""
    connection, cube, ids = change.connection, change.cube, work.ids
    told = {"from": work.reader.manifest.cube.id, "manifest": work.reader.manifest_sha256, "trusted": work.target.trust}
    changes.record(change, "load", told)
    for batch in ids.new_ids(Kind.ITEM):
        outbox.enqueue(connection, cube, batch)
        changes.record(change, "load", {"items": batch})
    _leave_tasks(change, work)
    by_receipt: dict[str, list[str]] = {}
    for id_, receipt in erased.items():
        by_receipt.setdefault(receipt, []).append(id_)
    before = _count(connection, cube)
    for receipt, gone in by_receipt.items():
        erase.erase_again(change, receipt, _still_there(connection, gone))
    skipped, differing = _compare_kept(connection, work)
    gone_items = before - _count(connection, cube)
    return Loaded(
        cube,
        work.target.merge,
        work.target.trust,
        ids.count(Kind.ITEM, IdResolution.NEW) - gone_items,
        _written(connection, ids),
        ids.count(Kind.MESSAGE, IdResolution.NEW),
        ids.count(Kind.FILE, IdResolution.NEW),
        skipped,
        differing,
        gone_items,
        ids.count(Kind.ITEM, IdResolution.LEFT_OUT),
        unknown(work.reader),
    )


def _leave_tasks(change: Change, work: Load) -> None:
    """Leave what was waiting where the dump comes from: messages to read, files to read, segments to make again."""
    connection, cube, now = change.connection, change.cube, change.now
    wanted = sa.select(t.items.c.conversation_id).where(t.items.c.cube_id == cube, t.items.c.reading == "wanted")
    new = [reading.read_task(conversation) for conversation in connection.scalars(wanted.distinct())]
    unread = sa.select(t.files.c.id, t.files.c.kind).where(
        t.files.c.cube_id == cube, t.files.c.state == FileState.PROCESSING
    )
    for file, kind in connection.execute(unread):
        reading_of = NewTask(files.READ, {"file": file}, key=file, priority=PRIORITY - 1)
        new.append(pictures.describe_task(file) if kind == FileKind.IMAGE else reading_of)
    new.append(tiers.overflow_task(None, now))  # conversations that are too long are looked for anyway
    if not work.target.merge and not work.vectors_fit:
        segments = list(connection.scalars(sa.select(t.segments.c.id).where(t.segments.c.cube_id == cube)))
        tiers.remake(connection, cube, segments, now)
    tasks.enqueue(connection, cube, new, now)


def _still_there(connection: sa.Connection, ids: Iterable[str]) -> list[str]:
    """Return those of these ids that are items or files; what is erased takes along what was made of it."""
    wanted = list(ids)
    columns = (t.items.c.id, t.files.c.id)
    return [id_ for column in columns for id_ in items.scalars_in(connection, sa.select(column), column, wanted)]


def _count(connection: sa.Connection, cube: str) -> int:
    return connection.scalar(sa.select(sa.func.count()).where(t.items.c.cube_id == cube)) or 0


def _written(connection: sa.Connection, ids: Ids) -> int:
    query = sa.select(sa.func.count())
    counts = (connection.scalar(query.where(t.versions.c.item_id.in_(batch))) for batch in ids.new_ids(Kind.ITEM))
    return sum(count or 0 for count in counts)


def _compare_kept(connection: sa.Connection, work: Load) -> tuple[int, tuple[str, ...]]:
    skipped, differing = 0, []
    if not work.ids.count(Kind.ITEM, IdResolution.KEPT):
        return 0, ()
    for row in work.reader.rows(t.items, work.bounds):
        id_, fate = work.ids.find(Kind.ITEM, row["id"]) or ("", IdResolution.NEW)
        if fate is IdResolution.KEPT:
            version = work.ids.find(Kind.VERSION, row["version_id"])
            here = connection.scalar(sa.select(t.items.c.version_id).where(t.items.c.id == id_))
            if version is not None and version[0] == here:
                skipped += 1
            else:
                differing.append(id_)
    return skipped, tuple(differing)


# Ids of loaded rows. An id is kept if it is free. One that is taken, here or in another cube, is replaced with an
# unpredictable one, without a notice to the loader. What this cube already has keeps its id and stays as it is.


@dataclass(slots=True)
class _Settling:
    connection: sa.Connection
    reader: DumpReader
    bounds: Bounds
    ids: Ids
    target: Target
    secret: bytes
    erased: dict[str, str] = field(default_factory=dict)


def _settle(work: _Settling) -> None:
    ids, target = work.ids, work.target
    left_out = {Kind.SEGMENT, Kind.PAGE, Kind.RULE} if target.merge else set() if target.trust else {Kind.RULE}
    if target.merge:
        _settle_conversations(work)
        _settle_messages(work)
        _settle_records(work)
    for kind in Kind:
        for batch in ids.batches(kind):
            if kind in left_out:
                for old in batch:
                    ids.settle(kind, old, old, IdResolution.LEFT_OUT)
                continue
            if kind is Kind.PAGE:
                batch = _pages_of_items(ids, batch)  # noqa: PLW2901 - what is left of it
            _settle_batch(work, kind, [old for old in batch if ids.find(kind, old) is None])
    if target.merge and not target.trust:
        # Nobody is to put words into the mouth of a message that is trusted here.
        ids.leave_out_unspoken()
    ids.leave_out_empty(Kind.EXTRACTION)
    if target.merge:
        ids.leave_out_empty(Kind.MESSAGE)


def _settle_batch(work: _Settling, kind: Kind, batch: Sequence[str]) -> None:
    target = work.target
    holders = _holders(work.connection, kind, batch)
    buried = _buried(work, kind, batch)
    left: list[str] = []
    for old in batch:
        if target.merge and holders.get(old) == target.cube:
            work.ids.settle(kind, old, old, IdResolution.KEPT)
        elif not target.keeps_ids or old in holders or not _settle_new(work, kind, old, old, buried):
            left.append(old)
    for number in range(_TRIES):
        if not left:
            return
        wanted = {old: other_id(work.secret, kind, old, number) for old in left}
        holders = _holders(work.connection, kind, wanted.values())
        buried |= _buried(work, kind, wanted.values())
        still: list[str] = []
        for old, new in wanted.items():
            if target.merge and holders.get(new) == target.cube:
                done = work.ids.settle(kind, old, new, IdResolution.KEPT)
            else:
                done = new not in holders and _settle_new(work, kind, old, new, buried)
            if not done:
                still.append(old)
        left = still
    if left:
        raise Conflict("The ids in this file conflict with ids here; load it under another id.")


def _settle_new(work: _Settling, kind: Kind, old: str, new: str, buried: Mapping[str, str | None]) -> bool:
    """Give an id to a new row, unless something that was erased had it and must not be known by it again."""
    receipt = None if work.target.restore_erased else buried.get(old) or buried.get(new)
    if new in buried and receipt is None:
        return False
    if not work.ids.settle(kind, old, new, IdResolution.NEW):
        return False
    if receipt is not None:
        work.erased[new] = receipt
    return True


def _holders(connection: sa.Connection, kind: Kind, ids: Iterable[str]) -> dict[str, str]:
    table, wanted = _TABLES[kind], list(ids)
    found = connection.execute(sa.select(table.c.id, table.c.cube_id).where(table.c.id.in_(wanted))) if wanted else ()
    return {row.id: row.cube_id for row in found}


def _buried(work: _Settling, kind: Kind, ids: Iterable[str]) -> dict[str, str | None]:
    wanted, target = list(ids), work.target
    if kind not in (Kind.ITEM, Kind.FILE) or not wanted:
        return {}
    graves = t.tombstone_items.join(t.tombstones, t.tombstones.c.id == t.tombstone_items.c.tombstone_id)
    columns = (t.tombstone_items.c.item_id, t.tombstones.c.id, t.tombstones.c.cube_id, t.tombstones.c.actor)
    query = sa.select(*columns).select_from(graves).where(t.tombstone_items.c.item_id.in_(wanted))
    found: dict[str, str | None] = {}
    for row in work.connection.execute(query):
        mine = row.cube_id == target.cube or row.actor == target.actor
        found[row.item_id] = row.id if mine or target.sees is None or row.cube_id in target.sees else None
    return found


def _pages_of_items(ids: Ids, batch: Sequence[str]) -> list[str]:
    """Give each page the new id of its first message; return the pages without their first message."""
    left = []
    for old in batch:
        item = ids.find(Kind.ITEM, old)
        if item is None or not ids.settle(Kind.PAGE, old, item[0], IdResolution.NEW):
            left.append(old)
    return left


def _settle_conversations(work: _Settling) -> None:
    for batch in rows.batches(work.reader.rows(t.conversations, work.bounds)):
        names = {row["name"]: row["id"] for row in batch}
        here = (t.conversations.c.cube_id == work.target.cube, t.conversations.c.name.in_(names))
        for row in work.connection.execute(sa.select(t.conversations.c.id, t.conversations.c.name).where(*here)):
            work.ids.settle(Kind.CONVERSATION, names[row.name], row.id, IdResolution.KEPT)


def _settle_messages(work: _Settling) -> None:
    ids = work.ids
    named = (row for row in work.reader.rows(t.messages, work.bounds) if row["external_id"] is not None)
    for batch in rows.batches(named):
        known = _known_messages(work, [row["external_id"] for row in batch])
        for row in batch:
            talk = None if row["conversation_id"] is None else ids.find(Kind.CONVERSATION, row["conversation_id"])
            if row["conversation_id"] is not None and talk is None:
                continue
            same = known.get((None if talk is None else talk[0], row["external_id"]))
            item = ids.item_of(row["id"])
            if same is not None and item is not None:
                ids.settle(Kind.MESSAGE, row["id"], same.id, IdResolution.KEPT)
                ids.settle(Kind.ITEM, item[0], same.item_id, IdResolution.KEPT)
                if same.text == row["text"] and same.version == 1:
                    ids.settle(Kind.VERSION, item[1], same.version_id, IdResolution.KEPT)


def _settle_records(work: _Settling) -> None:
    """Keep the records that are here under the same ids; what has expired here gives its id up."""
    now = from_micros(work.bounds.now)
    named = (row for row in work.reader.rows(t.items, work.bounds) if row["record_id"] is not None)
    for batch in rows.batches(named):
        here = records.find(work.connection, work.target.cube, [row["record_id"] for row in batch])
        gone = {id_: row.item for id_, row in here.items() if row.expires_at is not None and row.expires_at <= now}
        records.release(work.connection, gone.values())
        for row in batch:
            if row["record_id"] in here and row["record_id"] not in gone:
                work.ids.settle(Kind.ITEM, row["id"], here[row["record_id"]].item, IdResolution.KEPT)


def _known_messages(work: _Settling, named: Sequence[str]) -> dict[tuple[str | None, str], Any]:
    m, v = t.messages.c, t.versions.c
    its = (t.sources.c.item_id, v.id.label("version_id"), v.version)
    here = sa.select(m.id, m.external_id, m.conversation_id, m.text, *its)
    here = here.join(t.sources, t.sources.c.message_id == m.id).join(t.versions, v.item_id == t.sources.c.item_id)
    here = here.where(m.cube_id == work.target.cube, m.external_id.in_(named))
    here = here.where(v.recorded_to.is_(None), v.type == ItemType.MESSAGE)
    return {(row.conversation_id, row.external_id): row for row in work.connection.execute(here)}


# Whether a cube's rows belong together, before a load is committed.


def _problems(connection: sa.Connection, cube: str, *, trusted: bool) -> set[str]:
    """Return what is wrong with a cube, with ids alone; items that are `trusted` need no source."""
    found = {f"{subject} {what}" for subject, what in tiers.misplaced(connection, cube, _SHOWN)}
    found |= {f"{file} {what}" for file, what in files.broken(connection, cube, _SHOWN)}
    queries = {
        "has a current version that does not exist": _without_version(cube),
        "has a gap in its versions": _gaps(cube),
        "has no source": _sourceless(cube, trusted=trusted),
        "comes after the end of its conversation": _beyond(cube),
        "has the id of a record and is none": _no_record(cube),
    }
    for what, query in queries.items():
        found |= {f"{id_} {what}" for id_ in connection.scalars(query.limit(_SHOWN))}
    return found


def _without_version(cube: str) -> sa.Select[tuple[str]]:
    v = t.versions.c
    same = sa.and_(
        v.id == t.items.c.version_id, v.item_id == t.items.c.id, v.version == t.items.c.version, v.recorded_to.is_(None)
    )
    return sa.select(t.items.c.id).outerjoin(t.versions, same).where(t.items.c.cube_id == cube, v.id.is_(None))


def _gaps(cube: str) -> sa.Select[tuple[str]]:
    one, before, after = t.versions, t.versions.alias("before"), t.versions.alias("after")
    follows = sa.and_(after.c.item_id == one.c.item_id, after.c.version == one.c.version + 1)
    precedes = sa.and_(before.c.item_id == one.c.item_id, before.c.version == one.c.version - 1)
    wrong = sa.or_(
        sa.and_(after.c.id.is_(None), one.c.recorded_to.is_not(None)),
        sa.and_(after.c.id.is_not(None), one.c.recorded_to.is_(None)),
        one.c.recorded_to != after.c.recorded_at,
        sa.and_(before.c.id.is_(None), one.c.version != 1),
    )
    joined = one.outerjoin(after, follows).outerjoin(before, precedes)
    return sa.select(one.c.item_id).select_from(joined).where(one.c.cube_id == cube, wrong)


def _sourceless(cube: str, *, trusted: bool) -> sa.Select[tuple[str]]:
    query = (
        sa.select(t.items.c.id)
        .join(t.versions, t.versions.c.id == t.items.c.version_id)
        .outerjoin(t.sources, t.sources.c.item_id == t.items.c.id)
        .where(t.items.c.cube_id == cube, t.sources.c.item_id.is_(None))
    )
    return query.where(t.versions.c.type != ItemType.WORKING) if trusted else query


def _no_record(cube: str) -> sa.Select[tuple[str]]:
    query = sa.select(t.items.c.id).join(t.versions, t.versions.c.id == t.items.c.version_id)
    return query.where(
        t.items.c.cube_id == cube, t.items.c.record_id.is_not(None), t.versions.c.type != ItemType.RECORD
    )


def _beyond(cube: str) -> sa.Select[tuple[str]]:
    talk = t.conversations.c
    return (
        sa.select(t.items.c.id)
        .join(t.conversations, talk.id == t.items.c.conversation_id)
        .where(t.items.c.cube_id == cube)
        .where(sa.or_(t.items.c.position >= talk.next_position, t.items.c.page > talk.next_page))
    )
