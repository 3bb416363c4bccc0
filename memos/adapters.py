"""`MemOS.adapters`: what is hot and stable in a cube, learned as a LoRA adapter that answers beside what is looked up.

An adapter is derived, as an index is: the ledger says what it saw, and whether that still stands (docs/adr/0019).
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from memos.backends.adapter_trainer import AdapterTrainer
from memos.chatting.prompting import SYSTEM
from memos.errors import BackendUnavailable, Conflict, InvalidInput, NotFound
from memos.handles import Handles
from memos.identities import Right
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import adapter_rows, items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.adapter_rows import AdapterRow, AdapterState, NewAdapter, Outcome, Seen
from memos.memcube.parametric import training
from memos.memcube.parametric.drills import KnownFact
from memos.memcube.parametric.examination import Bounds
from memos.memcube.parametric.selection import Selected, Stable, select
from memos.memcube.parametric.training import Lessons
from memos.model import DEFAULT_CUBE, LOCAL_OWNER, Item, ItemType, Json, Status
from memos.recipes import Recipe
from memos.scheduler.cube_rules import CubeRules
from memos.scheduler.policy import Warmth
from memos.settings import ChatSettings, Settings
from memos.text.checks import check_name
from memos.trainings import Trainings

_KINDS = (ItemType.USER, ItemType.PREFERENCE)
_MOST_LOOKED_AT = 5_000
_LOOK_EVERY = 8  # steps; who erases a memory in the middle of a training ends it by that

_UNWANTED = (
    "What was being learned was changed, removed or taken back: what was made of it is thrown away. Train again for "
    "the rest."
)

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter of a cube; `number` counts them from 1.

    `state` is training, refused, ready, active or retired. One that is `stale` saw a memory that is different now, and
    answers nothing. `reason` says why it was refused, `measures` what its examination found.
    """

    id: str
    cube: str
    number: int
    state: str
    stale: bool
    model: str
    facts: int
    reason: str | None
    measures: Mapping[str, Json] | None
    size_bytes: int | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Learnable:
    """What a cube's next adapter would know; `left_out` are how many memories are not learned for each reason."""

    cube: str
    allowed: bool
    memories: tuple[str, ...]
    left_out: Mapping[str, int]


