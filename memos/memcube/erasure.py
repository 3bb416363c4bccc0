"""Erasure: remove data from every table, index file, cache and log; a receipt without content stays.

Two steps: one transaction removes the rows (state 'purging'), then files that may still hold old bytes are
rewritten (state 'purged'). After a crash in between, the next open finishes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.ports import Rewritable
from memos.core.text.matching import words
from memos.core.types import MODEL_INFO, EraseReceipt, Item, ItemType, Json, LinkKind, Status
from memos.errors import BackendUnavailable
from memos.memcube import changes, images, prompt_prefix, receipts, tools
from memos.memcube.backup import backups
from memos.memcube.changes import WINDOW, Change
from memos.memcube.facts import WITHDRAWN, event_time, remove_sources
from memos.memcube.indexing.projection import Projection
from memos.memcube.ledger import (
    access,
    audit_chain,
    cubes,
    entities,
    files,
    idempotency,
    items,
    outbox,
    queues,
    segments,
    tier_moves,
)
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import tools as tool_rows
from memos.memcube.ledger.columns import CUBE, is_sealed
from memos.memcube.ledger.engine import Ledger, retry_aborted
from memos.memcube.ledger.outbox import Target
from memos.memcube.signing import SigningKey


def _purging(connection: sa.Connection) -> dict[str, str]:
    stores = ("ledger", *outbox.targets(connection), "cache", "activation", "parametric")
    return dict.fromkeys(stores, "purging")


def erase(
    change: Change,
    item_ids: Sequence[str],
    *,
    file_ids: Collection[str] = (),
    whole_cube: bool = False,
    key: SigningKey | None = None,
) -> EraseReceipt:
    """Erase items, what was derived from them, their raw messages, and the bytes of their and the named files.

    With `key` the receipt gets fingerprints of what goes.
    """
    connection = change.connection
    named = {items.require(connection, [change.cube], i).id for i in item_ids}
    doomed = _with_derived(connection, named)
    touched = {*files.of_items(connection, doomed).values(), *file_ids}
    made = [state.created_at for state in items.current(connection, [change.cube], doomed).values()]
    made += files.made_at(connection, touched)
    whole = files.with_bytes(connection, touched)
    held = backups.holding(
        connection, min(made, default=None), cubes.get(connection, change.cube).created_at if whole_cube else None
    )
    saw = adapter_rows.that_saw(connection, change.cube, doomed)
    before = receipts.count_rows(connection, {*doomed, *touched})
    before |= {"vectors": receipts.count_vectors(connection, doomed), "adapters": len(saw)}
    messages, pages = _messages_of(connection, doomed), [page.id for page in segments.pages_of(connection, doomed)]
    said = {"messages": (t.messages.c.id, messages), "topic_pages": (t.pages.c.id, pages)}
    passages = [] if key is None else receipts.passages_of(connection, change.cube, {*doomed, *touched}, messages)
    removed, covered = _remove(change, doomed, named, touched)
    if saw:
        removed["adapters"] = len(saw)
    if whole_cube:
        removed["cubes"] = 1
    before["windows"] = len(covered)
    dumps = receipts.count_dumps(connection, change.cube, min(made, default=None))
    forms: dict[str, list[int | None]] = {name: [number, None] for name, number in before.items()}
    # These have no id in the tombstone, so they are counted again here.
    for name, (column, ids) in said.items():
        forms[name] = [len(ids), receipts.count_in(connection, column, ids)]
    forms |= {"backups": [len(held), len(held)], "dumps": [dumps, dumps]}
    receipt_id, gone, stores = new_id(), tuple(sorted({*doomed, *whole})), _purging(connection)
    receipt = EraseReceipt(receipt_id, change.cube, "purging", gone, tuple(covered), dict(removed), stores)
    _write_tombstones(change, receipt, saw, forms)
    backups.note(connection, receipt_id, held)
    told, untold = backups.affected(connection, receipt_id)
    mark = access.record(connection, change.now, change.actor, ERASURE, receipt_id, {"items": len(gone)})
    secret = b"" if key is None else receipts.secret_of(key, receipt_id)
    return replace(
        receipt,
        backups=told,
        untold_backups=untold,
        at=change.now,
        forms=receipts.forms_of(forms),
        fingerprints=tuple(sorted(receipts.fingerprint(secret, passage) for passage in passages)),
        audit_number=mark.number,
        audit_chain=mark.chain,
    )


ERASURE = "erasure"
"""Kind of an erasure's entry in the access log; its subject is the receipt."""


