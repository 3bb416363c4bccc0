"""Trains the adapters of an installation: chooses what is stable, teaches it, examines it, and says what may answer.

What is begun is in the ledger before anything of it is a file; what was ended goes on from there.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.lora import Estimate, LoraRecipe, next_seed, unwritten, wrong_with
from memos.core.settings import ChatSettings, Settings
from memos.core.types import Json, Scope
from memos.errors import BackendUnavailable, Conflict, InvalidInput
from memos.kernel.adapters import choosing as adapter_earlier
from memos.kernel.adapters.choosing import Choosing
from memos.kernel.adapters.rephrasing import PHRASINGS
from memos.kernel.adapters.serving import RunningTrainings
from memos.kernel.chat.prompts import SYSTEM
from memos.kernel.context import Context
from memos.llm.usage import UsageMeter
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import cubes
from memos.memcube.ledger.adapters import AdapterRow, AdapterState, NewAdapter, Outcome, Seen
from memos.memcube.parametric import training
from memos.memcube.parametric.examination import Bounds, EvaluationResult
from memos.memcube.parametric.quiz import KnownFact
from memos.memcube.parametric.selection import Selected, Vectors, superfluous
from memos.memcube.parametric.training import TrainerProcess, TrainingPlan
from memos.scheduler.jobs.segments import ACTOR

ATTEMPTS = 2
"""Trainings at one go, each with another seed: what fails by little passes with another as likely as not."""

_LOOK_EVERY = 8  # steps; who erases a memory in the middle of a training ends it by that

_UNWANTED = (
    "What was being learned was changed, removed or taken back: what was made of it is thrown away. Train again for "
    "the rest."
)

Progress = Callable[[int, int], None]
Rephrase = Callable[[Sequence[KnownFact], UsageMeter, Callable[[], None]], Mapping[str, Sequence[str]]]


class NoEligibleFacts(Conflict):
    """No memory of the cube is ready to be learned."""


class TrainingInProgress(Conflict):
    """Another adapter is being trained in this process."""


@dataclass(frozen=True, slots=True)
class TrainingCallbacks:
    """Callbacks of one training: `progress` hears of its steps, and may raise to end it.

    While it goes on, `ending` has what ends it at once, from any thread. `check` is called in the transaction that
    keeps what came of it, and raises when that is wanted no more. `meter` counts for a cube what models are asked.
    """

    progress: Progress = lambda *_: None
    ending: Callable[[Callable[[], None]], AbstractContextManager[object]] = lambda _: nullcontext()
    check: Callable[[sa.Connection], object] = lambda _: None
    meter: Callable[[str], UsageMeter] = lambda cube: UsageMeter(PHRASINGS, cube=cube)


@dataclass(frozen=True, slots=True)
class _Ready:
    cube: str
    shard: str
    facts: tuple[KnownFact, ...]
    trainer: TrainerProcess
    recipe: LoraRecipe


@dataclass(frozen=True, slots=True)
class AdapterTraining:
    """What trains adapters, one at a time, in `folder`; None where no folder is this process's own.

    `forget` removes the files of what is no more, and what was kept under it in some cubes; `embed` returns vectors of
    texts, the file `remembered` has digests of models' weights, and `rephrase` asks for facts in other words.
    """

    context: Context
    settings: Settings
    folder: Path | None
    forget: Callable[[Collection[str]], object]
    trainings: RunningTrainings
    embed: Callable[[Sequence[str]], Vectors]
    new_trainer: Callable[[], TrainerProcess]
    remembered: Path | None = None
    rephrase: Rephrase = lambda *_: {}
    bounds: Bounds = field(default_factory=Bounds)
    recipe: LoraRecipe = field(default_factory=LoraRecipe)
    _one: threading.Lock = field(default_factory=threading.Lock)

    def train(self, cube: str, actor: str, on_progress: Progress | None = None) -> AdapterRow:
        """Return the adapter that was trained and examined; active if it passed. Raises: as `AdapterService.train`."""
        callbacks = TrainingCallbacks() if on_progress is None else TrainingCallbacks(on_progress)
        return self._learned(lambda: self._owned(cube, actor), callbacks, anew=True)

    def train_by_consent(self, cube: str, callbacks: TrainingCallbacks) -> AdapterRow:
        """Train without a request, as the cube's owner allowed it; what answers already and learned the same is enough.

        Raises: as `AdapterService.train`; NoEligibleFacts, TrainingInProgress.
        """
        return self._learned(lambda: Scope(ACTOR, (cube,), right=Right.OWN), callbacks, anew=False)

    def check_ready(self, cube: str, actor: str) -> None:
        """See that an adapter could be trained now. Raises: as `AdapterService.train`."""
        [cube] = self._owned(cube, actor).cubes
        self.check_able()
        self._facts(cube)

    def check_able(self) -> None:
        """See that this process has a model and a folder for adapters. Raises: BackendUnavailable, InvalidInput."""
        self._model()
        self._folder()

    def _owned(self, cube: str, actor: str) -> Scope:
        return self.context.scopes.check([cube], actor, embeds=False, right=Right.OWN)

    def estimate(self, cube: str, actor: str) -> Estimate:
        """Return what the next training of a cube would take. Raises: as `AdapterService.train`."""
        [cube] = self._owned(cube, actor).cubes
        with self._ready(cube, TrainingCallbacks()) as ready:
            lessons = training.lessons_of(ready.trainer, ready.facts, SYSTEM, ready.recipe.seed)
            ready.trainer.prepare(lessons.exercises)
            return ready.trainer.estimate()

    def _facts(self, cube: str) -> tuple[KnownFact, ...]:
        with self.context.ledger.read() as connection:
            check_allowed(connection, cube)
            chosen = self.selected(connection, cube)
        if not chosen.facts:
            raise NoEligibleFacts(f"Nothing in cube {cube!r} is ready to be learned. {_in_words(chosen)}")
        return chosen.facts

    def _learned(self, scope: Callable[[], Scope], callbacks: TrainingCallbacks, *, anew: bool) -> AdapterRow:
        """Train, and again with the next seed where that may well pass; each attempt is in the registry."""
        for attempt in range(1, ATTEMPTS + 1):
            row, may_pass = self._attempt(scope, callbacks, anew=anew)
            if not may_pass or attempt == ATTEMPTS:
                break
        return row

    def _attempt(
        self, scope: Callable[[], Scope], callbacks: TrainingCallbacks, *, anew: bool
    ) -> tuple[AdapterRow, bool]:
        """Return what came of one training, and whether it failed by so little that another seed may pass."""
        [cube] = scope().cubes
        folder = self._folder()
        with self._ready(cube, callbacks) as ready:
            if not anew and (same := self._known(ready, folder)) is not None:
                with self.context.change(scope()) as change:
                    removed = pruned(change)  # whatever can be learned is: what is stale is of nothing that stays
                self._forget_removed(cube, removed)
                return same, False
            lessons = self._lessons(ready, callbacks)
            new = NewAdapter(
                cube,
                str(self._model().model),
                ready.trainer.base,
                training.told_recipe(ready.recipe),
                lessons.data_hash,
                ready.shard,
            )
            row = self._begun(new, ready.facts)
            with self.trainings.running(row.id, ready.trainer.kill):
                try:
                    return self._trained(ready.trainer, lessons, row, folder / row.id, callbacks, scope)
                except Exception as error:  # raised below, whatever it is; only what it means may change
                    if self._is_unwanted(row):
                        self.throw_away(row, folder / row.id)
                        raise Conflict(_UNWANTED) from error
                    raise

    @contextmanager
    def _ready(self, cube: str, callbacks: TrainingCallbacks) -> Iterator[_Ready]:
        """Yield a model that is loaded, and the facts it is to be taught. Raises: as `AdapterService.train`."""
        model = self._model()
        with self.alone():
            usual = training.told_recipe(self.recipe)
            shard, facts = self.choosing.next_shard(cube, self._facts(cube), usual)
            with self.context.ledger.read() as connection:
                failed = adapter_earlier.refused(connection, cube, shard, facts, usual)
            recipe = self.recipe if failed is None else replace(self.recipe, seed=next_seed(self.recipe, failed.recipe))
            with self.new_trainer() as trainer, callbacks.ending(trainer.kill):
                trainer.open(str(model.local), recipe, remembered=self.remembered)
                yield _Ready(cube, shard, facts, trainer, recipe)

    def _lessons(self, ready: _Ready, callbacks: TrainingCallbacks) -> TrainingPlan:
        """Return what is taught: what a training had that was ended, since a model would not say the same twice."""
        if (kept := self._kept(ready)) is not None:
            return kept
        seen = seen_of(ready.facts)

        def check() -> None:
            self.context.lifecycle.check_open()
            callbacks.progress(0, 1)
            with self.context.ledger.read() as connection:
                check_allowed(connection, ready.cube)
                adapter_rows.check_current(connection, ready.cube, seen)

        more = self.rephrase(ready.facts, callbacks.meter(ready.cube), check)
        return training.lessons_of(ready.trainer, ready.facts, SYSTEM, ready.recipe.seed, more)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Train or examine while nobody else does. Raises: TrainingInProgress."""
        if not self._one.acquire(blocking=False):
            raise TrainingInProgress(
                "Another adapter is being trained here: each takes all processors. Wait for its end."
            )
        try:
            yield
        finally:
            self._one.release()

    @property
    def choosing(self) -> Choosing:
        """What chooses the facts."""
        return Choosing(self.context, self.settings, self.embed)

    def selected(self, connection: sa.Connection, cube: str) -> Selected:
        """Return what is stable among a cube's hottest facts, in order of id."""
        return self.choosing.selected(connection, cube)

    def _kept(self, ready: _Ready) -> TrainingPlan | None:
        told = training.told_recipe(ready.recipe)
        with self.context.ledger.read() as connection:
            row = adapter_earlier.ended(connection, ready.cube, ready.shard, ready.facts, ready.trainer.base, told)
        if row is None:
            return None
        return training.kept_lessons(self._folder() / row.id, row.data_hash, ready.facts, SYSTEM, ready.recipe.seed)

    def _known(self, ready: _Ready, folder: Path) -> AdapterRow | None:
        """Return the adapter that answers and learned the very same in the same way, if its files are whole."""
        told = training.told_recipe(ready.recipe)
        with self.context.ledger.read() as connection:
            row = adapter_earlier.serving(connection, ready.cube, ready.shard, ready.facts, ready.trainer.base, told)
        return None if row is None or wrong_with(folder / row.id, row.digest) else row

    def _begun(self, new: NewAdapter, facts: Sequence[KnownFact]) -> AdapterRow:
        """Return the row of the training: a new one, or that of one which was ended and learns the very same."""
        with self.context.ledger.write() as connection:
            cubes.lock(connection, new.cube)  # before any row, as whoever changes a cube's adapters does
            for row in adapter_rows.of(connection, new.cube):
                if row.state is AdapterState.TRAINING and row.shard == new.shard:
                    if (row.base, row.data_hash, dict(row.recipe)) == (new.base, new.data_hash, dict(new.recipe)):
                        return row
                    adapter_rows.remove(connection, row.id)
            new = replace(new, parent=adapter_earlier.answering(connection, new.cube, new.shard))
            row = adapter_rows.begin(connection, new, seen_of(facts), self.context.clock.now())
        self.forget(())  # what those others had written
        return row

    def _trained(
        self,
        trainer: TrainerProcess,
        lessons: TrainingPlan,
        row: AdapterRow,
        folder: Path,
        callbacks: TrainingCallbacks,
        scope: Callable[[], Scope],
    ) -> tuple[AdapterRow, bool]:
        def tell(step: int, steps: int) -> None:
            callbacks.progress(step, steps)
            self.context.lifecycle.check_open()
            if step % _LOOK_EVERY < 2:
                with self.context.ledger.read() as connection:
                    self._check_wanted(connection, row)

        with self.context.ledger.read() as connection:  # who erases from now on finds that it is under way
            self._check_wanted(connection, row)
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            found = training.train(trainer, lessons, folder, self.bounds, tell)
            outcome = self.outcome(trainer, found[-1], row, folder)
        except OSError as error:
            raise unwritten(error.strerror or error) from error
        with self.context.change(scope()) as change:
            callbacks.check(change.connection)
            self._check_wanted(change.connection, row)
            done = adapter_rows.finish(change.connection, row.id, outcome, change.now)
            passed = done.state is AdapterState.READY
            body: dict[str, Json] = {"adapter": row.id, "number": row.number, "passed": passed}
            changes.record(change, "learn", body if passed else {**body, "why": done.reason})
            answered = adapter_earlier.answering(change.connection, row.cube, row.shard)
            if passed:
                done = activated(change, row.id)
            removed = pruned(change, answered, shard=row.shard)
        tidy(folder, done)
        self._forget_removed(row.cube, removed)
        return done, not passed and any(measures.nearly_pass(self.bounds) for measures in found)

    def _forget_removed(self, cube: str, removed: Sequence[str]) -> None:
        if removed:
            with suppress(BackendUnavailable):  # their files are nobody's: the next erasure, or opening, removes them
                self.forget([cube])

    def outcome(self, trainer: TrainerProcess, measures: EvaluationResult, row: AdapterRow, folder: Path) -> Outcome:
        """Return what comes of an examination; the files of one that passed are written. Raises: OSError."""
        told = training.told_measures(measures)
        if failures := measures.failures(self.bounds):
            return Outcome(AdapterState.REFUSED, told, reason="; ".join(failures))
        with self.context.ledger.read() as connection:
            manifest = _manifest(connection, row, told)
        digest, size = training.save(trainer, folder, manifest)
        return Outcome(AdapterState.READY, told, digest, size)

    def _is_unwanted(self, row: AdapterRow) -> bool:
        """Say whether what is being learned is no more as it was; False where nobody can say."""
        try:
            self.context.lifecycle.check_open()
            with self.context.ledger.read() as connection:
                return is_outdated(connection, row)
        except BackendUnavailable:
            return False

    def throw_away(self, row: AdapterRow, folder: Path) -> None:
        """Remove an adapter that came to nothing, with what there is of its files."""
        with self.context.ledger.write() as connection:
            adapter_rows.remove(connection, row.id)
        shutil.rmtree(folder, ignore_errors=True)  # what is left the next erasure, or opening, removes

    def _check_wanted(self, connection: sa.Connection, row: AdapterRow) -> None:
        if is_outdated(connection, row):
            raise Conflict(_UNWANTED)
        check_allowed(connection, row.cube)

    def _model(self) -> ChatSettings:
        if (model := self.settings.learning_model) is None:
            raise BackendUnavailable(
                "There is no model that could learn. Where this installation is opened, by a server if one runs, set "
                "MEMOS_CHAT_MODEL__MODEL to local:PATH, or MEMOS_PARAMETRIC__BASE (docs/parametric.md).",
                permanent=True,
            )
        return model

    def _folder(self) -> Path:
        if self.folder is None:
            raise InvalidInput("folder", "is none of this process's own: train where the ledger is in a folder")
        return self.folder


