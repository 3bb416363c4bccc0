"""Export adapters, and import those of a dump: each is evaluated on the model here, and never activated by itself.

Of a refused adapter only the reason is kept. Consent is not imported: the cube's owner here must give it.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO

from memos.core.clock import new_id
from memos.core.identities import Right
from memos.core.lora import (
    ADAPTER_FILE,
    CARD,
    CONFIG,
    FILES,
    MANIFEST,
    LoraRecipe,
    card_of,
    digests,
    manifest_in,
    recipe_with,
    told_recipe,
    wrong_with,
)
from memos.core.types import Json, Scope
from memos.errors import Conflict, InvalidInput, MemosError
from memos.kernel.adapters.training import AdapterTraining
from memos.kernel.chat.prompts import SYSTEM
from memos.memcube.backup.files import DigestedFile, created, disk_errors, sync_folder
from memos.memcube.dump import adapters as dump_adapters
from memos.memcube.dump.adapters import Carried
from memos.memcube.dump.ids import IdResolution, Ids, Kind
from memos.memcube.dump.load import Load
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import items
from memos.memcube.ledger.adapters import AdapterRow, AdapterState, NewAdapter, Seen
from memos.memcube.ledger.engine import Ledger
from memos.memcube.parametric import training
from memos.memcube.parametric.quiz import KnownFact
from memos.memcube.parametric.selection import Stable, select
from memos.memcube.parametric.training import EvaluationResult, TrainerProcess

EXPORTED = (*FILES, CARD)
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    adapter: str
    folder: str
    files: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """An adapter to export; `digest` is the SHA-256 of its weights, `still` raises if it may no longer be exported."""

    adapter: str
    folder: Path
    digest: str | None
    still: Callable[[], object]


def to_folder(source: Source, target: Path) -> Exported:
    """Copy an adapter's files into a new folder, which is renamed into place once they are complete.

    Raises: Conflict (the folder exists, or the files are damaged), InvalidInput, BackendUnavailable.
    """
    with disk_errors(target.parent):
        if target.exists() or target.is_symlink():
            raise Conflict(f"There is {str(target)!r} already: choose another name, or remove it.")
        if not target.name or not target.parent.is_dir():
            raise InvalidInput("folder", f"must be a new folder inside an existing one, not {str(target)!r:.200}")
        if target.resolve().is_relative_to(source.folder.parent.resolve()):
            raise InvalidInput(
                "folder", "must not be in the folder of the adapters, where it would be removed as unused"
            )
        aside = target.with_name(f".{target.name}.{new_id()}.part")
        try:
            aside.mkdir(mode=0o700)
            size = _copied(source, lambda name: created(aside / name))
            sync_folder(aside)
            source.still()
            aside.rename(target)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return Exported(source.adapter, str(target), EXPORTED, size)


def to_zip(source: Source, scratch: Path) -> IO[bytes]:
    """Return an adapter's files as an open zip in a temporary file; the caller closes it. Raises: as `to_folder`."""
    with disk_errors(scratch), ExitStack() as closing:
        out = closing.enter_context(tempfile.TemporaryFile(dir=scratch))
        with zipfile.ZipFile(out, "w") as packed:  # uncompressed, since weights do not compress
            _copied(source, lambda name: packed.open(zipfile.ZipInfo(name), "w", force_zip64=True))
        source.still()
        out.seek(0)
        closing.pop_all()
    return out


def _copied(source: Source, opened: Callable[[str], AbstractContextManager[IO[bytes]]]) -> int:
    """Copy each file to what `opened` returns; return the total size. Raises: Conflict, OSError, as `source.still`."""
    if (wrong := wrong_with(source.folder, source.digest)) is not None:
        source.still()
        raise Conflict(f"The adapter cannot be exported: {wrong}. Remove it, and train again.")
    try:
        told = digests(source.folder)
        examined = {ADAPTER_FILE: told["weights_sha256"], CONFIG: told["config_sha256"]}
        size = 0
        for name in FILES:
            with (source.folder / name).open("rb") as file, opened(name) as out:
                digested = DigestedFile(out)
                while block := file.read(_BLOCK):
                    digested.write(block)
            if digested.hexdigest() != examined.get(name, digested.hexdigest()):
                raise Conflict(f"{name} was changed while it was copied; repeat the export.")
            size += digested.size
        card = card_of(manifest_in(source.folder)).encode()  # generated, since no digest protects a stored one
    except FileNotFoundError:
        source.still()
        raise
    except (ValueError, RecursionError) as error:
        raise Conflict(f"{MANIFEST} was changed while it was copied; repeat the export.") from error
    with opened(CARD) as out:
        out.write(card)
    return size + len(card)


WEIGHTS = "arrived.safetensors"  # the weights of an imported adapter during its evaluation
_ALWAYS = Stable(0.0, timedelta(0), most=dump_adapters.MOST_SEEN)