def erase_again(change: Change, receipt_id: str, item_ids: Sequence[str]) -> None:
    """Erase again items and files that a restore brought back; the tombstone says `purging` once more."""
    named = set(files.known(change.connection, item_ids))
    doomed = _with_derived(change.connection, set(item_ids) - named)
    touched = {*files.of_items(change.connection, doomed).values(), *named}
    _remove(change, doomed, set(item_ids), touched)
    doomed |= touched
    buried = t.tombstone_items.c.item_id
    if fresh := sorted(doomed.difference(items.scalars_in(change.connection, sa.select(buried), buried, doomed))):
        rows = [{"item_id": item_id, "tombstone_id": receipt_id} for item_id in fresh]
        change.connection.execute(sa.insert(t.tombstone_items), rows)
    purging = {"state": "purging", "stores": _purging(change.connection)}
    change.connection.execute(sa.update(t.tombstones).where(t.tombstones.c.id == receipt_id).values(purging))
    body = {"receipt": receipt_id, "items": sorted(doomed), "again": True}
    cubes.record_event(change.connection, change.cube, change.now, change.actor, "erase", None, body)


def _remove(
    change: Change, doomed: set[str], named: set[str], touched: Collection[str]
) -> tuple[Counter[str], list[str]]:
    """Remove every row about the items, and the bytes of files; return counts by table and neighbours in windows.

    Items not `named` go because one of their origins does; the other origins are read again.
    """
    connection = change.connection
    # Other processes store relations of items while they hold outbox rows. Wait for those rows first, then keep others
    # from relating the items: a link stored after links were removed would refuse to let its item go.
    outbox.remove_items(connection, doomed)
    items.lock(connection, doomed)
    states = list(items.current(connection, [change.cube], doomed).values())
    covered = items.followers(connection, states, WINDOW - 1)
    message_ids = _messages_of(connection, doomed)
    held = segments.pages_of(connection, doomed)
    origins = _other_origins(connection, doomed - named) - doomed
    told = {state.id for state in states if state.type in (ItemType.TOOL_TRAJECTORY, ItemType.SKILL)}
    of_tools = _other_origins(connection, told - named) - doomed
    removed = idempotency.forget(connection, change.cube, doomed, touched)
    names = entities.names_in_versions(connection, change.cube, doomed)
    entities.forget(connection, doomed)
    _forget_answers(connection, doomed, removed)
    reopen_replaced(change, states)
    _detach_successors(connection, doomed)
    images.forget(connection, doomed, removed)
    prompt_prefix.items_changed(connection, change.cube, doomed, change.now)
    of_items = (t.versions, t.warmth, t.prefix_entries, t.adapter_exclusions, t.file_items)
    for column, ids in (
        (t.links.c.from_id, doomed),
        (t.links.c.to_id, doomed),
        (t.sources.c.item_id, doomed),
        (t.sources.c.message_id, message_ids),
        *((table.c.item_id, doomed) for table in of_items),
        (t.items.c.id, doomed),
        (t.messages.c.id, message_ids),
    ):
        for batch in items.in_batches(ids):
            gone = sa.delete(column.table).where(column.in_(batch))
            removed[column.table.name] += connection.execute(gone).rowcount
    if merged := entities.forget_unused(connection, change.cube, names):
        removed[t.entity_aliases.name] = merged
    removed.update(files.forget_bytes(connection, touched))
    segments.remake(connection, change.cube, segments.remove_pages(connection, held), change.now)
    tier_moves.read_again(connection, change.cube, origins, change.now)
    tool_rows.enqueue(connection, change.cube, of_tools, change.now, again=True)
    _blank_events(connection, doomed, removed)
    queues.lock(connection, change.cube)
    # An error may quote a value; ids alone do not show which item it is from.
    connection.execute(sa.update(t.tasks).where(t.tasks.c.cube_id == change.cube).values(error=None))
    _remove_empty_conversations(connection, change.cube)
    items.raise_revisions(connection, covered)
    outbox.enqueue(connection, change.cube, [*sorted(doomed), *covered])
    return removed, covered


