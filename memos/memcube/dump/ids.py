"""Remembers which id of a dump becomes which id here, in a temporary database: ids only, and never all in memory.

Knows nothing of rows. An id's new form is settled once, in `memos.memcube.dump.load`.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Iterator
from enum import IntEnum
from typing import Self

_BATCH = 500


class Kind(IntEnum):
    CONVERSATION = 1
    ITEM = 2
    VERSION = 3
    MESSAGE = 4
    EXTRACTION = 5
    FILE = 6
    SEGMENT = 7
    PAGE = 8
    RULE = 9


OWN: dict[str, Kind] = {
    "conversations": Kind.CONVERSATION,
    "items": Kind.ITEM,
    "versions": Kind.VERSION,
    "messages": Kind.MESSAGE,
    "extractions": Kind.EXTRACTION,
    "files": Kind.FILE,
    "segments": Kind.SEGMENT,
    "pages": Kind.PAGE,
    "retention_rules": Kind.RULE,
}
"""Kind of the ids of each table."""


class IdResolution(IntEnum):
    NEW = 1
    KEPT = 2
    LEFT_OUT = 3


class Ids:
    """The ids of one dump. To be closed; not for several threads."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # a file of no name that goes when this is closed
        self._db.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-16000;"
            "CREATE TABLE ids (kind INT, old BLOB, new BLOB, fate INT, PRIMARY KEY (kind, old)) WITHOUT ROWID;"
            "CREATE UNIQUE INDEX ids_new ON ids (kind, new) WHERE new IS NOT NULL;"
            "CREATE INDEX ids_old ON ids (old);"
            "CREATE TABLE parts (kind INT, whole BLOB, item BLOB);"
            "CREATE TABLE spoken (item BLOB PRIMARY KEY, version BLOB) WITHOUT ROWID;"
            "CREATE TABLE said (conversation BLOB, position INT, page INT, session INT, item BLOB,"
            " new_position INT, new_page INT, new_session INT);"
            "BEGIN;"
        )
        self.changed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def add(self, kind: Kind, old: str) -> bool:
        found = self._db.execute("INSERT OR IGNORE INTO ids (kind, old) VALUES (?, ?)", (kind, _raw(old)))
        return found.rowcount == 1

    def add_part(self, kind: Kind, whole: str, item: str) -> None:
        self._db.execute("INSERT INTO parts VALUES (?, ?, ?)", (kind, _raw(whole), _raw(item)))

    def add_spoken(self, item: str, version: str) -> None:
        self._db.execute("INSERT OR IGNORE INTO spoken VALUES (?, ?)", (_raw(item), _raw(version)))

    def item_of(self, message: str) -> tuple[str, str] | None:
        query = "SELECT parts.item, version FROM parts JOIN spoken ON spoken.item = parts.item"
        query += " WHERE kind = ? AND whole = ? ORDER BY 1 LIMIT 1"
        row = self._db.execute(query, (Kind.MESSAGE, _raw(message))).fetchone()
        return None if row is None else (_text(row[0]), _text(row[1]))

    def batches(self, kind: Kind) -> Iterator[list[str]]:
        last = b""
        query = "SELECT old FROM ids WHERE kind = ? AND old > ? ORDER BY old LIMIT ?"
        while batch := [row[0] for row in self._db.execute(query, (kind, last, _BATCH))]:
            last = batch[-1]
            yield [_text(raw) for raw in batch]

    def settle(self, kind: Kind, old: str, new: str, fate: IdResolution) -> bool:
        if fate is IdResolution.KEPT or new != old:
            self.changed = True
        query = "UPDATE OR IGNORE ids SET new = ?, fate = ? WHERE kind = ? AND old = ?"
        return self._db.execute(query, (_raw(new), fate, kind, _raw(old))).rowcount == 1

    def find(self, kind: Kind, old: str) -> tuple[str, IdResolution] | None:
        query = "SELECT new, fate FROM ids WHERE kind = ? AND old = ?"
        row = self._db.execute(query, (kind, _raw(old))).fetchone()
        return None if row is None or row[0] is None else (_text(row[0]), IdResolution(row[1]))

    def anything(self, old: str) -> str | None:
        row = self._db.execute("SELECT new FROM ids WHERE old = ? ORDER BY kind LIMIT 1", (_raw(old),)).fetchone()
        return None if row is None or row[0] is None else _text(row[0])

    def leave_out_empty(self, kind: Kind) -> None:
        self._db.execute(
            "UPDATE ids SET fate = ? WHERE kind = ? AND fate = ? AND old NOT IN (SELECT parts.whole FROM parts "
            "JOIN ids AS one ON one.kind = ? AND one.old = parts.item AND one.fate = ? WHERE parts.kind = ?)",
            (IdResolution.LEFT_OUT, kind, IdResolution.NEW, Kind.ITEM, IdResolution.NEW, kind),
        )

    def leave_out_unspoken(self) -> None:
        self._db.execute(
            "UPDATE ids SET fate = ? WHERE kind = ? AND fate = ? AND old NOT IN (SELECT parts.item FROM parts "
            "JOIN ids AS one ON one.kind = parts.kind AND one.old = parts.whole AND one.fate = ? WHERE parts.kind = ?)",
            (IdResolution.LEFT_OUT, Kind.ITEM, IdResolution.NEW, IdResolution.NEW, Kind.MESSAGE),
        )

    def count(self, kind: Kind, fate: IdResolution) -> int:
        query = "SELECT count(*) FROM ids WHERE kind = ? AND fate = ?"
        return int(self._db.execute(query, (kind, fate)).fetchone()[0])

    def new_ids(self, kind: Kind) -> Iterator[list[str]]:
        last, query = b"", "SELECT new FROM ids WHERE kind = ? AND fate = ? AND new > ? ORDER BY new LIMIT ?"
        while batch := [row[0] for row in self._db.execute(query, (kind, IdResolution.NEW, last, _BATCH))]:
            last = batch[-1]
            yield [_text(raw) for raw in batch]

    def say(self, conversation: str, position: int, page: int, session: int, item: str) -> None:
        row = (_raw(conversation), position, page, session, _raw(item))
        self._db.execute("INSERT INTO said (conversation, position, page, session, item) VALUES (?, ?, ?, ?, ?)", row)

    def append(self, conversation: str, after: tuple[int, int, int]) -> tuple[int, int, int] | None:
        query = (
            "SELECT said.rowid, position, page, session FROM said JOIN ids ON kind = ? AND old = item AND fate = ? "
            "WHERE conversation = ? ORDER BY position, item"
        )
        found = self._db.execute(query, (Kind.ITEM, IdResolution.NEW, _raw(conversation)))
        place, before = None, None
        for rowid, _, page, session in found.fetchall():
            position, at_page, at_session = place or after
            turned = before is None or page != before[0]
            broke = before is None or session != before[1]
            place, before = (position + 1, at_page + turned, at_session + broke), (page, session)
            update = "UPDATE said SET new_position = ?, new_page = ?, new_session = ? WHERE rowid = ?"
            self._db.execute(update, (*place, rowid))
        return place

    def index_places(self) -> None:
        self._db.execute("CREATE INDEX said_item ON said (item)")
        self._db.execute("CREATE INDEX said_in ON said (conversation)")
        self._db.execute("CREATE INDEX parts_whole ON parts (kind, whole)")

    def place_of(self, item: str) -> tuple[int, int, int] | None:
        query = "SELECT new_position, new_page, new_session FROM said WHERE item = ? AND new_position IS NOT NULL"
        row = self._db.execute(query, (_raw(item),)).fetchone()
        return None if row is None else (row[0], row[1], row[2])


def other_id(secret: bytes, kind: Kind, old: str, number: int) -> str:
    """Return another id for the same thing, which nobody can foretell who does not know a cube's secret.

    It keeps the first 96 bits, by which a UUIDv7 tells what came before what.
    """
    told = f"{kind}:{old}:{number}".encode()
    return old[:-8] + hmac.digest(secret, told, hashlib.sha256)[:4].hex()


def _raw(id_: str) -> bytes:
    return bytes.fromhex(id_.replace("-", ""))


def _text(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
