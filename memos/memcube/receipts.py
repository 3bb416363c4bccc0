"""Receipts of erasures: what there was of each form before and after, fingerprints of what went, and the signature.

A receipt holds no content. Its fingerprints are keyed digests of short passages, under a secret that never leaves the
installation: they tell whoever has the receipt alone nothing, and whoever has the installation alone does not have
them, since they are handed out once and not stored. Both together find the passages again if they are anywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from memos.core.clock import to_micros
from memos.core.types import ErasedForm, EraseReceipt, ItemType, Json
from memos.memcube.ledger import items
from memos.memcube.ledger import schema as t
from memos.memcube.signing import SigningKey, canonical, is_signed

PASSAGE_BYTES = 16
"""Length of a fingerprinted passage, which begins where a word begins."""

_MOST_PASSAGES = 256
_PASSAGES_OF_TEXT = 4
_DIGEST_BYTES = 12
# By byte: letters, digits, and whatever is not ASCII.
_IN_WORDS = np.array([sign >= 0x80 or chr(sign).isalnum() or sign == ord("_") for sign in range(256)])
_UNSIGNED = frozenset({"signature"})

Forms = Mapping[str, list[int | None]]

_V = t.versions.c
_ROWS: Mapping[str, tuple[sa.Column[Any], sa.ColumnElement[bool] | None]] = {
    "memories": (t.items.c.id, None),
    "versions": (_V.item_id, None),
    "sources": (t.sources.c.item_id, None),
    "links": (t.links.c.from_id, None),
    "links_from_others": (t.links.c.to_id, None),
    "graph": (t.mentions.c.item_id, None),
    "profile": (_V.item_id, _V.type == ItemType.PROFILE),
    "working_memory": (_V.item_id, _V.type == ItemType.WORKING),
    "prompt_prefix": (t.prefix_entries.c.item_id, None),
    "heat": (t.warmth.c.item_id, None),
    "events": (t.events.c.item_id, t.events.c.body.is_not(None)),
    "model_answers": (t.extraction_items.c.item_id, None),
    "idempotency": (t.request_items.c.item_id, None),
    "document_passages": (t.file_items.c.item_id, None),
    "files": (t.files.c.id, t.files.c.sha256 != ""),
    "file_bytes": (t.file_parts.c.file_id, None),
    "training_sets": (t.adapter_items.c.item_id, None),
}
"""Forms that are rows of the ledger: the column that names an item or a file, and which of its rows count."""


def count_rows(connection: sa.Connection, ids: Collection[str]) -> dict[str, int]:
    """Count what the ledger has of each form of these items and files."""
    found = dict.fromkeys([*_ROWS, "adapters"], 0)
    for batch in items.in_batches(ids):
        for form, (column, which) in _ROWS.items():
            query = sa.select(sa.func.count()).select_from(column.table).where(column.in_(batch))
            found[form] += connection.scalar(query if which is None else query.where(which)) or 0
    learned = items.scalars_in(connection, sa.select(t.adapter_items.c.adapter_id), t.adapter_items.c.item_id, ids)
    found["adapters"] = len(set(learned))
    return found


def count_in(connection: sa.Connection, column: sa.Column[Any], ids: Collection[str]) -> int:
    """Count the rows with these values in a column."""
    counted = sa.select(sa.func.count()).select_from(column.table)
    return sum(connection.scalar(counted.where(column.in_(batch))) or 0 for batch in items.in_batches(ids))


def count_vectors(connection: sa.Connection, ids: Collection[str]) -> int:
    """Count the versions that have points in the vector index."""
    found = 0
    for batch in items.in_batches(ids):
        query = sa.select(sa.func.count()).select_from(t.versions).join(t.items, t.items.c.id == _V.item_id)
        found += connection.scalar(query.where(_V.item_id.in_(batch), t.items.c.searchable.is_(True))) or 0
    return found


def count_dumps(connection: sa.Connection, cube: str, since: datetime | None) -> int:
    """Count the dumps of a cube since its oldest erased item was made."""
    log = t.access_log.c
    query = sa.select(sa.func.count()).select_from(t.access_log).where(log.kind == "dump", log.subject == cube)
    return connection.scalar(query if since is None else query.where(log.at >= since)) or 0


def waiting_windows(connection: sa.Connection, rebuilt: Collection[str]) -> int:
    """Count neighbours whose windows an index has still to make anew."""
    return len(set(items.scalars_in(connection, sa.select(t.outbox.c.item_id), t.outbox.c.item_id, rebuilt)))


def forms_of(told: Forms) -> tuple[ErasedForm, ...]:
    """Return the forms of a tombstone that were there before or are there after, by name."""
    return tuple(
        ErasedForm(name, before or 0, after)
        for name, (before, after) in sorted(told.items())
        if before or after or before is None
    )


# Fingerprints


def passages_of(connection: sa.Connection, cube: str, ids: Collection[str], messages: Collection[str]) -> list[bytes]:
    """Return passages of what these items and messages say, spread over all of it."""
    chosen: dict[bytes, None] = {}
    for text in dict.fromkeys(_texts(connection, cube, ids, messages)):
        raw = text.encode("utf-8", "surrogatepass")
        starts = word_starts(raw)
        step = max(1, len(starts) // _PASSAGES_OF_TEXT)
        chosen |= dict.fromkeys(raw[start : start + PASSAGE_BYTES] for start in starts[::step][:_PASSAGES_OF_TEXT])
    found = list(chosen)
    return found[:: max(1, -(-len(found) // _MOST_PASSAGES))]


def word_starts(raw: bytes) -> list[int]:
    """Return where words begin in bytes that have a whole passage left: behind a sign of ASCII that is no letter."""
    signs = _IN_WORDS[np.frombuffer(raw, np.uint8)]
    begins = signs.copy()
    begins[1:] &= ~signs[:-1]
    found: list[int] = np.flatnonzero(begins[: max(0, len(raw) - PASSAGE_BYTES + 1)]).tolist()
    return found


def fingerprint(secret: bytes, passage: bytes) -> str:
    """Return the fingerprint of a passage under the secret of a receipt."""
    return hashlib.blake2b(passage, key=secret, digest_size=_DIGEST_BYTES).hexdigest()


def secret_of(key: SigningKey, receipt: str) -> bytes:
    """Return the secret of a receipt's fingerprints."""
    return key.derive(f"fingerprints of {receipt}")