def drop(change: Change, key: SigningKey | None = None) -> EraseReceipt:
    connection, cube = change.connection, change.cube
    ids = list(connection.scalars(sa.select(t.items.c.id).where(t.items.c.cube_id == cube)))
    receipt = erase(change, ids, file_ids=files.of_cube(connection, cube), whole_cube=True, key=key)
    remove_cube(connection, cube)
    return receipt


def remove_cube(connection: sa.Connection, cube: str) -> None:
    queues.lock(connection, cube)
    files.remove(connection, files.of_cube(connection, cube))
    said = (t.pages, t.segments, t.events, t.requests, t.request_items, t.conversations)
    done = (t.tasks, t.queues, t.usage, t.extraction_items, t.extractions)
    for table in (*said, *done, t.retention_rules, t.grants, t.repeats, t.prefix_entries):
        connection.execute(sa.delete(table).where(table.c.cube_id == cube))
    entities.remove_cube(connection, cube)
    cubes.remove(connection, cube)
    adapter_rows.remove_cube(connection, cube)
    connection.execute(sa.delete(t.cubes).where(t.cubes.c.id == cube))


def derived(connection: sa.Connection, item_ids: Collection[str]) -> set[str]:
    return _with_derived(connection, set(item_ids)).difference(item_ids)


def _with_derived(connection: sa.Connection, start: set[str]) -> set[str]:
    """Follow DERIVED_FROM upwards: what was derived from an erased item may quote it, so it goes too."""
    doomed, front = set(start), set(start)
    while front:
        front = (items.derived_from(connection, front) | _quoting(connection, front)) - doomed
        doomed |= front
    return doomed


def _quoting(connection: sa.Connection, shown: Collection[str]) -> set[str]:
    s, m, v = t.sources.c, t.messages.c, t.versions.c
    answers = _answers_about(connection, shown, t.extractions.c.output != "")
    found = set(items.scalars_in(connection, sa.select(s.item_id), s.extraction_id, answers))
    said: dict[str, set[str]] = {}
    talk = sa.select(s.item_id, m.text, m.name).join(t.messages, m.id == s.message_id)
    for row in items.rows_in(connection, talk, s.item_id, found):
        said.setdefault(row.item_id, set()).update(words(f"{row.text} {row.name}"))
    quoting = set()
    said_now = sa.select(v.item_id, v.type, v.memory, v.value, v.info)
    for row in items.rows_in(connection, said_now, v.item_id, found):
        # A trait's text is its subject, its dimension and its value.
        whole = f"{row.memory} {row.value or ''} {_by_model(row.info)}"
        written = row.value if row.type == ItemType.PROFILE else whole
        if not words(written or "") <= said.get(row.item_id, set()):
            quoting.add(row.item_id)
    return quoting


def _by_model(info: Mapping[str, Json]) -> str:
    parts = [info.get(name, "") for name in MODEL_INFO]
    return " ".join(str(word) for part in parts for word in (part if isinstance(part, list) else [part]))


def _answers_about(connection: sa.Connection, shown: Collection[str], kind: sa.ColumnElement[bool]) -> set[str]:
    """Return extraction records of a kind that cover these items, with or without a model's answer."""
    held = t.extraction_items.c
    query = sa.select(held.extraction_id).join(t.extractions, t.extractions.c.id == held.extraction_id).where(kind)
    return set(items.scalars_in(connection, query, held.item_id, shown))


