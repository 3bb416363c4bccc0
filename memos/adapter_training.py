"""Trains the adapters of an installation: chooses what is stable, teaches it, examines it, and says what may answer.

What is begun is in the ledger before anything of it is a file; what was ended goes on from there.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from memos.backends.adapter_trainer import AdapterTrainer
from memos.chatting.prompting import SYSTEM
from memos.errors import BackendUnavailable, Conflict, InvalidInput
from memos.handles import Handles
from memos.identities import Right
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import adapter_rows, items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.adapter_rows import AdapterRow, AdapterState, NewAdapter, Outcome, Seen
from memos.memcube.parametric import training
from memos.memcube.parametric.drills import KnownFact
from memos.memcube.parametric.examination import Bounds, Measures
from memos.memcube.parametric.selection import Selected, Stable, select
from memos.memcube.parametric.training import Lessons
from memos.model import Item, ItemType, Json, Status
from memos.recipes import Recipe
from memos.scheduler.cube_rules import CubeRules
from memos.scheduler.policy import Warmth
from memos.settings import ChatSettings, Settings
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
class AdapterTraining:
    """What trains adapters, one at a time, in `folder`; None where no folder is this process's own.

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

    def train(self, cube: str, actor: str, on_progress: Progress | None = None) -> AdapterRow:
        """Return the adapter that was trained and examined; active if it passed. Raises: as `Adapters.train`."""
        [cube] = self.handles.scoping([cube], actor, right=Right.OWN).cubes
        model, folder = self._model(), self._folder()
        with self.alone():
            with self.handles.ledger.read() as connection:
                check_allowed(connection, cube)
                chosen = self.selected(connection, cube)
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
                            self.throw_away(row, folder / row.id)
                            raise Conflict(_UNWANTED) from error
                        raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Train or examine while nobody else does. Raises: Conflict."""
        if not self._one.acquire(blocking=False):
            raise Conflict("Another adapter is being trained here: each takes all processors. Wait for its end.")
        try:
            yield
        finally:
            self._one.release()

    def selected(self, connection: sa.Connection, cube: str) -> Selected:
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
    ) -> AdapterRow:  # fmt: skip
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
            outcome = self.outcome(trainer, training.train(trainer, lessons, folder, tell), row, folder)
        except OSError as error:
            raise BackendUnavailable(
                f"The adapter could not be written ({error.strerror or error}): free some disk and train again; it "
                "goes on from what was kept."
            ) from error
        with self._deciding(row.cube, actor) as change:
            self._check_wanted(change.connection, row)
            done = adapter_rows.finish(change.connection, row.id, outcome, change.now)
            passed = done.state is AdapterState.READY
            body: dict[str, Json] = {"adapter": row.id, "number": row.number, "passed": passed}
            changes.record(change, "learn", body)
            (folder / training.KEPT).unlink(missing_ok=True)
            return activated(change, row.id) if passed else done

    def outcome(self, trainer: AdapterTrainer, measures: Measures, row: AdapterRow, folder: Path) -> Outcome:
        """Return what comes of an examination: files of one that passed are written, those of another removed.

        Raises: OSError.
        """
        told = training.told_measures(measures)
        if failures := measures.failures(self.bounds):
            shutil.rmtree(folder)  # it holds what it was taught
            return Outcome(AdapterState.REFUSED, told, reason="; ".join(failures))
        with self.handles.ledger.read() as connection:
            manifest = _manifest(connection, row, told)
        digest, size = training.save(trainer, folder, manifest)
        return Outcome(AdapterState.READY, told, digest, size)

    def _is_unwanted(self, row: AdapterRow) -> bool:
        """Say whether what is being learned is no more as it was; False where nobody can say."""
        try:
            self.handles.check_open()
            with self.handles.ledger.read() as connection:
                return is_outdated(connection, row)
        except BackendUnavailable:
            return False

    def throw_away(self, row: AdapterRow, folder: Path) -> None:
        """Remove an adapter that came to nothing, with what there is of its files."""
        with self.handles.ledger.write() as connection:
            adapter_rows.remove(connection, row.id)
        shutil.rmtree(folder, ignore_errors=True)  # what is left the next erasure, or opening, removes

    def _check_wanted(self, connection: sa.Connection, row: AdapterRow) -> None:
        if is_outdated(connection, row):
            raise Conflict(_UNWANTED)
        check_allowed(connection, row.cube)

    @contextmanager
    def _deciding(self, cube: str, actor: str) -> Iterator[Change]:
        scope = self.handles.scoping([cube], actor, embeds=False, right=Right.OWN)
        with self.handles.changing(scope) as change:
            yield change

    def _model(self) -> ChatSettings:
        if (model := self.settings.learning_model) is None:
            raise InvalidInput(
                "model",
                "is none in this process: set MEMOS_CHAT_MODEL__MODEL to local:PATH, or MEMOS_PARAMETRIC__BASE "
                "(docs/parametric.md)",
            )
        return model

    def _folder(self) -> Path:
        if self.folder is None:
            raise InvalidInput("folder", "is none of this process's own: train where the ledger is in a folder")
        return self.folder


def activated(change: Change, id_: str) -> AdapterRow:
    """Let an adapter answer, and tell it. Raises: Conflict (refused, or it saw what is different now)."""
    row = adapter_rows.activate(change.connection, id_)
    changes.record(change, "activate_adapter", {"adapter": id_, "number": row.number})
    return row


def check_allowed(connection: sa.Connection, cube: str) -> None:
    """Raise Conflict unless the cube's owner has allowed that its memories are learned."""
    if not adapter_rows.is_allowed(connection, cube):
        raise Conflict(
            f"The owner of cube {cube!r} has not allowed that its memories are learned: `memos adapters allow`."
        )


def is_outdated(connection: sa.Connection, row: AdapterRow) -> bool:
    """Say whether an adapter is no more, or saw what is different now."""
    there = adapter_rows.get(connection, row.id)
    return there is None or any(each.id == row.id for each in adapter_rows.outdated(connection, [row.cube]))


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
