"""Idempotency: recognise repeated adds and creations by their key, and repeated submissions by their content.

Each row holds a salted or keyed digest of the request, the ids of what was stored, and the time. An add's key belongs
to its cube and never expires; the key of any other creation belongs to an identity for a day; a submission is
identified by caller and body for a minute. Each has its own table.

Functions take an open write transaction unless they only read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.types import AddReceipt, Json
from memos.errors import Conflict
from memos.memcube.ledger import queues
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.items import in_batches
from memos.memcube.ledger.schema import meta, repeats, request_items, requests, submissions

CREATION_KEPT = timedelta(hours=24)
SAME_WITHIN = timedelta(minutes=1)
"""Time within which the same submission counts as a repeat."""

_SUBMISSION_KEPT = timedelta(days=7)
_REMOVED_AT_ONCE = 500
_SECRET = "submissions"  # noqa: S105 - the name of a row
# Written as in the partial index, otherwise the database would not use it.
_HAS_DIGEST = sa.text("submissions.digest IS NOT NULL")


@dataclass(frozen=True, slots=True)
class Request:
    """The idempotency key of an add, and the whole request as JSON."""

    key: str
    body: Json


@dataclass(frozen=True, slots=True)
class Call:
    """A call that creates something; `body` is the whole call as text."""

    identity: str
    key: str
    body: str
    cube: str | None


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier call with the same key; `same` if its body is equal, `made` is None until it has answered."""

    same: bool
    made: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission; `answer` is None until it completes, or if it was interrupted; `fresh` unless it is a repeat."""

    id: str
    caller: str
    answer: Mapping[str, Json] | None
    fresh: bool = False

    @property
    def key(self) -> str:
        return f"submission:{self.id}"


def find_add(connection: sa.Connection, cube: str, request: Request) -> AddReceipt | None:
    row = _add_of(connection, cube, request.key)
    if row is None:
        return None
    if not _matches(row, _text(request.body)):
        raise Conflict(f"Idempotency key {request.key!r} was used for another add; use a new key for new content.")
    return _replayed(row)


def receipt_of(connection: sa.Connection, cube: str, key: str) -> AddReceipt | None:
    """Return what an add with this key stored; None if there was none, or if some of it was erased."""
    row = _add_of(connection, cube, key)
    return None if row is None else _replayed(row)


def remember_add(connection: sa.Connection, request: Request, receipt: AddReceipt, now: datetime) -> None:
    mine = {"cube_id": receipt.cube, "idempotency_key": request.key}
    row = {"conversation": receipt.conversation, "item_ids": [*receipt.item_ids], "duplicates": [*receipt.duplicates]}
    connection.execute(sa.insert(requests).values(**mine, **row, **_salted(_text(request.body)), created_at=now))
    if receipt.item_ids:
        entries = [{"item_id": item_id, **mine} for item_id in dict.fromkeys(receipt.item_ids)]
        connection.execute(sa.insert(request_items), entries)


def find_call(connection: sa.Connection, call: Call, now: datetime) -> Earlier | None:
    young = repeats.c.created_at > now - CREATION_KEPT
    row = connection.execute(sa.select(repeats).where(*_of(call), young)).one_or_none()
    return None if row is None else Earlier(_matches(row, call.body), None if row.made is None else tuple(row.made))


def claim_call(connection: sa.Connection, call: Call, now: datetime) -> bool:
    connection.execute(sa.delete(repeats).where(*_of(call), repeats.c.created_at <= now - CREATION_KEPT))
    mine = {"identity_id": call.identity, "idempotency_key": call.key, "cube_id": call.cube}
    return queues.insert_new(connection, repeats, {**mine, **_salted(call.body), "made": None, "created_at": now})


def answer_call(connection: sa.Connection, call: Call, made: Sequence[str]) -> None:
    connection.execute(sa.update(repeats).where(*_of(call)).values(made=list(made)))


def submit(connection: sa.Connection, caller: str, body: str, cubes: Sequence[str], now: datetime) -> Submission:
    digest = _keyed_digest(connection, caller, body)
    _drop_old_submissions(connection, now)
    id_ = new_id()
    row = {"id": id_, "caller": caller, "digest": digest, "cubes": list(cubes), "created_at": now}
    same = sa.select(submissions).where(submissions.c.caller == caller, submissions.c.digest == digest)
    while not queues.insert_new(connection, submissions, row):
        found = connection.execute(same).one_or_none()
        if found is not None:  # otherwise another process has just removed it
            return Submission(found.id, found.caller, found.answer)
    return Submission(id_, caller, None, fresh=True)


def find_submission(connection: sa.Connection, id_: str) -> Submission | None:
    row = connection.execute(sa.select(submissions).where(submissions.c.id == id_)).one_or_none()
    return None if row is None else Submission(row.id, row.caller, row.answer)


def answer_submission(connection: sa.Connection, id_: str, told: Mapping[str, Json], *, known: bool = True) -> None:
    mine = sa.update(submissions).where(submissions.c.id == id_)
    connection.execute(mine.where(submissions.c.answer.is_(None)).values(answer=dict(told)))
    if not known:
        connection.execute(mine.values(digest=None))


def withdraw_submission(connection: sa.Connection, id_: str) -> None:
    """Remove a submission that failed, so that the same request can be sent again at once."""
    connection.execute(sa.delete(submissions).where(submissions.c.id == id_, submissions.c.answer.is_(None)))


def forget(connection: sa.Connection, cube: str, items: Collection[str], files: Collection[str] = ()) -> Counter[str]:
    """Remove digests of the content of these items and files of a cube; return the number of rows by table."""
    removed = Counter({repeats.name: 0})
    for batch in in_batches(items):
        mine = request_items.c.item_id.in_(batch), request_items.c.cube_id == cube
        keys = list(connection.scalars(sa.select(request_items.c.idempotency_key).where(*mine)))
        for part in in_batches(keys):
            for table in (requests, request_items):
                gone = sa.delete(table).where(table.c.cube_id == cube, table.c.idempotency_key.in_(part))
                removed[table.name] += connection.execute(gone).rowcount
    for row in connection.execute(sa.select(repeats).where(repeats.c.cube_id == cube)).all():
        if row.made is not None and not {*items, *files}.isdisjoint(row.made):
            named = repeats.c.identity_id == row.identity_id, repeats.c.idempotency_key == row.idempotency_key
            removed[repeats.name] += connection.execute(sa.delete(repeats).where(*named)).rowcount
    young = connection.execute(sa.select(submissions.c.id, submissions.c.cubes).where(_HAS_DIGEST))
    for batch in in_batches(row.id for row in young.all() if cube in row.cubes):
        connection.execute(sa.update(submissions).where(submissions.c.id.in_(batch)).values(digest=None))
    return removed


def forget_old(ledger: Ledger, now: datetime) -> None:
    old = repeats.c.created_at <= now - CREATION_KEPT
    with ledger.read() as connection:
        if connection.scalar(sa.select(repeats.c.identity_id).where(old).limit(1)) is None:
            return
    with ledger.write() as connection:
        connection.execute(sa.delete(repeats).where(old))


def _drop_old_submissions(connection: sa.Connection, now: datetime) -> None:
    """Remove digests of submissions older than a minute, and submissions older than a week."""
    s = submissions
    connection.execute(sa.update(s).where(_HAS_DIGEST, s.c.created_at <= now - SAME_WITHIN).values(digest=None))
    old = sa.select(s.c.id).where(s.c.created_at <= now - _SUBMISSION_KEPT).limit(_REMOVED_AT_ONCE)
    connection.execute(sa.delete(s).where(s.c.id.in_(old)))


def _add_of(connection: sa.Connection, cube: str, key: str) -> sa.Row[Any] | None:
    mine = requests.c.cube_id == cube, requests.c.idempotency_key == key
    return connection.execute(sa.select(requests).where(*mine)).one_or_none()


def _replayed(row: sa.Row[Any]) -> AddReceipt:
    ids, duplicates = tuple(row.item_ids), tuple(row.duplicates)
    return AddReceipt(row.cube_id, row.conversation, ids, duplicates, indexed=False, replayed=True)


def _of(call: Call) -> tuple[sa.ColumnElement[bool], ...]:
    return repeats.c.identity_id == call.identity, repeats.c.idempotency_key == call.key


def _text(body: Json) -> str:
    return json.dumps(body, sort_keys=True, ensure_ascii=False)


def _salted(body: str) -> dict[str, bytes]:
    salt = os.urandom(16)
    return {"salt": salt, "digest": _digest(salt, body)}


def _matches(row: sa.Row[Any], body: str) -> bool:
    return hmac.compare_digest(_digest(bytes(row.salt), body), bytes(row.digest))


def _digest(salt: bytes, body: str) -> bytes:
    return hashlib.sha256(salt + body.encode()).digest()


def _keyed_digest(connection: sa.Connection, caller: str, body: str) -> str:
    """Return an HMAC with the ledger's secret, equal for equal submissions so that the database can find them."""
    found = connection.scalar(sa.select(meta.c.value).where(meta.c.key == _SECRET))
    if found is None:
        queues.insert_new(connection, meta, {"key": _SECRET, "value": secrets.token_hex(32)})
        found = connection.execute(sa.select(meta.c.value).where(meta.c.key == _SECRET)).scalar_one()
    text = f"{caller}\0{body}".encode("utf-8", "surrogatepass")
    return hmac.new(bytes.fromhex(str(found)), text, hashlib.sha256).hexdigest()