def _other_origins(connection: sa.Connection, derived: set[str]) -> set[str]:
    query = sa.select(t.links.c.to_id).where(t.links.c.kind == LinkKind.DERIVED_FROM)
    return set(items.scalars_in(connection, query, t.links.c.from_id, derived))


def _messages_of(connection: sa.Connection, doomed: set[str]) -> set[str]:
    s = t.sources.c
    found = set(items.scalars_in(connection, sa.select(s.message_id), s.item_id, doomed))
    used = items.rows_in(connection, sa.select(s.message_id, s.item_id), s.message_id, found)
    return found - {row.message_id for row in used if row.item_id not in doomed}


def _forget_answers(connection: sa.Connection, doomed: set[str], removed: Counter[str]) -> None:
    """Drop model answers that were shown one of these items: they may quote it.

    A record of patterns quotes nothing, and stays while another message is in it.
    """
    shown = t.extraction_items
    plain = _answers_about(connection, doomed, t.extractions.c.output == "")
    for batch in items.in_batches(doomed if plain else ()):
        connection.execute(sa.delete(shown).where(shown.c.item_id.in_(batch), shown.c.extraction_id.in_(plain)))
    left = sa.select(shown.c.extraction_id).distinct()
    empty = plain.difference(items.scalars_in(connection, left, shown.c.extraction_id, plain))
    for batch in items.in_batches(_answers_about(connection, doomed, t.extractions.c.output != "") | empty):
        named = t.sources.c.extraction_id.in_(batch)
        connection.execute(sa.update(t.sources).where(named).values(extraction_id=None))
        connection.execute(sa.delete(shown).where(shown.c.extraction_id.in_(batch)))
        gone = connection.execute(sa.delete(t.extractions).where(t.extractions.c.id.in_(batch)))
        removed["extractions"] += gone.rowcount


def _detach_successors(connection: sa.Connection, doomed: set[str]) -> None:
    v = t.versions
    for batch in items.in_batches(doomed):
        reasons = {f"superseded by {item_id}" for item_id in batch}
        replaced = sa.select(v.c.id, v.c.cube_id, v.c.reason).where(v.c.status == Status.SUPERSEDED)
        # A sealed reason is compared here; its row names the item, too.
        near = v.c.superseded_by.in_(batch) if is_sealed(connection) else v.c.reason.in_(reasons)
        stale: dict[str, list[str]] = {}
        for row in connection.execute(replaced.where(near)):
            if row.reason in reasons:
                stale.setdefault(row.cube_id, []).append(row.id)
        connection.execute(sa.update(v).where(v.c.superseded_by.in_(batch)).values(superseded_by=None))
        for cube, ids in stale.items():
            said = sa.update(v).where(v.c.id.in_(ids)).values(reason="superseded by an erased item")
            connection.execute(said, execution_options={CUBE: cube})


def _blank_events(connection: sa.Connection, doomed: set[str], removed: Counter[str]) -> None:
    for batch in items.in_batches(doomed):
        query = sa.update(t.events).where(t.events.c.item_id.in_(batch)).values(body=None, salt=None)
        removed["events"] += connection.execute(query).rowcount


def _remove_empty_conversations(connection: sa.Connection, cube: str) -> None:
    """Remove conversations without messages: even a name may tell something."""
    used = sa.select(t.items.c.id).where(t.items.c.conversation_id == t.conversations.c.id)
    connection.execute(sa.delete(t.conversations).where(t.conversations.c.cube_id == cube, ~sa.exists(used)))


