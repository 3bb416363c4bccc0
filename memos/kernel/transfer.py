"""`MemOS.transfer`: cubes are dumped into files, looked at and loaded; knows neither zips nor rows."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO

from memos.core.clock import to_micros
from memos.core.identities import Right
from memos.core.text.validation import MAX_MESSAGE_BYTES, check_name, check_new_id
from memos.core.types import LOCAL_OWNER
from memos.errors import BackendUnavailable, Conflict, InvalidInput, MemosError
from memos.kernel.adapters.transfer import AdapterArrival
from memos.kernel.context import Context
from memos.kernel.opening import OpenedInstallation
from memos.memcube.backup.files import Progress, ProgressReporter, created, disk_errors, sync_folder
from memos.memcube.backup.rows import Bounds
from memos.memcube.dump import adapters as dump_adapters
from memos.memcube.dump import kv as dump_kv
from memos.memcube.dump import load as loading
from memos.memcube.dump import parts as dump_parts
from memos.memcube.dump.container import (
    MAGIC,
    POINTS,
    DumpManifest,
    DumpReader,
    DumpWriter,
    Encryptor,
    check_passphrase,
    is_sealed,
    is_zip_bomb,
    unseal,
)
from memos.memcube.dump.ids import Ids
from memos.memcube.dump.load import Load, Loaded, Target
from memos.memcube.dump.vectors import DumpedVectors
from memos.memcube.indexing.followers import SAME_TEXTS
from memos.memcube.ledger import access, cubes
from memos.reader.arguments import switch

log = logging.getLogger("memos.dumps")

DUMP_BYTES = 8 * 2**30
"""Most bytes of a cube file, also unpacked."""

Given = str | Path | IO[bytes]  # a path, or an open file that can seek


@dataclass(frozen=True, slots=True)
class DumpInfo:
    """Description of a dump; `counts` are rows by table, `fits` is True if its vectors are of the embedder here.

    `kv_blocks` are those of activation memory, `adapters` those that answered for it.
    """

    cube: str
    description: str
    created_at: datetime
    program: str
    embedder: str
    fits: bool
    vectors: int
    sealed: bool
    bytes: int
    counts: Mapping[str, int]
    left_out: tuple[str, ...]
    kv_blocks: int = 0
    adapters: int = 0


class Transfer:
    """Dumps of cubes as files that any installation can load, and any program can read.

    See docs/reference/memcube-format.md.
    """

    def __init__(self, context: Context, installation: OpenedInstallation, adapters: AdapterArrival) -> None:
        self._context = context
        self._installation = installation
        self._adapters = adapters

    def dump(  # noqa: PLR0913 - each decides something of its own
        self,
        cube: str,
        file: str | Path,
        *,
        passphrase: str | None = None,
        vectors: bool = True,
        kv: bool = False,
        adapters: bool = False,
        actor: str = LOCAL_OWNER,
        on_progress: Progress | None = None,
    ) -> DumpInfo:
        """Write a cube as it is at this moment into a new file; it appears whole or not at all. Owners of it may.

        The file holds everything, also what was replaced or deleted; with a passphrase it is sealed. With `kv` it has
        what prompts of the cube begin with, and the KV that models in this process keep of it; with `adapters` the
        weights of those that answer for it, which know what its memories say. Raises: NotFound, PermissionDenied,
        Conflict (the file is there), InvalidInput, BackendUnavailable (disk full), IntegrityError (an adapter is
        damaged).
        """
        path = Path(file)
        self._check_dump(cube, actor)
        with _written_aside(path) as out:
            return self._write(cube, out, passphrase, on_progress, vectors=vectors, kv=kv, adapters=adapters)

    def inspect(self, file: Given, *, passphrase: str | None = None, actor: str = LOCAL_OWNER) -> DumpInfo:
        """Read a whole dump and say what it is of, loading nothing. Raises: InvalidInput (damaged, sealed, none)."""
        self._check_actor(actor)
        with self._reader(file, passphrase) as (reader, size, sealed), Ids() as ids:
            dump_parts.check(reader, self._bounds(reader.manifest), ids, ProgressReporter(None, 0))
            return self._info(reader.manifest, size, sealed, dump_parts.unknown(reader))

    def load(  # noqa: PLR0913 - each decides something of its own
        self,
        file: Given,
        *,
        cube: str | None = None,
        merge: bool = False,
        trust: bool = False,
        restore_erased: bool = False,
        passphrase: str | None = None,
        actor: str = LOCAL_OWNER,
        on_progress: Progress | None = None,
    ) -> Loaded:
        """Load a dump as a new cube of the actor's, under its own id or `cube`; with `merge` into one that is there.

        All of it is loaded or nothing. What it says counts as untrusted unless `trust`; what was erased here stays
        erased unless `restore_erased`. Of an item that is here at another version the one here stays. Adapters of a
        file that is trusted are evaluated then, which takes minutes, and are ready if they pass. Raises: InvalidInput
        (damaged), Conflict, NotFound, PermissionDenied, BackendUnavailable.
        """
        self._check_actor(actor)
        flags = switch("merge", merge), switch("trust", trust), switch("restore_erased", restore_erased)
        with self._reader(file, passphrase) as (reader, _, _), Ids() as ids:
            target = self._target(check_name("cube", cube or reader.manifest.cube.id, 128), actor, flags)
            bounds = self._bounds(reader.manifest)
            dump_parts.check(reader, bounds, ids, ProgressReporter(None, 0))
            total = sum(reader.manifest.counts.values())
            ticker = ProgressReporter(on_progress, total)
            work = Load(reader, bounds, ids, target, self._context.scopes.fingerprint, self._context.clock, ticker)
            with self._context.access.changing():
                done = self._loaded(work)
            blocks, why = self._adopted(work)
            ready, not_ready = self._adapters.take(work)
            ticker.finish()
        self._context.wait_indexed()
        return replace(done, kv_blocks=blocks, kv_left_out=why, adapters=ready, adapters_left_out=not_ready)

    def _adopted(self, work: Load) -> tuple[int, str | None]:
        """Take in the blocks of activation memory where the same model answers; return how many, or why none."""
        if not dump_kv.names(work.reader):
            return 0, None
        target, local = work.target, self._context.settings.local_chat
        if not target.trust:
            return 0, "they are loaded only from a trusted file (trust=True, --trust)"
        if target.merge or target.cube != work.reader.manifest.cube.id:
            return 0, "they are loaded only into a new cube with the name in the file"
        if local is None:
            return 0, "no model in this process keeps a KV cache (MEMOS_CHAT_MODEL__MODEL=local:PATH)"
        try:
            shape = self._installation.activations.shape(local)
        except MemosError as error:
            return 0, f"cannot open the model {local.model}: {error}"
        told = dump_kv.heads(work.reader)
        if shape is None or shape.fingerprint not in {block.fingerprint for block in told.values()}:
            return (
                0,
                f"they were computed by another model than {local.model}, or with other weights, another tokenizer or "
                "chat template",
            )
        taken = self._installation.activations.adopt(
            dump_kv.read_blocks(work.reader, told, work.ids), target.cube, shape
        )
        left = len(told) - taken
        return taken, f"for {left} there was no room, or a block before them is missing" if left else None

    def _loaded(self, work: Load) -> Loaded:
        installation, manifest = self._installation, work.reader.manifest
        lent = None
        fits = work.vectors_fit and manifest.point_format in SAME_TEXTS and work.reader.has(POINTS)
        if fits and work.target.trust:  # others could have an item found whatever is asked
            with disk_errors(installation.home):
                lent = DumpedVectors(work.reader, self._scratch(), normalised=work.fingerprint.normalised)
        try:
            with self._context.write() as connection:
                done = loading.load(connection, work)
                self._context.quotas.charge(connection, done.items, loading.size_of(connection, work))
                if lent is not None:
                    lent.name(work.reader, work.ids)
                    installation.vector_follower.lend(lent)  # before others see that there is something to follow
        except BaseException:
            installation.vector_follower.lend(None)
            raise
        return done

    def _target(self, cube: str, actor: str, flags: tuple[bool, bool, bool]) -> Target:
        merge, trust, restore_erased = flags
        sees = self._context.scopes.readable(actor)
        if merge:
            self._context.scopes.check([cube], actor, right=Right.OWN)
        else:
            check_new_id("cube", cube)
            self._context.access.check_key(Right.OWN)  # as to create one
            self._context.access.check_unlimited("create cubes")
            with self._context.ledger.read() as connection:
                if cubes.exists(connection, cube):
                    raise Conflict(f"Cube {cube!r} exists already; choose another id (cube=, --as), or merge into it.")
        return Target(cube, actor, merge, trust, restore_erased, sees is None, sees)

    def _check_dump(self, cube: str, actor: str) -> None:
        """Check that an actor may dump a cube, and log the dump: receipts of erasures tell of it."""
        context = self._context
        context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        context.scopes.record_read(actor, [cube])
        try:
            with context.ledger.write() as connection:
                access.record(connection, context.clock.now(), actor, "dump", cube, {})
        except BackendUnavailable as error:  # what a full disk holds has to be saved all the same
            log.warning("the dump of %s is not in the audit log, so receipts will not count it (%s)", cube, error)

    def _check_actor(self, actor: str) -> None:
        self._context.lifecycle.check_open()
        self._context.access.check(check_name("actor", actor, 128), (), Right.WRITE)

    def _bounds(self, manifest: DumpManifest) -> Bounds:
        return Bounds(to_micros(self._context.clock.now()), MAX_MESSAGE_BYTES, manifest.embedder.dimension)

    def _write(
        self,
        cube: str,
        out: IO[bytes],
        passphrase: str | None,
        on_progress: Progress | None = None,
        *,
        vectors: bool,
        kv: bool,
        adapters: bool,
    ) -> DumpInfo:
        vectors, kv, adapters = switch("vectors", vectors), switch("kv", kv), switch("adapters", adapters)
        secret = None if passphrase is None else check_passphrase(passphrase)
        installation = self._installation
        if adapters and self._adapters.folder is None:
            raise InvalidInput(
                "adapters", "are not available, as this process has no folder for them; dump without them"
            )
        with self._context.ledger.read() as connection:
            own = cubes.heads(connection, [cube])[cube].fingerprint == self._context.scopes.fingerprint
            index = installation.vector if own and vectors else None
            for packed in (True, False):
                learned = self._adapters.folder if adapters else None
                source = dump_parts.Source(
                    connection, cube, self._context.clock.now(), index, self._scratch(), adapters=learned
                )
                out.seek(0)
                out.truncate()
                sealer = None if secret is None else Encryptor(out, secret)
                lending = installation.activations.lend_blocks(cube) if kv else nullcontext()
                with DumpWriter(sealer or out, packed=packed) as writer, lending as kept:
                    ticker = ProgressReporter(on_progress, dump_parts.count(connection, cube))
                    manifest = dump_parts.write_dump(replace(source, kept=kept), writer, ticker)
                if sealer is not None:
                    sealer.finish()
                size = out.tell()
                if not is_zip_bomb(writer.unpacked, size):
                    break
        return self._info(manifest, size, secret is not None, ())

    @contextmanager
    def _reader(self, file: Given, passphrase: str | None) -> Iterator[tuple[DumpReader, int, bool]]:
        with _opened(file) as given:
            size = given.seek(0, os.SEEK_END)
            given.seek(0)
            sealed = is_sealed(given.read(len(MAGIC)))
            given.seek(0)
            if not sealed:
                if passphrase is not None:
                    raise InvalidInput("passphrase", "was given, but the file is not encrypted; leave it out")
                yield DumpReader(given, DUMP_BYTES), size, False
                return
            if passphrase is None:
                raise InvalidInput("passphrase", "is required: the file is encrypted")
            secret = check_passphrase(passphrase)
            with disk_errors(self._installation.home), tempfile.TemporaryFile(dir=self._scratch()) as plain:
                unseal(given, plain, secret)
                yield DumpReader(plain, DUMP_BYTES), size, True

    def _info(self, manifest: DumpManifest, size: int, sealed: bool, left_out: tuple[str, ...]) -> DumpInfo:
        points = manifest.parts.get(POINTS)
        return DumpInfo(
            manifest.cube.id,
            manifest.cube.description,
            manifest.created_at,
            manifest.program,
            manifest.embedder.name,
            manifest.embedder == self._context.scopes.fingerprint,
            0 if points is None else points.rows or 0,
            sealed,
            size,
            manifest.counts,
            left_out,
            sum(map(dump_kv.is_block, manifest.parts)),
            dump_adapters.count(manifest.parts),
        )

    def _scratch(self) -> Path | None:
        return self._installation.scratch


def open_dump(
    transfer: Transfer,
    cube: str,
    *,
    passphrase: str | None = None,
    vectors: bool = True,
    kv: bool = False,
    adapters: bool = False,
    actor: str = LOCAL_OWNER,
) -> IO[bytes]:
    """Return a dump as an open file without a name, at its beginning; close it. Raises: as `Transfer.dump`."""
    transfer._check_dump(cube, actor)
    out = scratch_file(transfer)
    try:
        with disk_errors(transfer._installation.home):
            transfer._write(cube, out, passphrase, vectors=vectors, kv=kv, adapters=adapters)
        out.seek(0)
    except BaseException:
        out.close()
        raise
    return out


def scratch_file(transfer: Transfer) -> IO[bytes]:
    """Return a new file without a name, on the disk of the installation where that has one."""
    with disk_errors(transfer._installation.home):
        return tempfile.TemporaryFile(dir=transfer._scratch())


def write_scratch(transfer: Transfer, file: IO[bytes], data: bytes | bytearray) -> None:
    """Write into such a file while there is room. Raises: BackendUnavailable."""
    transfer._context.lifecycle.check_space()
    with disk_errors(transfer._installation.home):
        file.write(data)


@contextmanager
def _opened(file: Given) -> Iterator[IO[bytes]]:
    if not isinstance(file, str | Path):
        yield file
        return
    path = Path(file)
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InvalidInput("file", f"{str(path)!r} cannot be read ({error.strerror})") from error
    with opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise InvalidInput("file", f"{str(path)!r} is not a file")
        yield opened


@contextmanager
def _written_aside(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that takes its name when it is whole; what a crash left of an earlier one goes first."""
    aside = path.with_name(f".{path.name}.part") if path.name else path
    with disk_errors(path.parent):
        if path.exists() or path.is_symlink() or not path.name:
            raise Conflict(f"{str(path)!r} exists already; choose another name, or remove it.")
        aside.unlink(missing_ok=True)
        try:
            with created(aside) as out:
                yield out
            aside.rename(path)
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise
