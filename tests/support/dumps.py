"""Dumps of cubes for tests: made from ledgers alone, taken apart, changed and put together again."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

from memos.core.clock import Clock, SystemClock, to_micros
from memos.core.types import Fingerprint
from memos.memcube.backup.files import ProgressReporter
from memos.memcube.backup.rows import Bounds
from memos.memcube.dump import load as loading
from memos.memcube.dump import parts
from memos.memcube.dump.container import DumpReader, DumpWriter
from memos.memcube.dump.ids import Ids
from memos.memcube.dump.load import Load, Loaded, Target
from memos.memcube.ledger.engine import Ledger
from tests.support.ledgers import WORDS

MOST = 1 << 30


def dumped(ledger: Ledger, cube: str, clock: Clock | None = None) -> io.BytesIO:
    """Return a dump of a cube, without vectors."""
    out = io.BytesIO()
    with ledger.read() as connection, DumpWriter(out, packed=True) as writer:
        source = parts.Source(connection, cube, (clock or SystemClock()).now())
        parts.write_dump(source, writer, ProgressReporter(None, 0))
    return out


def loaded(
    ledger: Ledger, file: io.BytesIO, cube: str = "default", *, fingerprint: Fingerprint = WORDS, actor: str = "local",
    clock: Clock | None = None, **target: Any,
) -> Loaded:  # fmt: skip
    """Load a dump into a ledger."""
    reader, clock = DumpReader(file, MOST), clock or SystemClock()
    bounds = Bounds(to_micros(clock.now()), 1_048_576, reader.manifest.embedder.dimension)
    with Ids() as ids:
        parts.check(reader, bounds, ids, ProgressReporter(None, 0))
        work = Load(reader, bounds, ids, Target(cube, actor, **target), fingerprint, clock, ProgressReporter(None, 0))
        with ledger.write() as connection:
            return loading.load(connection, work)


Rows = dict[str, Any]


class TakenApart:
    """The parts of a dump by name; tables as lists of objects."""

    def __init__(self, raw: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            self.parts: dict[str, bytes] = {name: archive.read(name) for name in archive.namelist()}
        self.manifest: dict[str, Any] = json.loads(self.parts.pop("manifest.json"))

    def rows(self, table: str) -> list[Rows]:
        """Return a table's rows."""
        return [json.loads(line) for line in self.parts[f"{table}.jsonl"].splitlines()]

    def put(self, table: str, rows: list[Rows]) -> None:
        """Replace a table's rows."""
        lines = [json.dumps(row, ensure_ascii=True).encode() + b"\n" for row in rows]
        self.parts[f"{table}.jsonl"] = b"".join(lines)

    def edit(self, table: str, change: Callable[[Rows], object], place: int = 0) -> None:
        """Change one row."""
        rows = self.rows(table)
        change(rows[place])
        self.put(table, rows)

    def whole(self) -> bytes:
        """Return the dump with a manifest that fits what is in it."""
        listed = {name: raw for name, raw in self.parts.items() if not name.startswith("files/")}
        self.manifest["parts"] = {
            name: {
                "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest(),
                "rows": raw.count(b"\n") if name.endswith(".jsonl") else None,
            }
            for name, raw in listed.items()
        }  # fmt: skip
        for table in self.manifest["counts"]:
            self.manifest["counts"][table] = self.parts.get(f"{table}.jsonl", b"").count(b"\n")
        return zipped({**self.parts, "manifest.json": signed(self.manifest)})


def signed(manifest: dict[str, Any]) -> bytes:
    """Return a manifest with its own digest, as docs/reference/memcube-format.md says."""
    told = {name: value for name, value in manifest.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(told, ensure_ascii=False, sort_keys=True).encode()).hexdigest()
    return json.dumps({**told, "sha256": digest}, ensure_ascii=False, sort_keys=True).encode() + b"\n"


def zipped(parts: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return parts as a zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, raw in parts.items():
            archive.writestr(name, raw)
    return out.getvalue()