def _write_tombstones(
    change: Change, receipt: EraseReceipt, adapters: Sequence[str], forms: Mapping[str, list[int | None]]
) -> None:
    row = {"id": receipt.id, "cube_id": change.cube, "actor": change.actor, "at": change.now, "state": receipt.state}
    told = {"removed": dict(receipt.removed), "rebuilt": list(receipt.rebuilt), "stores": dict(receipt.stores)}
    change.connection.execute(sa.insert(t.tombstones).values(**row, **told, forms=forms))
    if receipt.item_ids:
        rows = [{"item_id": item_id, "tombstone_id": receipt.id} for item_id in receipt.item_ids]
        change.connection.execute(sa.insert(t.tombstone_items), rows)
    body: dict[str, Json] = {"receipt": receipt.id, "items": list(receipt.item_ids)}
    if adapters:
        body["adapters"] = list(adapters)
    cubes.record_event(change.connection, change.cube, change.now, change.actor, "erase", None, body)


def expired(connection: sa.Connection, before: datetime, item_ids: Sequence[str] | None = None) -> dict[str, list[str]]:
    v = t.versions.c
    gone = (v.recorded_to.is_(None), v.status == Status.DELETED, v.recorded_at < before)
    query = sa.select(v.cube_id, v.item_id).where(*gone)
    if item_ids is not None:
        query = query.where(v.item_id.in_(item_ids))
    found: dict[str, list[str]] = {}
    for row in connection.execute(query):
        found.setdefault(row.cube_id, []).append(row.item_id)
    return found


def unfinished(ledger: Ledger) -> list[EraseReceipt]:
    with ledger.read() as connection:
        purging = sa.select(t.tombstones).where(t.tombstones.c.state == "purging").order_by(t.tombstones.c.id)
        return [_receipt(connection, row) for row in connection.execute(purging).all()]


def find(ledger: Ledger, receipt_id: str) -> EraseReceipt | None:
    with ledger.read() as connection:
        row = connection.execute(sa.select(t.tombstones).where(t.tombstones.c.id == receipt_id)).one_or_none()
        return None if row is None else _receipt(connection, row)


def is_by(ledger: Ledger, receipt_id: str, actor: str) -> bool:
    """Return True if an actor did the erasure of a receipt."""
    with ledger.read() as connection:
        of_actor = sa.select(t.tombstones.c.id).where(t.tombstones.c.id == receipt_id, t.tombstones.c.actor == actor)
        return connection.scalar(of_actor) is not None


@retry_aborted
def count(ledger: Ledger, pending: Sequence[EraseReceipt], cleaned: Mapping[str, Mapping[str, int]]) -> None:
    with ledger.write() as connection:
        _lock(connection, pending)
        for receipt in pending:
            if more := {name: number for name, number in cleaned.get(receipt.cube, {}).items() if number}:
                removed = dict(Counter(receipt.removed) + Counter(more))
                query = sa.update(t.tombstones).where(t.tombstones.c.id == receipt.id)
                connection.execute(query.values(removed=removed))


@retry_aborted
def finish(ledger: Ledger, pending: Sequence[EraseReceipt], stores: dict[str, str]) -> None:
    state = "purging" if "purging" in stores.values() else "purged"
    with ledger.write() as connection:
        _lock(connection, pending)
        for batch in items.in_batches(receipt.id for receipt in pending):
            ended = sa.update(t.tombstones).where(t.tombstones.c.id.in_(batch))
            connection.execute(ended.values(state=state, stores=stores))


def _lock(connection: sa.Connection, pending: Sequence[EraseReceipt]) -> None:
    """Wait until no other process writes these tombstones, which several may purge at once."""
    for batch in items.in_batches(sorted(receipt.id for receipt in pending)):
        rows = sa.select(t.tombstones.c.id).where(t.tombstones.c.id.in_(batch)).order_by(t.tombstones.c.id)
        connection.execute(rows.with_for_update())


