"""Adapters in a dump: the weights of the one that answers, what it was made of and from which memories.

A load believes of it what it can check: the weights go onto a model here in the shape that the recipe says, and are
evaluated before they answer. Knows no models.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from memos.core.clock import to_micros
from memos.core.lora import ADAPTER_FILE, wrong_with
from memos.core.types import Json
from memos.errors import IntegrityError
from memos.memcube.backup.rows import ID, object_of
from memos.memcube.dump.container import DumpReader, DumpWriter, bad
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger.adapters import AdapterRow, AdapterState, Seen

log = logging.getLogger("memos.dumps")

_PART = re.compile(rf"adapters/(?P<id>{ID.pattern})\.(?P<kind>json|safetensors)")
_TOLD, _WEIGHTS = "json", "safetensors"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_COPIED = 1 << 20
# A line about each of 500 memories is some 100 KB; an adapter of rank 64 on a model of 70 billion parameters 800 MB.
_LARGEST = {_TOLD: 4 << 20, _WEIGHTS: 1 << 30}
MOST = 16
"""Adapters that are taken in of one file, which had several until version 0.1: each takes minutes to evaluate."""
MOST_SEEN = 10_000
_MOST_VERSIONS = 1 << 30
_TEXTS = {"shard": 64, "model": 4096}
_FIELDS = {
    "id": str, "shard": str, "number": int, "model": str, "base_sha256": str, "recipe": dict, "data_sha256": str,
    "measures": dict, "memories": list, "created_at": int,
}  # fmt: skip
_SEEN_FIELDS = {"item": str, "version": int, "sha256": str}


@dataclass(frozen=True, slots=True)
class Carried:
    id: str
    base: str
    recipe: Mapping[str, Json]
    data_hash: str
    seen: tuple[Seen, ...]

    @property
    def weights(self) -> str:
        return f"adapters/{self.id}.{_WEIGHTS}"


def write(connection: sa.Connection, cube: str, folder: Path, out: DumpWriter) -> None:
    """Write the adapter that answers for a cube now, if any; `folder` has its files.

    One that is larger than a load takes is left out, and the log says so. Raises: IntegrityError (damaged, missing).
    """
    stale = {row.id for row in adapter_rows.stale(connection, cube)}
    rows = adapter_rows.of(connection, cube)
    row = next((row for row in rows if row.state is AdapterState.ACTIVE and row.id not in stale), None)
    if row is None:
        return
    told = json.dumps(_told(connection, row), ensure_ascii=False).encode()
    if len(told) > _LARGEST[_TOLD] or (row.size_bytes or 0) > _LARGEST[_WEIGHTS]:
        log.warning("adapter %s of cube %s is left out of the cube file: it is too large", row.id, cube)
        return
    if (wrong := wrong_with(folder / row.id, row.digest)) is not None:  # before anything of it is written
        raise _harmed(row, wrong)
    with out.part(f"adapters/{row.id}.{_TOLD}", lines=False) as part:
        part.write(told)
    with out.part(f"adapters/{row.id}.{_WEIGHTS}", lines=False) as part:
        digest = hashlib.sha256()
        try:
            with (folder / row.id / ADAPTER_FILE).open("rb") as file:
                while data := file.read(_COPIED):
                    digest.update(data)
                    part.write(data)
        except OSError as error:
            raise _harmed(row, error.strerror or type(error).__name__) from error
        if digest.hexdigest() != row.digest:
            raise _harmed(row, "changed since their evaluation")


def names(reader: DumpReader) -> list[str]:
    return [name for name in reader.reserved if _PART.fullmatch(name)]


def count(parts: Mapping[str, object]) -> int:
    return sum(1 for name in parts if (found := _PART.fullmatch(name)) and found["kind"] == _TOLD)


def check(reader: DumpReader) -> None:
    """Read all that is of adapters; what a row says is looked at, weights are not. Raises: InvalidInput."""
    kinds: dict[str, set[str]] = {}
    for name in names(reader):
        part = _PART.fullmatch(name)
        assert part is not None
        kinds.setdefault(part["id"], set()).add(part["kind"])
        if reader.manifest.parts[name].bytes > _LARGEST[part["kind"]]:
            raise bad(f"{name} is larger than allowed")
        if part["kind"] == _WEIGHTS:
            for _ in reader.blocks(name):
                pass
        else:
            _read(reader, name)
    if any(found != {_TOLD, _WEIGHTS} for found in kinds.values()):
        raise bad("it has an adapter without weights, or weights without an adapter")


def carried(reader: DumpReader) -> list[Carried]:
    told = [name for name in names(reader) if name.endswith(f".{_TOLD}")]
    return [_read(reader, name) for name in told[:MOST]]


def _told(connection: sa.Connection, row: AdapterRow) -> dict[str, Json]:
    seen: list[Json] = [
        {"item": each.item, "version": each.version, "sha256": each.digest}
        for each in adapter_rows.seen(connection, row.id)
    ]
    return {
        "id": row.id,
        "shard": row.shard,
        "number": row.number,
        "model": row.model,
        "base_sha256": row.base,
        "recipe": dict(row.recipe),
        "data_sha256": row.data_hash,
        "measures": dict(row.measures or {}),
        "memories": seen,
        "created_at": to_micros(row.created_at),
    }


def _harmed(row: AdapterRow, why: str) -> IntegrityError:
    return IntegrityError(
        f"The weights of adapter {row.id} cannot be dumped ({why}); remove it (`memos model adapter remove`), or dump "
        "without adapters."
    )


def _read(reader: DumpReader, name: str) -> Carried:
    raw = b"".join(reader.blocks(name))
    try:
        told = object_of(raw)
        if told.keys() != _FIELDS.keys() or any(type(told[field]) is not kind for field, kind in _FIELDS.items()):
            raise ValueError
        _check_texts(told, name)
        seen = tuple(map(_seen, told["memories"]))
        if not 0 < len({each.item for each in seen}) == len(seen) <= MOST_SEEN:
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise bad(f"{name} does not describe an adapter") from error
    return Carried(told["id"], told["base_sha256"], told["recipe"], told["data_sha256"], seen)


def _check_texts(told: Mapping[str, str], name: str) -> None:
    """See that texts are what they should be, and of whom the name says. Raises: ValueError."""
    digests = (told["base_sha256"], told["data_sha256"])
    if name != f"adapters/{told['id']}.{_TOLD}" or not all(map(_DIGEST.fullmatch, digests)):
        raise ValueError
    for field, most in _TEXTS.items():
        if len(told[field]) > most or not told[field].isprintable():
            raise ValueError


def _seen(told: Json) -> Seen:
    if not isinstance(told, dict) or told.keys() != _SEEN_FIELDS.keys():
        raise ValueError
    if any(type(told[field]) is not kind for field, kind in _SEEN_FIELDS.items()):
        raise ValueError
    if not ID.fullmatch(told["item"]) or not _DIGEST.fullmatch(told["sha256"]):
        raise ValueError
    if not 0 < told["version"] < _MOST_VERSIONS:
        raise ValueError
    return Seen(told["item"], told["version"], told["sha256"])
