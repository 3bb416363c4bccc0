"""AdapterService as rows and files, for tests of what is done with them; no model is trained."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from memos import MemOS
from memos.core.lora import ADAPTER_FILE, CARD, FILES, MANIFEST, digests
from memos.kernel.adapters.service import AdapterService
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.adapters import AdapterRow, AdapterState, NewAdapter, Outcome, Seen
from memos.memcube.ledger.engine import Ledger

NOW = datetime(2025, 6, 1, tzinfo=UTC)
BASE = "b" * 64
NEW = NewAdapter("default", "local:/models/tiny", BASE, {"rank": 4}, "d" * 64)
READY = Outcome(AdapterState.READY, {"recall": 0.9}, hashlib.sha256(b"weights").hexdigest(), 7)
REFUSED = Outcome(AdapterState.REFUSED, {"recall": 0.1}, reason="recall is 0.1, at least 0.8 is wanted")


def allow(ledger: Ledger, cube: str = "default") -> None:
    with ledger.write() as connection:
        adapter_rows.allow(connection, cube, "local", NOW)


def begun(ledger: Ledger, items: Sequence[str], version: int = 1, **changed: Any) -> AdapterRow:
    """Begin to train an adapter on items of one version."""
    with ledger.write() as connection:
        seen = [Seen(item, version, hashlib.sha256(item.encode()).hexdigest()) for item in items]
        return adapter_rows.begin(connection, replace(NEW, **changed), seen, NOW)


def of_shard(ledger: Ledger, items: Sequence[str], shard: str = "bees", **changed: Any) -> str:
    """Return an adapter that answers beside the others of its cube, as version 0.1 had one for each topic."""
    id_ = begun(ledger, items, **changed).id
    finished(ledger, id_)
    with ledger.write() as connection:
        connection.execute(sa.update(t.adapters).where(t.adapters.c.id == id_).values(shard=shard, state="active"))
    return id_


def finished(ledger: Ledger, id_: str, outcome: Outcome = READY) -> AdapterRow:
    with ledger.write() as connection:
        return adapter_rows.finish(connection, id_, outcome, NOW)


def activated(ledger: Ledger, id_: str) -> AdapterRow:
    with ledger.write() as connection:
        return adapter_rows.activate(connection, id_)


def active(ledger: Ledger, items: Sequence[str], version: int = 1, **changed: Any) -> str:
    """Return an adapter that answers."""
    id_ = begun(ledger, items, version, **changed).id
    finished(ledger, id_)
    return activated(ledger, id_).id


def serving(ledger: Ledger, cube: str = "default", base: str = BASE) -> list[str]:
    with ledger.read() as connection:
        row = adapter_rows.serving(connection, cube, base)
    return [] if row is None else [row.id]


def states(ledger: Ledger, cube: str = "default") -> list[tuple[int, str]]:
    """Return number and state of a cube's adapters, the newest first."""
    with ledger.read() as connection:
        return [(row.number, row.state) for row in adapter_rows.of(connection, cube)]


def with_a_model(memos: MemOS) -> AdapterService:
    """Return adapters that might be trained, were there anything to learn; nothing is loaded for that."""
    training = memos.adapters.training
    learned = training.settings.parametric.model_copy(update={"base": "/models/tiny"})
    settings = training.settings.model_copy(update={"parametric": learned})
    return replace(memos.adapters, training=replace(training, settings=settings))


def with_files(folder: Path, id_: str, *, training: bool = False) -> Path:
    """Write an adapter's files by hand: `SIZE`, and four more of a training."""
    place = folder / id_
    place.mkdir(parents=True)
    for name in (*FILES, *(("training.safetensors", "exercises.jsonl") if training else ())):
        (place / name).write_bytes(b"weights" if name == ADAPTER_FILE else b"{}")
    sealed(place)
    return place


def sealed(place: Path) -> str:
    """Write the manifest of an adapter's files; return the digest of its weights."""
    found = digests(place)
    (place / MANIFEST).write_text(json.dumps(found))
    return found["weights_sha256"]


SIZE = len(b"weights") + len(b"{}") + len(json.dumps(dict.fromkeys(("weights_sha256", "config_sha256"), BASE)))
"""The bytes of an adapter's files that were written by hand."""


def with_card(place: Path) -> Path:
    """Add what an adapter that is exported has, too."""
    (place / CARD).write_text("# Adapter")
    return place
