"""`MemOS.maintenance`: verification, backups, rebuilt indexes and finished erasures of a whole installation."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.telemetry import SlowCalls
from memos.core.text.caches import forget_texts
from memos.core.types import LOCAL_OWNER, WHOLE, Difference, EraseReceipt, VerifyReport
from memos.errors import BackendUnavailable, Conflict
from memos.kernel.adapters.serving import AdapterRemoval
from memos.kernel.context import Context
from memos.kernel.opening import OpenedInstallation
from memos.memcube import erasure, receipts, verify
from memos.memcube.backup import backups
from memos.memcube.backup.archive import Manifest
from memos.memcube.backup.backups import BackupPlan, KnownBackup
from memos.memcube.backup.places import inside
from memos.memcube.erasure import Purgeable, purge
from memos.memcube.ledger import audit_chain, tasks
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger import segments as segment_rows
from memos.memcube.ledger.tasks import NewTask
from memos.memcube.parametric import forgetting
from memos.memcube.signing import known_keys, note_public
from memos.scheduler.index_worker import Repair
from memos.scheduler.scheduler import BACKUP_EVERY
from memos.scheduler.task import Job, TaskRun

_BUILD_SHARE = 3
OPTIMISE_AFTER = 5_000  # points written before graphs for fast search are built in the background
_LOOK_S = 10.0

Progress = Callable[[int, int], None]


class Maintenance:
    """Maintenance of an open installation: indexes, erasures, backups."""

    def __init__(
        self,
        context: Context,
        installation: OpenedInstallation,
        removal: AdapterRemoval,
        start_background: Callable[[], None],
        slow: SlowCalls,
    ) -> None:
        self._context = context
        self._slow = slow
        self._installation = installation
        self._removal = removal
        self._start_background = start_background
        projections = {projection.target: projection for projection in context.indexes.projections}
        self._repair = Repair(context.ledger, installation.scanned, projections)
        self._purging = threading.Lock()
        self._look_at = 0.0

    def verify(
        self, *, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER, repair: bool = False
    ) -> VerifyReport:
        """Compare the ledger with itself and with the indexes.

        Args:
            cubes: Cubes to compare; None compares the whole installation, with KV blocks and adapters, for admins.
            actor: Who asks.
            repair: Bring the indexes back to what the ledger says, and remove damaged KV blocks; for editors.

        Raises:
            NotFound: A cube does not exist, or the actor may not see it.
            PermissionDenied: The actor is not an admin and names no cubes.
        """
        check = partial(self._context.scopes.check, right=Right.WRITE if repair else Right.READ)
        if cubes is not None:
            return self._verify(check(cubes, actor).cubes, repair=repair, strangers=False)
        if not (every := self._every_cube(actor)):
            return VerifyReport(0, {}, (), 0)
        return self._verify(check(every, actor).cubes, repair=repair, strangers=True)

    def reindex(
        self, *, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER, on_progress: Progress | None = None
    ) -> int:
        """Rebuild both indexes of these cubes from the ledger; return how many items. Raises: BackendUnavailable."""
        scopes = self._context.scopes
        scope = scopes.check(self._every_cube(actor) if cubes is None else cubes, actor, right=Right.OWN)
        self._context.lifecycle.check_space()
        return self._repair.reindex(scope.cubes, on_progress)

    def reembed(self, *, actor: str = LOCAL_OWNER, on_progress: Progress | None = None) -> int:
        """Give every cube vectors of the configured embedder and return the number of items. For admins.

        The old vectors stay until the new ones are complete; an interrupted run continues at the next open. Raises:
        BackendUnavailable (an index is out of reach, or the disk is full).
        """
        context = self._context
        context.scopes.check_admin(actor)
        context.scopes.forget()
        context.lifecycle.check_space()
        context.ledger.renew_hold()
        every = self._cube_ids()
        with context.ledger.write() as connection:
            for cube in every:
                cube_rows.set_fingerprint(connection, cube, context.scopes.fingerprint)
            for cube, segments in segment_rows.forget_vectors(connection).items():
                segment_rows.remake(connection, cube, segments, context.clock.now())
        count = self._repair.reindex(every, on_progress)
        self.use_current_embedder()
        context.scopes.forget()
        self._start_background()
        return count

    def check_ready(self) -> None:
        """Raise BackendUnavailable unless the installation is open and the ledger answers."""
        self._context.lifecycle.check_open()
        with self._context.ledger.read() as connection:
            connection.scalar(sa.select(1))

    def catch_up(self, *, on_progress: Progress | None = None) -> bool:
        """Wait until the indexes have every change; return False if one refused some (`verify` says which).

        Raises: BackendUnavailable (an index is out of reach).
        """
        self._context.lifecycle.check_open()

        def waiting() -> int:
            return sum(projection.left() for projection in self._context.indexes.projections)

        total = waiting()
        return self._repair.catch_up(
            None if on_progress is None else lambda _: on_progress(max(0, total - waiting()), total)
        )

    def finish_erasures(self) -> None:
        """Finish erasures now instead of in the background. Raises: BackendUnavailable (A store is out of reach)."""
        self._context.lifecycle.check_open()
        self.purge()

    def backup(self, folder: str | Path, *, on_progress: Progress | None = None) -> Manifest:
        """Write a backup of one moment into a new folder while work goes on. Its files hold memory text.

        Raises: Conflict (the folder holds something), InvalidInput, PermissionDenied, BackendUnavailable.
        """
        self._context.lifecycle.check_open()
        installation = self._installation
        with self._purging:  # until its moment is written, a purge could not empty the ledger's log
            return backups.back_up(
                installation.ledger,
                folder,
                installation.clock,
                on_progress,
                apart_from=installation.home,
                keys=None if installation.vault is None else installation.vault.keys,
            )

    def backups(self) -> tuple[KnownBackup, ...]:
        """Return the known backups, oldest first."""
        self._context.lifecycle.check_open()
        return tuple(backups.known(self._context.ledger))

    def backup_plan(self, *, actor: str = LOCAL_OWNER) -> BackupPlan:
        """Return where backups are written, how often, and the known ones. For admins. Raises: PermissionDenied."""
        self._context.scopes.check_admin(actor)
        upkeep = self._context.settings.upkeep
        folder = upkeep.backup_folder
        every_h = None if folder is None else BACKUP_EVERY / timedelta(hours=1)
        known = tuple(backups.known(self._context.ledger))
        return BackupPlan(None if folder is None else str(folder), every_h, upkeep.backups_kept, known)

    def start_backup(self, *, actor: str = LOCAL_OWNER) -> str:
        """Queue a backup into the configured folder and return its task. For admins.

        Raises: PermissionDenied, Conflict (no folder is configured).
        """
        self._context.scopes.check_admin(actor)
        if self._context.settings.upkeep.backup_folder is None:
            raise Conflict(
                "No folder for backups is configured; set MEMOS_UPKEEP__BACKUP_FOLDER to one outside the data folder, "
                "or run `memos data backup FOLDER` on the server."
            )
        with self._context.write() as connection:
            [task] = tasks.enqueue(
                connection, WHOLE, [NewTask("backup", {"manual": True}, key="manual")], self._context.clock.now()
            )
        return task

    def forget_backup(self, folder: str | Path) -> None:
        """Remove a deleted backup from the register. Raises: NotFound, Conflict (the backup is still there)."""
        self._context.lifecycle.check_open()
        backups.forget(self._context.ledger, folder)

    # What the background does

    def jobs(self) -> list[Job]:
        """Return the jobs about the whole installation."""
        return [Job("backup", self._run_backup, budgeted=False)]

    def start(self) -> None:
        """Repair indexes after a crash or a change of the embedder."""
        self.use_current_embedder()
        self._repair.lost_writes()

    def purge(self) -> None:
        """Finish pending erasures. Raises: BackendUnavailable."""
        ledger, indexes = self._context.ledger, self._context.indexes
        if not erasure.unfinished(ledger):
            return
        with self._purging:
            # Vectors of an embedder that is not open cannot be rewritten; going back to it fills them again.
            self.use_current_embedder()
            places = Purgeable(indexes.projections, self._installation.files, self._forget_caches, self._left)
            purge(ledger, places)

    def finish_erasure(self, receipt: EraseReceipt, *, wait: bool = True) -> EraseReceipt:
        """Purge files and logs after an erasure if `wait`, and return its current receipt, signed.

        Raises: BackendUnavailable (the rows are gone; the background goes on with the rest).
        """
        if wait:
            self._purge_for(receipt)
        now = erasure.find(self._context.ledger, receipt.id) or receipt
        return self.signed(replace(now, fingerprints=receipt.fingerprints))

    def _purge_for(self, receipt: EraseReceipt) -> None:
        try:
            self.purge()
        except BackendUnavailable as error:
            # What failed may say that it wrote nothing, which holds for a part of the purge alone.
            why = str(error).replace("; nothing was written", "")
            raise BackendUnavailable(
                f"The memories are erased. What files and logs still hold of them could not be purged yet: {why} "
                f"The background tries again, and receipt {receipt.id} says when it is done."
            ) from error

    def forget_calls(self, cubes: Sequence[str]) -> None:
        """Forget what was asked about cubes whose names are about to be forgotten, too."""
        self._slow.forget(cubes)

    def signed(self, receipt: EraseReceipt) -> EraseReceipt:
        """Return a receipt with the installation's signature."""
        context = self._context
        with context.ledger.read() as connection:
            is_known = context.key.id in known_keys(connection)
        if not is_known:
            with context.ledger.write() as connection:
                note_public(connection, context.key)
        return receipts.sign(receipt, context.key)

    def _left(self, receipt: EraseReceipt) -> dict[str, int]:
        """Count what the vector index and the KV store still have of what a receipt erased."""
        installation = self._installation
        gone = set(receipt.item_ids)
        blocks = [
            block for block, *_ in installation.activations.blocks(receipt.cube) if gone.intersection(block.items)
        ]
        return {"vectors": installation.vector.count(receipt.item_ids), "kv_blocks": len(blocks)}

    def forget_if_due(self) -> None:
        """Remove adapter files that another process on the same ledger erased. Raises: BackendUnavailable."""
        if self._context.ledger.is_sqlite or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        self._removal.forget(())

    def use_current_embedder(self) -> None:
        """Drop every vector but those of the configured embedder."""
        self._installation.generations.use()
        self._installation.generations.remove_others()

    def optimise(self) -> None:
        """Build the vector index's search graphs if enough was written."""
        vector = self._installation.building
        if vector is None:
            return
        # By a share of what is there, so that all builds together stay within a few times the last one.
        least = max(OPTIMISE_AFTER, vector.optimised() // _BUILD_SHARE)
        if vector.unoptimised() >= least:
            vector.optimise()

    def _every_cube(self, actor: str) -> tuple[str, ...]:
        self._context.scopes.check_admin(actor)
        return self._cube_ids()

    def _cube_ids(self) -> tuple[str, ...]:
        with self._context.ledger.read() as connection:
            return tuple(verify.cube_ids(connection))

    def _verify(self, cubes: tuple[str, ...], *, repair: bool, strangers: bool) -> VerifyReport:
        report = self._repair.verify(cubes, repair=repair, strangers=strangers)
        installation = self._installation
        damaged = installation.activations.verify() if strangers else []
        harmed = forgetting.differences(installation.ledger, installation.adapters) if strangers else []
        told = [
            Difference("parametric", "damaged", id_, f"{what}; the adapter is not used, train again")
            for id_, what in harmed
        ]
        if strangers:
            with self._context.ledger.read() as connection:
                problem = audit_chain.broken(connection)
            told += [] if problem is None else [Difference("audit", "broken", "access_log", problem)]
        if repair:  # blocks are removed, which is all there is to repair
            report = replace(report, repaired=report.repaired + len(damaged))
        else:
            told += [
                Difference("activation", "damaged", key, "was removed and will be computed again") for key in damaged
            ]
        return replace(report, differences=(*report.differences, *told))

    def _forget_caches(self, erased_in: Collection[str]) -> dict[str, Counter[str]]:
        """Drop what is cached after an erasure in these cubes; count adapter files, bytes and KV blocks by cube."""
        installation = self._installation
        installation.embedder.forget()
        installation.askers.forget()
        forget_texts()
        self._slow.forget(erased_in)
        removed: dict[str, Counter[str]] = {cube: Counter() for cube in erased_in}
        for gone in self._removal.forget(erased_in):  # before models are asked which they still may have
            if gone.cube in removed:
                removed[gone.cube] += Counter(adapter_files=gone.files, adapter_bytes=gone.size_bytes)
        for cube, counts in removed.items():
            counts["kv_blocks"] = installation.activations.forget([cube])
        if (vault := installation.vault) is not None:  # last: until here the files of a cube may be read
            for cube, count in vault.destroy_keys(installation.ledger, erased_in).items():
                removed[cube]["data_keys"] = count
        return removed

    def _run_backup(self, run: TaskRun) -> None:
        run.check_cancelled()
        settings = self._context.settings.upkeep
        if settings.backup_folder is not None:
            attempt = f"{run.task.id}-{run.task.attempts}"  # one that was cut off leaves its folder
            named = backups.manual_name if run.task.payload.get("manual") else backups.periodic_name

            def progressed(done: int, total: int) -> None:
                run.check_cancelled(done / max(total, 1))

            folder = inside(settings.backup_folder, named(self._context.clock.now(), attempt))
            self.backup(folder, on_progress=progressed)
            backups.keep_newest(self._context.ledger, settings.backup_folder, settings.backups_kept)