def _receipt(connection: sa.Connection, row: sa.Row[tuple[object, ...]]) -> EraseReceipt:
    query = sa.select(t.tombstone_items.c.item_id).where(t.tombstone_items.c.tombstone_id == row.id)
    erased = tuple(connection.scalars(query.order_by(t.tombstone_items.c.item_id)))
    told = (erased, tuple(row.rebuilt), row.removed, row.stores)
    mark = audit_chain.place_of(connection, ERASURE, row.id)
    return EraseReceipt(
        row.id,
        row.cube_id,
        row.state,
        *told,
        *backups.affected(connection, row.id),
        at=row.at,
        forms=receipts.forms_of(row.forms),
        key_destroyed=row.forms["cube_keys"][1] == 0 if "cube_keys" in row.forms else None,
        audit_number=None if mark is None else mark.number,
        audit_chain=None if mark is None else mark.chain,
    )


_WAL_TRIES = 50
_WAL_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Purgeable:
    """`forget_caches` gets the cubes with erasures and returns removed entries by cube and cache.

    `measure` returns what is left of each form outside the ledger, of a receipt's items.
    """

    projections: Sequence[Projection]
    files: Mapping[Target, Rewritable]
    forget_caches: Callable[[Collection[str]], Mapping[str, Mapping[str, int]]]
    measure: Callable[[EraseReceipt], Mapping[str, int]]


def purge(ledger: Ledger, places: Purgeable) -> int:
    pending = unfinished(ledger)
    if not pending:
        return 0
    with ledger.write() as connection:
        others = set(outbox.targets(connection)).difference(p.target for p in places.projections)
    if others:  # only a process that has these indexes can finish
        return 0
    backups.tell(ledger)
    for projection in places.projections:
        if not projection.drain(600) and projection.last_error is not None:
            raise projection.last_error
        projection.flush()
    cleaned = places.forget_caches({receipt.cube for receipt in pending})
    count(ledger, pending, cleaned)
    for index_files in places.files.values():
        index_files.rewrite()
    stores: dict[str, str] = {p.target: "purged" if p.target in places.files else "deleted" for p in places.projections}
    stores |= dict.fromkeys(("cache", "activation", "parametric"), "purged")
    _measure(ledger, pending, cleaned, places)
    # The state is written before the log is emptied: the log then holds nothing but this.
    finish(ledger, pending, {**stores, "ledger": "purging"})
    ledger.vacuum()
    _truncate(ledger)
    finish(ledger, pending, {**stores, "ledger": "purged" if ledger.is_sqlite else "deleted"})
    return len(pending)


@retry_aborted
def _measure(
    ledger: Ledger, pending: Sequence[EraseReceipt], cleaned: Mapping[str, Mapping[str, int]], places: Purgeable
) -> None:
    """Count what is left of each form, and write it beside what there was before."""
    outside = {receipt.id: places.measure(receipt) for receipt in pending}
    with ledger.write() as connection:
        _lock(connection, pending)
        for receipt in pending:
            query = sa.select(t.tombstones.c.forms).where(t.tombstones.c.id == receipt.id)
            forms: dict[str, list[int | None]] = dict(connection.execute(query).scalar_one())
            after = {**receipts.count_rows(connection, receipt.item_ids), **outside[receipt.id]}
            after["windows"] = receipts.waiting_windows(connection, receipt.rebuilt)
            blocks, removed = forms.get("kv_blocks", [0, None])[0] or 0, cleaned.get(receipt.cube, {})
            forms["kv_blocks"] = [blocks + removed.get("kv_blocks", 0), None]
            if keys := removed.get("data_keys", 0):
                forms["cube_keys"] = [keys, 0]
            for name, number in after.items():
                forms[name] = [forms.get(name, [0, None])[0], number]
            mine = sa.update(t.tombstones).where(t.tombstones.c.id == receipt.id)
            connection.execute(mine.values(forms=forms))


def _truncate(ledger: Ledger) -> None:
    for _ in range(_WAL_TRIES):
        if ledger.truncate_wal():
            return
        time.sleep(_WAL_PAUSE_S)
    raise BackendUnavailable("Readers kept the ledger's log busy; the next purge removes the erased text from it.")


