"""Ledgers with a bit of everything in them, for tests that copy whole ledgers; no index and no model is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from memos.core.clock import Clock, SystemClock, new_id
from memos.core.retention import RetentionAction, RetentionRule
from memos.core.types import AddReceipt, Cube, EraseReceipt, Fingerprint, ItemType, Json, Status, Trust
from memos.memcube import changes, records
from memos.memcube import erasure as erase
from memos.memcube.backup import rows
from memos.memcube.changes import Change
from memos.memcube.ledger import cubes, items, retention
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.idempotency import Request
from memos.memcube.records import NewRecord
from memos.reader import messages as fast
from memos.reader.messages import read_messages

ODD = "line\u2028separator \u2029 🎉👩‍👩‍👧 שלום عربي \x85 \x1f tab\t cr\r e\u0301 \U0010ffff"
BIG = "ten bytes " * 104_000  # just under a message's limit of 1 MiB
WORDS = Fingerprint("words", 64, "none", normalised=True)


def end_leases(home: Path) -> None:
    """Have the leases of killed processes run out, which takes a minute; `Runner.keep_leases` then takes them back."""
    ledger = Ledger.open(sqlite_url(home / "ledger.db"))
    with ledger.write() as connection:
        connection.exec_driver_sql("UPDATE tasks SET lease_until = 0 WHERE state = 'running'")
    ledger.close()


class Store:
    """A ledger written to as the kernel does it."""

    def __init__(self, ledger: Ledger, clock: Clock | None = None) -> None:
        self.ledger = ledger
        self.clock = clock or SystemClock()

    def make(self, cube: str, description: str = "") -> None:
        with self.ledger.write() as connection:
            cubes.create(connection, Cube(cube, "local", description, "Europe/Paris", WORDS, self.clock.now()))
            cubes.record_event(connection, cube, self.clock.now(), "local", "create", None, {})

    def add(
        self, messages: Json, *, cube: str = "default", conversation: str | None = None, key: str | None = None,
        tags: Sequence[str] = (), info: dict[str, Json] | None = None,
    ) -> AddReceipt:  # fmt: skip
        read = read_messages(messages, ZoneInfo("UTC"), self.clock.now())
        drafts = fast.read(read, tuple(tags), info or {}, ZoneInfo("UTC"))
        request = None if key is None else Request(key, messages)
        with self._change(cube) as change:
            return changes.add(change, drafts, conversation, request, 10)

    def put(self, record_id: str, memory: str, *, cube: str = "default", **fields: Any) -> str:
        """Put a record; return the id of its item."""
        usual: dict[str, Any] = {"tags": (), "info": {}, "ttl_s": None, "searchable": True, "expected_version": None}
        new = NewRecord(record_id, memory, trust=Trust.TRUSTED, **{**usual, **fields})
        with self._change(cube) as change:
            return records.put(change, [new])[0]

    def update(self, item: str, memory: str, cube: str = "default") -> None:
        with self._change(cube) as change:
            changes.update(change, item, None, {"memory": memory}, "because")

    def delete(self, item: str, cube: str = "default") -> None:
        with self._change(cube) as change:
            changes.delete(change, [item], "unwanted")

    def replace(self, new: str, old: str, cube: str = "default") -> None:
        with self._change(cube) as change:
            before = items.require(change.connection, [cube], old)
            changes.correct(change, new, [old], [before], datetime(2025, 1, 1, tzinfo=UTC))

    def erase(self, item: str, cube: str = "default") -> EraseReceipt:
        with self._change(cube) as change:
            return erase.erase(change, [item])

    def drop(self, cube: str) -> EraseReceipt:
        with self._change(cube) as change:
            return erase.drop(change)

    def rule(self, cube: str, action: RetentionAction, **wanted: Any) -> RetentionRule:
        blank = RetentionRule(new_id(), cube, action, (), (), (), 0.0, "local", self.clock.now())
        rule = replace(blank, **wanted)
        with self.ledger.write() as connection:
            retention.add(connection, rule)
        return rule

    def receipt(self, receipt_id: str) -> EraseReceipt:
        found = erase.find(self.ledger, receipt_id)
        assert found is not None
        return found

    def memories(self) -> set[str]:
        with self.ledger.read() as connection:
            known = [cube.id for cube in cubes.list_all(connection)]
            return {item.memory for item in items.matching(connection, known, None, limit=100_000)}

    @contextmanager
    def _change(self, cube: str) -> Iterator[Change]:
        with self.ledger.write() as connection:
            yield changes.begin(connection, cube, "local", self.clock)


def fill(store: Store) -> dict[str, str]:
    """Store a bit of everything; return item ids by name."""
    store.make("default")
    store.make("work", ODD)
    talk = store.add(
        [
            {"role": "user", "name": "Maya", "content": "I live in Paris.", "message_id": "m1"},
            {"role": "assistant", "content": ODD, "chat_time": "2024-02-29T23:59:59.999999Z"},
            {"role": "user", "content": [{"type": "text", "text": "parts"}], "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        ],
        conversation="talk", key="request-1", tags=["home", ODD[:20]], info={"n": 1.5, "list": [True, "x"], "z": 2**53},
    ).item_ids  # fmt: skip
    store.update(talk[1], "changed once")
    store.update(talk[1], "changed twice")
    lyon = store.add([{"role": "user", "name": "Maya", "content": "I live in Lyon."}], conversation="talk").item_ids[0]
    store.replace(lyon, talk[0])
    gone = store.add("soon deleted").item_ids[0]
    store.delete(gone)
    erased = store.add("erased before any backup", conversation="brief", key="request-2").item_ids[0]
    store.erase(erased)
    big = store.add(BIG, cube="work").item_ids[0]
    store.put(f"prefs/{ODD}", "was blue")
    store.put(f"prefs/{ODD}", "is red", info={"nested": {ODD[:20]: [1, {"x": None}]}}, ttl_s=1e8, searchable=False)
    store.rule("default", RetentionAction.DELETE, tags=(ODD[:20], "home"), age_days=0.5)
    store.rule("work", RetentionAction.ARCHIVE, types=(ItemType.MESSAGE,), statuses=(Status.ACTIVE,), age_days=36_500)
    return {"paris": talk[0], "odd": talk[1], "lyon": lyon, "deleted": gone, "erased": erased, "big": big}


def contents(ledger: Ledger, *left_out: str) -> dict[str, list[str]]:
    """Return every row of every table with content, sorted."""
    with ledger.read() as connection:
        return {
            table.name: sorted(rows.line([*row.values()]).decode().strip() for row in rows.stream(connection, table))
            for table in rows.tables()
            if table.name not in left_out
        }


def chains(ledger: Ledger) -> list[str]:
    """Return what is wrong with any cube's events."""
    with ledger.read() as connection:
        found = [cubes.broken_event(connection, cube.id) for cube in cubes.list_all(connection)]
    return [problem for problem in found if problem is not None]


def waiting(ledger: Ledger) -> set[tuple[str, str]]:
    """Return what the indexes have to follow."""
    with ledger.read() as connection:
        return {(row.target, row.item_id) for row in connection.exec_driver_sql("SELECT target, item_id FROM outbox")}


@contextmanager
def sqlite_ledger(folder: Path) -> Iterator[Ledger]:
    """Open a ledger file in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger.open(sqlite_url(folder / "ledger.db"))
    try:
        yield ledger
    finally:
        ledger.close()