def tidy(folder: Path, row: AdapterRow) -> None:
    """Remove, once its row says what came of it, how far a training was; of a refused one all that it was taught, too.

    What cannot be removed now the next opening removes.
    """
    if row.state is AdapterState.REFUSED:
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        (folder / training.KEPT).unlink(missing_ok=True)


def seen_of(facts: Sequence[KnownFact]) -> list[Seen]:
    """Return facts as the registry notes them."""
    return [Seen(fact.item, fact.version, hashlib.sha256(fact.memory.encode()).hexdigest()) for fact in facts]


def activated(change: Change, id_: str) -> AdapterRow:
    """Let an adapter answer, and tell it. Raises: Conflict (refused, or it saw what is different now)."""
    row = adapter_rows.activate(change.connection, id_)
    changes.record(change, "activate_adapter", {"adapter": id_, "number": row.number})
    return row


def pruned(change: Change, answered: str | None = None, *, shard: str | None = None) -> list[str]:
    """Remove the adapters of a cube that are of no use any more; return which. Their files are the caller's to remove.

    `answered` is the one that did until now: it stays, if it can, for who wants to go back. When one `shard` was
    trained, the stale ones that answered for others stay until theirs is: by them the nights see that it has to be.
    A training that was ended, of what is different now, is never taken up again.
    """
    rows = adapter_rows.of(change.connection, change.cube)
    answers = {row.id for row in rows if row.state is AdapterState.ACTIVE and shard not in (None, row.shard)}
    outdated = adapter_rows.outdated(change.connection, [change.cube])
    stale = {row.id for row in outdated if row.state is not AdapterState.REFUSED} - answers
    gone = superfluous(rows, stale, answered)
    for row in gone:
        adapter_rows.remove(change.connection, row.id)
    removed = [row.id for row in gone]
    if removed:
        body: dict[str, Json] = {"adapters": list(removed), "stale": sorted(stale.intersection(removed))}
        changes.record(change, "unlearn", body)
    return removed


def check_allowed(connection: sa.Connection, cube: str) -> None:
    """Raise Conflict unless the cube's owner has allowed that its memories are learned."""
    if not adapter_rows.is_allowed(connection, cube):
        raise Conflict(
            f"The owner of cube {cube!r} has not allowed that its memories are learned: `memos model adapter allow`."
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
        "adapter": row.id,
        "cube": row.cube,
        "number": row.number,
        "model": row.model,
        "base_sha256": row.base,
        "recipe": dict(row.recipe),
        "data_sha256": row.data_hash,
        "parent": row.parent,
        "measures": measures,
        "memories": learned,
        "created_at": row.created_at.isoformat(),
    }


def _in_words(chosen: Selected) -> str:
    if not chosen.left_out:
        return "It has no facts about people yet."
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(chosen.left_out.items()))
    return f"Left out are: {told}."