def _texts(connection: sa.Connection, cube: str, ids: Collection[str], messages: Collection[str]) -> Iterator[str]:
    m, f, e = t.messages.c, t.files.c, t.extractions.c
    answers = sa.select(e.output).join(t.extraction_items, t.extraction_items.c.extraction_id == e.id)
    said = (m.text, m.content, m.tool_calls)
    for row in items.rows_in(connection, sa.select(*said).where(m.cube_id == cube), m.id, messages):
        yield from _strings(list(row))
    stated = (_V.memory, _V.value, _V.tags, _V.info)
    for row in items.rows_in(connection, sa.select(*stated).where(_V.cube_id == cube), _V.item_id, ids):
        yield from _strings(list(row))
    yield from items.scalars_in(connection, sa.select(f.name), f.id, ids)
    yield from items.scalars_in(connection, answers, t.extraction_items.c.item_id, ids)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _strings(inner)
        case list() | tuple():
            for inner in value:
                yield from _strings(inner)


# Signing


def sign(receipt: EraseReceipt, key: SigningKey) -> EraseReceipt:
    """Return the receipt with the installation's public key and signature."""
    named = replace(receipt, public_key=key.public_key)
    return replace(named, signature=key.sign(payload(named)))


def is_valid(receipt: EraseReceipt) -> bool:
    """Return True if a receipt was signed with the secret of its public key, and not changed since."""
    if receipt.public_key is None or receipt.signature is None:
        return False
    return is_signed(payload(receipt), receipt.public_key, receipt.signature)


def canonical_payload(receipt: EraseReceipt) -> bytes:
    """Return the bytes that are signed. Raises: TypeError, ValueError (a field has the wrong type)."""
    return canonical(payload(receipt))


def payload(receipt: EraseReceipt) -> dict[str, Json]:
    """Return what is signed: every field that is not empty, so that fields of later versions change nothing."""
    told = {each.name: getattr(receipt, each.name) for each in fields(receipt) if each.name not in _UNSIGNED}
    return {name: _plain(value) for name, value in told.items() if value not in (None, (), {})}


def _plain(value: Any) -> Json:
    match value:
        case datetime():
            return to_micros(value)
        case ErasedForm():
            return [value.name, value.before, value.after]
        case Mapping():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
    return value
