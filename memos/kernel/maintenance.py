"""Keeps an installation whole: verification, backups, rebuilt indexes, finished erasures, and the jobs for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from memos.core.types import Difference, VerifyReport
from memos.errors import BackendUnavailable, IntegrityError, NotFound, shown
from memos.kernel.opening import Parts
from memos.memcube import erasure as erase
from memos.memcube import verify
from memos.memcube.backup import backups
from memos.memcube.backup.archive import Manifest
from memos.memcube.indexing.projection import Projection
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger import outbox
from memos.memcube.ledger import segments as tiers
from memos.memcube.parametric import forgetting
from memos.memcube.purge import Purgeable, purge, waits_for_servers
from memos.scheduler.index_worker import Repair
from memos.scheduler.task import Job, Run

_BUILD_SHARE = 3
_LOOK_S = 10.0
_ASK_AGAIN_S = 30.0

Progress = Callable[[int, int], None]

log = logging.getLogger("memos.upkeep")


class Upkeep:
    """What is done to the stores of one open installation as a whole; it checks no scope."""

    def __init__(self, parts: Parts, vector: Projection, graph: Projection) -> None:
        self._parts = parts
        self._projections = (vector, graph)
        self.repair = Repair(
            parts.ledger, {"vector": parts.vector, "graph": parts.graph}, {"vector": vector, "graph": graph}
        )
        self._purging = threading.Lock()
        self._look_at = 0.0
        self._ask_at = 0.0

    def jobs(self) -> list[Job]:
        """Return the tasks about the whole installation."""
        return [Job("verify", self._verify, budgeted=False), Job("backup", self._back_up, budgeted=False)]

    def cubes(self) -> tuple[str, ...]:
        """Return the ids of all cubes."""
        with self._parts.ledger.read() as connection:
            return tuple(verify.cube_ids(connection))

    def verify(self, cubes: tuple[str, ...], *, repair: bool, strangers: bool) -> VerifyReport:
        """Compare the ledger with itself and both indexes; with `strangers` also what no cube is of, KV and adapters.

        KV is computed again, adapters have to be trained again.
        """
        report = self.repair.verify(cubes, repair=repair, strangers=strangers)
        damaged = self._parts.activations.verify() if strangers else []
        harmed = forgetting.differences(self._parts.ledger, self._parts.adapters) if strangers else []
        told = [
            Difference("parametric", "damaged", id_, f"{what}; it answers nothing: train again") for id_, what in harmed
        ]
        if repair:  # blocks are removed, which is all there is to repair
            report = replace(report, repaired=report.repaired + len(damaged))
        else:
            told += [Difference("activation", "damaged", key, "is removed; it is computed again") for key in damaged]
        return replace(report, differences=(*report.differences, *told))

    def reembed(self, on_progress: Progress | None) -> int:
        """Give every cube vectors of the configured embedder; return how many items. Raises: BackendUnavailable."""
        every, parts = self.cubes(), self._parts
        parts.check_space()
        parts.ledger.renew_hold()
        with parts.ledger.write() as connection:
            for cube in every:
                cube_rows.set_fingerprint(connection, cube, parts.embedder.fingerprint)
            for cube, segments in tiers.forget_vectors(connection).items():
                tiers.remake(connection, cube, segments, parts.clock.now())
        count = self.repair.reindex(every, on_progress)
        self.use_my_vectors()
        return count

    def catch_up(self, on_progress: Progress | None) -> None:
        """Have both indexes show everything the ledger has. Raises: BackendUnavailable."""

        def waiting() -> int:
            with self._parts.ledger.read() as connection:
                return sum(outbox.count(connection, target) for target in outbox.TARGETS)

        total = waiting()
        self.repair.catch_up(None if on_progress is None else lambda _: on_progress(max(0, total - waiting()), total))

    def backup(self, folder: Path, on_progress: Progress | None = None) -> Manifest:
        """Write a backup of one moment. Raises: Conflict, InvalidInput, PermissionDenied, BackendUnavailable."""
        parts = self._parts
        with self._purging:  # until its moment is written, a purge could not empty the ledger's log
            return backups.back_up(parts.ledger, folder, parts.clock, on_progress, apart_from=parts.home)

    def purge(self) -> None:
        """Finish erasures that are not finished yet. Raises: BackendUnavailable."""
        parts = self._parts
        if not erase.unfinished(parts.ledger):
            return
        with self._purging:
            # Vectors of an embedder that is not open cannot be rewritten; going back to it fills them again.
            self.use_my_vectors()
            purge(parts.ledger, Purgeable(self._projections, parts.files, parts.forget_caches, parts.take_back))

    def purge_if_due(self) -> None:
        """Finish erasures; one that waits for servers alone is tried from time to time, and holds up nothing else.

        Raises: BackendUnavailable.
        """
        if time.monotonic() < self._ask_at and waits_for_servers(self._parts.ledger):
            return
        try:
            self.purge()
        except BackendUnavailable as error:
            if not waits_for_servers(self._parts.ledger):
                raise
            log.warning("%s", error)
            self._ask_at = time.monotonic() + _ASK_AGAIN_S

    def forget_if_due(self) -> None:
        """Remove adapters' files that another process on the same ledger made to be forgotten.

        Raises: BackendUnavailable.
        """
        if self._parts.ledger.is_sqlite or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        self._parts.forget_adapters(())

    def use_my_vectors(self) -> None:
        """Let the vectors of the configured embedder be the only ones."""
        self._parts.generations.use()
        self._parts.generations.remove_others()

    def optimise(self) -> None:
        """Build graphs for fast search when enough was written since."""
        vector = self._parts.building
        if vector is None:
            return
        # By a share of what is there, so that all builds together stay within a few times the last one.
        least = max(self._parts.settings.index.optimise_after, vector.optimised() // _BUILD_SHARE)
        if vector.unoptimised() >= least:
            vector.optimise()

    def _verify(self, run: Run) -> None:
        """Compare ledger and indexes cube by cube. Raises: IntegrityError naming the cubes that differ."""
        cubes = self.cubes()
        wrong = []
        for done, cube in enumerate(cubes):
            run.go_on(done / len(cubes))
            with suppress(NotFound):  # dropped meanwhile
                if not self.verify((cube,), repair=False, strangers=False).clean:
                    wrong.append(cube)
        if wrong:
            raise IntegrityError(f"Cubes {shown(wrong)} and their indexes differ: look with `memos verify`.")

    def _back_up(self, run: Run) -> None:
        """Write a backup into the folder of backups, and remove the oldest beyond those to keep."""
        run.go_on()
        settings = self._parts.settings.upkeep
        if settings.backup_folder is not None:
            attempt = f"{run.task.id}-{run.task.attempts}"  # one that was cut off leaves its folder
            self.backup(settings.backup_folder / backups.periodic_name(self._parts.clock.now(), attempt))
            backups.keep_newest(self._parts.ledger, settings.backup_folder, settings.backups_kept)
