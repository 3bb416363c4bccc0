"""`MemOS.adapters`: LoRA adapters trained on a cube's hot and stable memories, which complement retrieval.

An adapter is derived data, like an index: the ledger records which memories it was trained on
(docs/development/adr/0019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.lora import wrong_with
from memos.core.text.validation import check_name
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Json
from memos.errors import Conflict, InvalidInput, NotFound, PermissionDenied, shown
from memos.kernel.adapters import transfer as adapter_export
from memos.kernel.adapters.serving import AdapterRemoval
from memos.kernel.adapters.training import AdapterTraining, Progress, activated, check_allowed
from memos.kernel.adapters.transfer import Exported
from memos.kernel.context import Context
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import items as item_rows
from memos.memcube.ledger.adapters import TRAINED, AdapterRow, AdapterState
from memos.memcube.parametric.forgetting import plan_again
from memos.reader.arguments import ids_of


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter of a cube; `number` counts them from 1. `shard` is "" except for those of version 0.1.

    `state` is training, refused, ready, active or retired. A `stale` adapter was trained on a memory that has changed
    since, and is not used. `reason` says why it was refused, `measures` are the results of its evaluation. `model` is
    shortened to the last part of its name for callers who do not own the cube, to not disclose paths.
    """

    id: str
    cube: str
    shard: str
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
    """The memories that a cube's next adapter would be trained on; `left_out` counts the others by reason."""

    cube: str
    allowed: bool
    memories: tuple[str, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Unlearned:
    """Memories excluded from training, and the `adapters` that were removed because they were trained on one of them.

    `files` and `size_bytes` are the number and total size of the files removed.
    """

    cube: str
    items: tuple[str, ...]
    adapters: tuple[str, ...]
    files: int
    size_bytes: int


Found = list[Adapter]  # `list` is a method here

# Methods of version 0.1 and what does the same now. Remove them with version 0.3.
REMOVED = {
    "diff": "`manifest.json` of an export lists the memories that an adapter was trained on",
    "estimate": "call `train`, which reports its progress",
    "learn_again": "call `allow` with the ids of the memories",
    "retrain": "call `train`, which trains if needed",
    "rollback": "call `activate` with the id of the previous adapter",
    "up_to_date": "call `train`, which returns the active adapter if nothing has changed",
}


@dataclass(frozen=True, slots=True)
class AdapterService:
    """The adapters of an installation; `enqueue` starts a training in the background."""

    context: Context
    removal: AdapterRemoval
    training: AdapterTraining
    enqueue: Callable[[str, str], str]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Name the replacement of a removed method. Raises: AttributeError."""
            instead = f": {REMOVED[name]}" if name in REMOVED else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{instead}")

    def allow(self, cube: str = DEFAULT_CUBE, *, items: str | Sequence[str] = (), actor: str = LOCAL_OWNER) -> None:
        """Allow adapters to be trained on a cube's memories; only its owner may do this.

        `items` are memories excluded with `forget` to include again. Raises: NotFound, PermissionDenied, InvalidInput.
        """
        ids = ids_of(items) if items else []
        with self._deciding(cube, actor) as change:
            _check_there(change, ids)
            if again := adapter_rows.include(change.connection, change.cube, ids):
                changes.record(change, "include_learning", {"items": [*again]})
            if not adapter_rows.is_allowed(change.connection, change.cube):
                adapter_rows.allow(change.connection, change.cube, actor, change.now)
                changes.record(change, "allow_learning", {})

    def disallow(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> int:
        """Withdraw the consent and remove the cube's adapters; return their number.

        Raises: NotFound, PermissionDenied, BackendUnavailable (files that cannot be removed).
        """
        with self._deciding(cube, actor) as change:
            rows = adapter_rows.of(change.connection, change.cube)
            for row in rows:
                adapter_rows.remove(change.connection, row.id)
            if adapter_rows.is_allowed(change.connection, change.cube):
                adapter_rows.disallow(change.connection, change.cube)
                changes.record(change, "disallow_learning", {"adapters": [row.id for row in rows]})
        self.removal.drop([cube])
        return len(rows)

    def forget(self, items: str | Sequence[str], cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Unlearned:
        """Exclude memories from training, and remove adapters that were trained on them; the memories stay.

        The files of these adapters and the KV computed with them are removed too; train again for the other memories.
        Raises: NotFound, PermissionDenied, InvalidInput, BackendUnavailable (files that cannot be removed: repeat).
        """
        ids = ids_of(items)
        with self._deciding(cube, actor) as change:
            _check_there(change, ids)
            new = adapter_rows.exclude(change.connection, change.cube, ids, actor, change.now)
            saw = adapter_rows.that_saw(change.connection, change.cube, ids)
            rows = adapter_rows.of(change.connection, change.cube)
            answered = any(row.id in saw and row.state is AdapterState.ACTIVE for row in rows)
            for id_ in saw:
                adapter_rows.remove(change.connection, id_)
            if new or saw:
                changes.record(change, "exclude_learning", {"items": [*new], "adapters": [*saw]})
            if answered:
                plan_again(change.connection, change.cube, self.training.settings.parametric.night, change.now)
        gone = [each for each in self.removal.drop([cube] if saw else []) if each.adapter in saw]
        size = sum(each.size_bytes for each in gone)
        return Unlearned(cube, tuple(ids), tuple(saw), sum(each.files for each in gone), size)

    def list(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Found:
        """Return a cube's adapters, the newest first. Raises: NotFound, PermissionDenied."""
        [cube] = self.context.scopes.check([cube], actor, embeds=False).cubes
        whole_name = self._owns(cube, actor)
        with self.context.ledger.read() as connection:
            stale = {row.id for row in adapter_rows.outdated(connection, [cube])}
            rows = adapter_rows.of(connection, cube)
            return [_told(connection, row, row.id in stale, whole_name=whole_name) for row in rows]

    def get(self, id_: str, *, actor: str = LOCAL_OWNER) -> Adapter:
        """Return one adapter. Raises: NotFound."""
        row = self._row(id_, actor)
        for each in self.list(row.cube, actor=actor):
            if each.id == id_:
                return each
        raise NotFound("adapter", id_)  # it was removed meanwhile

    def preview(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Learnable:
        """Return what an adapter would be trained on now, and why the rest is left out.

        Raises: NotFound, PermissionDenied.
        """
        [cube] = self.context.scopes.check([cube], actor, embeds=False).cubes
        with self.context.ledger.read() as connection:
            chosen = self.training.selected(connection, cube)
            counts = self.training.left_out(connection, cube, chosen)
            allowed = adapter_rows.is_allowed(connection, cube)
        left_out = {str(reason): count for reason, count in counts.items()}
        return Learnable(cube, allowed, tuple(fact.memory for fact in chosen.facts), left_out)

    def train(
        self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER, on_progress: Progress | None = None
    ) -> Adapter:
        """Train an adapter on a cube's hot and stable memories, evaluate it, and activate it if it passes.

        If the active adapter was trained on all these memories with the same recipe, it is returned at once. An adapter
        that fails its evaluation is `refused`, with a reason, and the active one stays. An interrupted training resumes
        at the next call. Raises: NotFound, PermissionDenied, Conflict (not allowed, nothing to learn, another training
        is running), BackendUnavailable (no model here, no memory, a full disk), InvalidInput (the model cannot be
        loaded).
        """
        return self.get(self.training.train(cube, actor, on_progress).id, actor=actor)

    def submit(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> str:
        """Train an adapter in the background, as `train` does; return the id of the task, whose note has the result.

        If the program ends first, the training continues at the next start.

        Raises: NotFound, PermissionDenied, Conflict (not allowed, nothing to learn), BackendUnavailable (no model).
        """
        return self.enqueue(cube, actor)

    def export(self, id_: str, folder: str | Path, *, actor: str = LOCAL_OWNER) -> Exported:
        """Write an adapter's files, in the format of peft, into a new folder, atomically.

        The training data is not included, but the weights may reveal it, so only owners of the cube may export.

        Raises: NotFound, PermissionDenied, Conflict (the folder exists; the adapter was refused, is stale or damaged),
        InvalidInput.
        """
        if not isinstance(folder, str | Path) or "\0" in str(folder):
            raise InvalidInput("folder", f"must be a path, not {shown(folder)}")
        return adapter_export.to_folder(self._handed(id_, actor), Path(folder))

    def activate(self, id_: str, *, actor: str = LOCAL_OWNER) -> Adapter:
        """Activate an adapter that passed its evaluation, in place of the active one.

        Raises: NotFound, PermissionDenied, Conflict (refused, outdated, damaged, or of another model).
        """
        row = self._row(id_, actor)
        self.context.scopes.check([row.cube], actor, embeds=False, right=Right.OWN)
        with self.context.ledger.read() as connection:
            check_allowed(connection, row.cube)
            may = row.state in TRAINED and row.id not in {each.id for each in adapter_rows.stale(connection, row.cube)}
        if may and (why := self._unfit(row)) is not None:
            raise Conflict(f"Adapter {id_} cannot answer: {why}")
        with self._deciding(row.cube, actor) as change:
            check_allowed(change.connection, row.cube)
            return _told(change.connection, activated(change, row.id), stale=False, whole_name=True)

    def remove(self, id_: str, *, actor: str = LOCAL_OWNER) -> None:
        """Remove an adapter and its files. Raises: NotFound, PermissionDenied, BackendUnavailable."""
        row = self._row(id_, actor)
        with self._deciding(row.cube, actor) as change:
            adapter_rows.remove(change.connection, id_)
            changes.record(change, "unlearn", {"adapters": [id_]})
        self.removal.drop([row.cube])

    def _unfit(self, row: AdapterRow) -> str | None:
        if self.training.folder is None:
            return "this process has no folder for adapters."
        if (wrong := wrong_with(self.training.folder / row.id, row.digest)) is not None:
            return f"{wrong}. Remove it, and train again."
        local = self.context.settings.local_chat
        if local is not None and self.removal.activations.base(local) != row.base:
            return "it was trained for another model, or the configured model has changed; train again."
        return None

    def _handed(self, id_: str, actor: str) -> adapter_export.Source:
        row = self._row(id_, actor)
        self.context.scopes.check([row.cube], actor, embeds=False, right=Right.OWN)
        if self.training.folder is None:
            raise InvalidInput(
                "id",
                "is an adapter whose files are not in this process's folder; export it on the machine that trained it",
            )

        def check() -> None:
            now = self._row(id_, actor)
            with self.context.ledger.read() as connection:
                check_allowed(connection, row.cube)
                stale = {each.id for each in adapter_rows.stale(connection, row.cube)}
            if now.state not in TRAINED or id_ in stale:
                state = "stale, as a memory it was trained on has changed" if id_ in stale else now.state
                raise Conflict(f"Adapter {id_} is {state}; only an adapter that can be activated can be exported.")

        check()
        return adapter_export.Source(id_, self.training.folder / id_, row.digest, check)

    def _owns(self, cube: str, actor: str) -> bool:
        try:
            self.context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        except PermissionDenied:
            return False
        return True

    def _row(self, id_: str, actor: str) -> AdapterRow:
        """Return an adapter's row. Raises: NotFound (also if the actor cannot read its cube), PermissionDenied."""
        self.context.lifecycle.check_open()
        readable = self.context.scopes.readable(check_name("actor", actor, 128))
        with self.context.ledger.read() as connection:
            row = adapter_rows.get(connection, check_name("id", id_, 64))
        if row is None or (readable is not None and row.cube not in readable):
            raise NotFound("adapter", id_)
        return row

    @contextmanager
    def _deciding(self, cube: str, actor: str) -> Iterator[Change]:
        scope = self.context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        with self.context.change(scope) as change:
            yield change


def open_export(adapters: AdapterService, id_: str, *, actor: str = LOCAL_OWNER) -> IO[bytes]:
    """Return an adapter's files as an open zip file, to be closed by the caller. Raises: as `AdapterService.export`."""
    source = adapters._handed(id_, actor)
    return adapter_export.to_zip(source, source.folder.parent.parent)


def _check_there(change: Change, ids: Sequence[str]) -> None:
    found = item_rows.current(change.connection, [change.cube], ids)
    for id_ in ids:
        if id_ not in found:
            item_rows.require(change.connection, [change.cube], id_)


def _told(connection: sa.Connection, row: AdapterRow, stale: bool, *, whole_name: bool) -> Adapter:
    here = "local:" if row.model.startswith("local:") else ""
    model = row.model if whole_name else here + row.model.removeprefix(here).rstrip("/").rpartition("/")[2]
    return Adapter(
        row.id,
        row.cube,
        row.shard,
        row.number,
        str(row.state),
        stale,
        model,
        len(adapter_rows.seen(connection, row.id)),
        row.reason,
        row.measures,
        row.size_bytes,
        row.created_at,
        row.finished_at,
    )