def delete(change: Change, item_ids: Sequence[str], reason: str) -> list[Item]:
    """Delete items and what was derived from them alone; return the deleted items.

    Messages that a deleted correction had replaced become current again.
    """
    deleted = changes.delete(change, item_ids, reason)
    reopen_replaced(change, deleted)
    retract(change, [state.id for state in deleted])
    return deleted


def retract(change: Change, origins: Collection[str]) -> list[str]:
    """Delete items derived only from `origins`, drop `origins` as sources of the others; return the deleted ids.

    What a deleted fact had superseded is current again.
    """
    connection = change.connection
    made = items.current(connection, [change.cube], items.derived_from(connection, origins))
    refreshed = tools.refresh(change, origins)
    gone, shown = refreshed.withdrawn, set(origins) if refreshed.stored else set()
    for state in made.values():
        of_call = state.type is ItemType.TOOL_TRAJECTORY and state.key is not None
        if images.sync_description(change, state, WITHDRAWN) or state.status is Status.DELETED or of_call:
            continue
        others = items.origins_of(connection, [state.id])[state.id] - set(origins)
        if state.type is ItemType.SKILL:
            shown |= others
        live = items.current(connection, [change.cube], others)
        if any(other.status is not Status.DELETED for other in live.values()):
            remove_sources(change, state.id, origins)
            continue
        _reopen_predecessors(change, state)
        edits = {"status": Status.DELETED, "info": {**state.info, WITHDRAWN: True}}
        changes.edit(change, state, edits, "what it was read from was deleted or changed", kind="delete")
        gone.append(state.id)
    tier_moves.read_again(connection, change.cube, origins, change.now)
    images.requeue_descriptions(change, origins)
    tool_rows.enqueue(connection, change.cube, shown, change.now)
    if gone:
        gone += retract(change, gone)  # conclusions are made of facts
    return gone


def reopen_replaced(change: Change, gone: Sequence[Item]) -> None:
    """Reopen the messages that these corrections replaced.

    A message with a later correction is marked as replaced by that one instead.
    """
    connection = change.connection
    messages = {state.id: state for state in gone if state.type is ItemType.MESSAGE}
    corrected = items.links_from(connection, messages).values()
    before = {id_ for links in corrected for kind, id_ in links if kind == LinkKind.SUPERSEDES}
    before -= {state.id for state in gone}
    for old in items.current(connection, [change.cube], before).values():
        if old.status is not Status.SUPERSEDED or old.superseded_by not in messages:
            continue
        seen = set[str]()
        later: str | None = old.superseded_by
        while later in messages and later not in seen:
            seen.add(later)
            later = messages[later].superseded_by
        _replace_or_reopen(change, old, later)


def _reopen_predecessors(change: Change, state: Item) -> None:
    connection = change.connection
    v = t.versions
    query = sa.select(v.c.item_id).where(
        v.c.cube_id == change.cube, v.c.recorded_to.is_(None), v.c.superseded_by == state.id
    )
    before = items.current(connection, [change.cube], list(connection.scalars(query)))
    for old in before.values():
        if old.status is Status.SUPERSEDED:
            _replace_or_reopen(change, old, state.superseded_by)


def _replace_or_reopen(change: Change, old: Item, later: str | None) -> None:
    """Mark an item as superseded by `later`, or as active if `later` is None or deleted."""
    connection = change.connection
    follower = items.current(connection, [change.cube], [later] if later else []).get(later or "")
    edits: dict[str, Any]
    if follower is None or follower.status is Status.DELETED:
        edits = {"status": Status.ACTIVE, "valid_to": None, "superseded_by": None}
        items.mark_outdated(connection, items.origins_of(connection, [old.id]).get(old.id, ()), outdated=False)
    else:
        edits = {"valid_to": event_time(follower), "superseded_by": follower.id}
        items.link(connection, [(follower.id, LinkKind.SUPERSEDES, old.id)], change.cube, change.now)
    changes.edit(change, old, edits, "what replaced it was taken back")