@dataclass(frozen=True, slots=True)
class AdapterArrival:
    """Imports adapters; `learner` returns the training that evaluates them."""

    learner: Callable[[], AdapterTraining]

    @property
    def folder(self) -> Path | None:
        return self.learner().folder

    def take(self, work: Load) -> tuple[int, str | None]:
        """Import the adapters of a dump that was loaded; return how many are ready, and why the others are not."""
        if not (found := dump_adapters.carried(work.reader)):
            return 0, None
        learner = self.learner()
        if not work.target.trust:
            return 0, "they are loaded only from a trusted file (trust=True, --trust)"
        if learner.folder is None or (model := learner.settings.learning_model) is None:
            return 0, "evaluating them needs a model in this process; set MEMOS_CHAT_MODEL__MODEL=local:PATH"
        ready, reasons = 0, []
        for each in found:
            try:
                why = _Arriving(learner, str(model.local), str(model.model), learner.folder, work, each).examined()
            except MemosError as error:
                why = str(error)
            if why is None:
                ready += 1
            else:
                reasons.append(why)
        if left := dump_adapters.count(work.reader.manifest.parts) - len(found):
            reasons.append(f"{left} exceed the limit of {dump_adapters.MOST} adapters per file")
        return ready, "; ".join(dict.fromkeys(reasons)) or None


def remove_ended(ledger: Ledger, folder: Path) -> None:
    """Remove the rows of imports that a killed process left unfinished, since nothing resumes them."""
    ended = [weights.parent.name for weights in folder.glob(f"*/{WEIGHTS}")]
    if ended:
        with ledger.write() as connection:
            for id_ in ended:
                row = adapter_rows.get(connection, id_)
                if row is not None and row.state is AdapterState.TRAINING:
                    adapter_rows.remove(connection, id_)


@dataclass(frozen=True, slots=True)
class _Arriving:
    learner: AdapterTraining
    base: str
    model: str
    folder: Path
    work: Load
    carried: Carried

    def examined(self) -> str | None:
        """Evaluate the adapter; return why it is not ready, None if it is. Nothing is kept if MemosError is raised."""
        seen, recipe = _imported_seen(self.work.ids, self.carried.seen), _recipe(self.carried.recipe)
        if seen is None:
            return "memories they were trained on are missing here"
        if recipe is None:
            return "they were trained with a recipe that this version does not support"
        if len(seen) > self.learner.most:
            return f"they were trained on more memories than are allowed here ({self.learner.most})"
        facts = self._facts(seen)
        if facts is None:
            return "some memories they were trained on differ here, or are excluded from training here"
        with self.learner.alone(), self.learner.new_trainer() as trainer:
            trainer.open(self.base, recipe)
            if trainer.base != self.carried.base:
                return f"another model than {self.base} is under them, or one of other weights, tokenizer or template"
            row = self._start_row(trainer.base, recipe, seen)
            try:
                measure = partial(self._evaluate, trainer, row, facts)
                done = self.learner.examined(trainer, row, measure, self._scope, arrived=True)
            except BaseException:
                self.learner.throw_away(row)
                raise
        return None if done.state is AdapterState.READY else f"adapter {done.id} failed its evaluation: {done.reason}"

    def _facts(self, seen: Sequence[Seen]) -> Sequence[KnownFact] | None:
        """Return its training set as facts; None if a memory differs here, or does not qualify for training."""
        context, cube = self.learner.context, self.work.target.cube
        with context.ledger.read() as connection:
            states = items.with_sources(connection, [cube], [each.item for each in seen])
        for each in seen:
            state = states.get(each.item)
            if state is None or hashlib.sha256(state.memory.encode()).hexdigest() != each.digest:
                return None
        # Regardless of heat: imported memories have no accesses yet.
        facts = select([(state, None) for state in states.values()], _ALWAYS, context.clock.now()).facts
        return facts if {fact.item for fact in facts} == states.keys() else None

    def _start_row(self, base: str, recipe: LoraRecipe, seen: Sequence[Seen]) -> AdapterRow:
        new = NewAdapter(self.work.target.cube, self.model, base, told_recipe(recipe), self.carried.data_hash)
        with self.learner.context.ledger.write() as connection:
            return adapter_rows.begin(connection, new, seen, self.learner.context.clock.now(), arrived=True)

    def _scope(self) -> Scope:
        target = self.work.target
        return self.learner.context.scopes.check([target.cube], target.actor, embeds=False, right=Right.OWN)

    def _evaluate(self, trainer: TrainerProcess, row: AdapterRow, facts: Sequence[KnownFact]) -> EvaluationResult:
        weights = self.folder / row.id / WEIGHTS
        with weights.open("wb") as out:
            for block in self.work.reader.blocks(self.carried.weights):
                out.write(block)
        trainer.load(weights)
        weights.unlink()
        return training.examined(trainer, facts, SYSTEM, int(str(row.recipe["seed"])))


def _imported_seen(ids: Ids, seen: Sequence[Seen]) -> list[Seen] | None:
    found = []
    for each in seen:
        item, fate = ids.find(Kind.ITEM, each.item) or ("", IdResolution.LEFT_OUT)
        if fate is IdResolution.LEFT_OUT:
            return None
        found.append(Seen(item, each.version, each.digest))
    return sorted(found, key=lambda one: one.item)


def _recipe(told: Mapping[str, Json]) -> LoraRecipe | None:
    """Parse the recipe in a dump; None if it has unknown fields, or values beyond the limits."""
    if told.keys() != told_recipe(LoraRecipe()).keys():
        return None
    try:
        return recipe_with(told)
    except ValueError:
        return None