Found = list[Adapter]  # `list` is a method here


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters of an installation, in `folder`; None where no folder is this process's own.

    `forget` removes the files of what is no more, and what was kept under it in some cubes.
    """

    handles: Handles
    settings: Settings
    folder: Path | None
    forget: Callable[[Collection[str]], object]
    trainings: Trainings
    bounds: Bounds = field(default_factory=Bounds)
    recipe: Recipe = field(default_factory=Recipe)
    _one: threading.Lock = field(default_factory=threading.Lock)

    def allow(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> None:
        """Allow that memories of a cube are learned, which they are not otherwise; its owner does.

        Raises: NotFound, PermissionDenied.
        """
        with self._deciding(cube, actor) as change:
            if not adapter_rows.is_allowed(change.connection, change.cube):
                adapter_rows.allow(change.connection, change.cube, actor, change.now)
                changes.record(change, "allow_learning", {})

    def disallow(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> int:
        """Take that back and remove what was learned; return how many adapters. Raises: NotFound, PermissionDenied."""
        with self._deciding(cube, actor) as change:
            rows = adapter_rows.of(change.connection, change.cube)
            for row in rows:
                adapter_rows.remove(change.connection, row.id)
            if adapter_rows.is_allowed(change.connection, change.cube):
                adapter_rows.disallow(change.connection, change.cube)
                changes.record(change, "disallow_learning", {"adapters": [row.id for row in rows]})
        self.forget([cube])
        return len(rows)

    def list(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Found:
        """Return a cube's adapters, the newest first. Raises: NotFound, PermissionDenied."""
        [cube] = self.handles.scoping([cube], actor, embeds=False).cubes
        with self.handles.ledger.read() as connection:
            stale = {row.id for row in adapter_rows.outdated(connection, [cube])}
            return [_told(connection, row, row.id in stale) for row in adapter_rows.of(connection, cube)]

    def get(self, id_: str, *, actor: str = LOCAL_OWNER) -> Adapter:
        """Return one adapter. Raises: NotFound."""
        row = self._row(id_, actor)
        for each in self.list(row.cube, actor=actor):
            if each.id == id_:
                return each
        raise NotFound("adapter", id_)  # it was removed meanwhile

    def preview(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Learnable:
        """Return what would be learned now, and why other memories would not. Raises: NotFound, PermissionDenied."""
        [cube] = self.handles.scoping([cube], actor, embeds=False).cubes
        with self.handles.ledger.read() as connection:
            chosen = self._selected(connection, cube)
            allowed = adapter_rows.is_allowed(connection, cube)
        left_out = {str(reason): count for reason, count in sorted(chosen.left_out.items())}
        return Learnable(cube, allowed, tuple(fact.memory for fact in chosen.facts), left_out)

    def train(
        self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER, on_progress: Progress | None = None
    ) -> Adapter:
        """Train an adapter on what is hot and stable in a cube, examine it, and let it answer if it passes.

        One that fails is `refused`, says why, and changes nothing that answers. A training that was ended goes on at
        the next call. Raises: NotFound, PermissionDenied, Conflict (not allowed, nothing to learn, one is under way),
        InvalidInput (no model in this process, or it cannot be loaded), BackendUnavailable (no memory, a full disk).
        """
        [cube] = self.handles.scoping([cube], actor, right=Right.OWN).cubes
        model, folder = self._model(), self._folder()
        if not self._one.acquire(blocking=False):
            raise Conflict("Another adapter is being trained here: each takes all processors. Wait for its end.")
        try:
            with self.handles.ledger.read() as connection:
                self._check_allowed(connection, cube)
                chosen = self._selected(connection, cube)
            if not chosen.facts:
                raise Conflict(f"Nothing in cube {cube!r} is ready to be learned. {_in_words(chosen)}")
            with AdapterTrainer() as trainer:
                trainer.open(str(model.local), self.recipe)
                lessons = training.lessons_of(trainer, chosen.facts, SYSTEM, self.recipe.seed)
                row = self._begun(cube, model, trainer.base, lessons, chosen.facts)
                with self.trainings.running(row.id, trainer.kill):
                    try:
                        return self._trained(trainer, lessons, row, folder / row.id, on_progress, actor)
                    except Exception as error:  # raised below, whatever it is; only what it means may change
                        if self._is_unwanted(row):
                            self._thrown_away(row, folder / row.id)
                            raise Conflict(_UNWANTED) from error
                        raise
        finally:
            self._one.release()

    def activate(self, id_: str, *, actor: str = LOCAL_OWNER) -> Adapter:
        """Let an adapter that passed its examination answer, instead of the one that does.

        Raises: NotFound, PermissionDenied, Conflict (it was refused, or saw what is different now).
        """
        row = self._row(id_, actor)
        with self._deciding(row.cube, actor) as change:
            self._check_allowed(change.connection, row.cube)
            return self._activated(change, id_)

    def rollback(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Adapter:
        """Let the adapter answer that did before. Raises: NotFound, PermissionDenied, Conflict (there is none)."""
        [cube] = self.handles.scoping([cube], actor, embeds=False, right=Right.OWN).cubes
        with self._deciding(cube, actor) as change:
            self._check_allowed(change.connection, cube)
            stale = {row.id for row in adapter_rows.stale(change.connection, cube)}
            rows = adapter_rows.of(change.connection, cube)
            active = next((row.number for row in rows if row.state is AdapterState.ACTIVE), None)
            for row in rows:
                before = active is None or row.number < active
                if before and row.state is AdapterState.RETIRED and row.id not in stale:
                    return self._activated(change, row.id)
        raise Conflict(
            f"No earlier adapter of cube {cube!r} may answer: none passed, or they saw what is different now."
        )

    def remove(self, id_: str, *, actor: str = LOCAL_OWNER) -> None:
        """Remove an adapter and its files. Raises: NotFound, PermissionDenied, BackendUnavailable."""
        row = self._row(id_, actor)
        with self._deciding(row.cube, actor) as change:
            adapter_rows.remove(change.connection, id_)
            changes.record(change, "unlearn", {"adapters": [id_]})
        self.forget([row.cube])

    def _begun(
        self, cube: str, model: ChatSettings, base: str, lessons: Lessons, facts: tuple[KnownFact, ...]
    ) -> AdapterRow:
        """Return the row of the training: a new one, or that of one which was ended and learns the very same."""
        new = NewAdapter(cube, str(model.model), base, training.told_recipe(self.recipe), lessons.data_hash)
        seen = [Seen(fact.item, fact.version, hashlib.sha256(fact.memory.encode()).hexdigest()) for fact in facts]
        with self.handles.ledger.write() as connection:
            for row in adapter_rows.of(connection, cube):
                if row.state is AdapterState.TRAINING:
                    if (row.base, row.data_hash, dict(row.recipe)) == (new.base, new.data_hash, dict(new.recipe)):
                        return row
                    adapter_rows.remove(connection, row.id)
            row = adapter_rows.begin(connection, new, seen, self.handles.clock.now())
        self.forget(())  # what those others had written
        return row

    def _trained(
        self, trainer: AdapterTrainer, lessons: Lessons, row: AdapterRow, folder: Path, on_progress: Progress | None,
        actor: str,
    ) -> Adapter:  # fmt: skip
        def tell(step: int, steps: int) -> None:
            if on_progress is not None:
                on_progress(step, steps)
            self.handles.check_open()
            if step % _LOOK_EVERY < 2:
                with self.handles.ledger.read() as connection:
                    self._check_wanted(connection, row)

        with self.handles.ledger.read() as connection:  # who erases from now on finds that it is under way
            self._check_wanted(connection, row)
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            measures = training.train(trainer, lessons, folder, tell)
            failures = measures.failures(self.bounds)
            told = training.told_measures(measures)
            if failures:
                outcome = Outcome(AdapterState.REFUSED, told, reason="; ".join(failures))
                shutil.rmtree(folder)  # it holds what it was taught
            else:
                with self.handles.ledger.read() as connection:
                    manifest = _manifest(connection, row, told)
                digest, size = training.save(trainer, folder, manifest)
                outcome = Outcome(AdapterState.READY, told, digest, size)
        except OSError as error:
            raise BackendUnavailable(
                f"The adapter could not be written ({error.strerror or error}): free some disk and train again; it "
                "goes on from what was kept."
            ) from error
        with self._deciding(row.cube, actor) as change:
            self._check_wanted(change.connection, row)
            done = adapter_rows.finish(change.connection, row.id, outcome, change.now)
            body: dict[str, Json] = {"adapter": row.id, "number": row.number, "passed": not failures}
            changes.record(change, "learn", body)
            (folder / training.KEPT).unlink(missing_ok=True)
            if done.state is AdapterState.READY:
                return self._activated(change, row.id)
            return _told(change.connection, done, stale=False)

    def _is_unwanted(self, row: AdapterRow) -> bool:
        """Say whether what is being learned is no more as it was; False where nobody can say."""
        try:
            self.handles.check_open()
            with self.handles.ledger.read() as connection:
                return _is_outdated(connection, row)
        except BackendUnavailable:
            return False

    def _thrown_away(self, row: AdapterRow, folder: Path) -> None:
        with self.handles.ledger.write() as connection:
            adapter_rows.remove(connection, row.id)
        shutil.rmtree(folder, ignore_errors=True)  # what is left the next erasure, or opening, removes

    def _check_wanted(self, connection: sa.Connection, row: AdapterRow) -> None:
        if _is_outdated(connection, row):
            raise Conflict(_UNWANTED)
        self._check_allowed(connection, row.cube)

    def _activated(self, change: Change, id_: str) -> Adapter:
        row = adapter_rows.activate(change.connection, id_)
        changes.record(change, "activate_adapter", {"adapter": id_, "number": row.number})
        return _told(change.connection, row, stale=False)

    def _check_allowed(self, connection: sa.Connection, cube: str) -> None:
        if not adapter_rows.is_allowed(connection, cube):
            raise Conflict(
                f"The owner of cube {cube!r} has not allowed that its memories are learned: `memos adapters allow`."
            )

    def _row(self, id_: str, actor: str) -> AdapterRow:
        """Return an adapter that an actor decides about. Raises: NotFound (also where it may not), PermissionDenied."""
        self.handles.check_open()
        readable = self.handles.readable(check_name("actor", actor, 128))
        with self.handles.ledger.read() as connection:
            row = adapter_rows.get(connection, check_name("id", id_, 64))
        if row is None or (readable is not None and row.cube not in readable):
            raise NotFound("adapter", id_)
        return row

    @contextmanager
    def _deciding(self, cube: str, actor: str) -> Iterator[Change]:
        scope = self.handles.scoping([cube], actor, embeds=False, right=Right.OWN)
        with self.handles.changing(scope) as change:
            yield change

    def _model(self) -> ChatSettings:
        if (model := self.settings.local_chat) is None:
            raise InvalidInput(
                "model", "is none in this process: set MEMOS_CHAT_MODEL__MODEL to local:PATH (docs/parametric.md)"
            )
        return model

    def _folder(self) -> Path:
        if self.folder is None:
            raise InvalidInput("folder", "is none of this process's own: train where the ledger is in a folder")
        return self.folder

    def _selected(self, connection: sa.Connection, cube: str) -> Selected:
        """Return the hottest facts that are stable, as many as one adapter holds."""
        now, wanted = self.handles.clock.now(), self.settings.parametric
        rules = CubeRules(self.settings.heat).of(connection, cube)
        query = (
            sa.select(
                t.items.c.id, t.items.c.pinned, t.warmth.c.level, t.warmth.c.visits, t.warmth.c.interactions,
                t.warmth.c.last,
            )
            .join(t.versions, t.versions.c.id == t.items.c.version_id)
            .outerjoin(t.warmth, t.warmth.c.item_id == t.items.c.id)
            .where(t.items.c.cube_id == cube, t.versions.c.status == Status.ACTIVE, t.versions.c.type.in_(_KINDS))
            .order_by(t.items.c.pinned.desc(), t.warmth.c.level.desc().nulls_last(), t.items.c.id)
            .limit(_MOST_LOOKED_AT)
        )  # fmt: skip
        heats: dict[str, float | None] = {}
        for row in connection.execute(query):
            warmth = None if row.level is None else Warmth(row.level, row.visits, row.interactions, row.last)
            heats[row.id] = None if row.pinned else 0.0 if warmth is None else rules.policy.heat(warmth, now)
        states = items.with_sources(connection, [cube], list(heats))
        stable = Stable(rules.thresholds.promote_above, timedelta(days=wanted.stable_days))
        memories: list[tuple[Item, float | None]] = [(state, heats[id_]) for id_, state in states.items()]
        chosen = select(memories, stable, now)
        hottest = {id_: place for place, id_ in enumerate(heats)}
        kept = sorted(chosen.facts, key=lambda fact: hottest[fact.item])[: wanted.facts]
        return Selected(tuple(sorted(kept, key=lambda fact: fact.item)), chosen.left_out)


def _is_outdated(connection: sa.Connection, row: AdapterRow) -> bool:
    there = adapter_rows.get(connection, row.id)
    return there is None or any(each.id == row.id for each in adapter_rows.outdated(connection, [row.cube]))


def _told(connection: sa.Connection, row: AdapterRow, stale: bool) -> Adapter:
    return Adapter(
        row.id, row.cube, row.number, str(row.state), stale, row.model, len(adapter_rows.seen(connection, row.id)),
        row.reason, row.measures, row.size_bytes, row.created_at, row.finished_at,
    )  # fmt: skip


def _manifest(connection: sa.Connection, row: AdapterRow, measures: dict[str, Json]) -> dict[str, Json]:
    learned: list[Json] = [
        {"item": each.item, "version": each.version, "sha256": each.digest}
        for each in adapter_rows.seen(connection, row.id)
    ]
    return {
        "adapter": row.id, "cube": row.cube, "number": row.number, "model": row.model, "base_sha256": row.base,
        "recipe": dict(row.recipe), "data_sha256": row.data_hash, "parent": row.parent, "measures": measures,
        "memories": learned, "created_at": row.created_at.isoformat(),
    }  # fmt: skip


def _in_words(chosen: Selected) -> str:
    if not chosen.left_out:
        return "It has no facts about people yet."
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(chosen.left_out.items()))
    return f"Left out are: {told}."
