"""`MemOS.kv`: the memories that prompts of a cube begin with, and what of their attention KV is kept where."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated

from memos.core.identities import Right
from memos.core.ports import ChatRequest
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import BackendUnavailable, UnfitAnswer
from memos.kernel.chat.prompts import request_of
from memos.kernel.chat.results import Question, Recalled
from memos.kernel.context import Context
from memos.kernel.local_models import Activations
from memos.kernel.models import Models
from memos.llm.usage import Call, UsageMeter
from memos.memcube import prompt_prefix as prefix_rows
from memos.memcube import prompt_prefix as prefix_text
from memos.memcube.activation.store import KvStats
from memos.memcube.ledger import items, tasks
from memos.memcube.prompt_prefix import PrefixText
from memos.scheduler.task import Job, TaskRun

_LATER = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class PrefixEntry:
    """One memory of a prefix; `changed` when it is no more what it was when the prefix was composed."""

    mark: Annotated[str, "Mark by which an answer cites it, such as `m1`"]
    item: Annotated[str, "Id of the memory"]
    version: Annotated[int, "Version that stands there"]
    memory: Annotated[str, "Its text now"]
    added_at: Annotated[datetime, "When it was put there"]
    changed: Annotated[bool, "Whether it is no more what it was then"]


@dataclass(frozen=True, slots=True)
class CubePrefix:
    """What prompts of a cube begin with; `blocks` of KV by the fastest tier that each is in.

    `room` is how many tokens of memories it may have, 0 where no model keeps them.
    """

    cube: Annotated[str, "The cube"]
    entries: Annotated[tuple[PrefixEntry, ...], "Its memories, in order"]
    tokens: Annotated[int, "Estimated tokens of the text"]
    room: Annotated[int, "Most tokens of memories it may have; 0 where no model keeps them"]
    text: Annotated[str, "The section of the prompt; empty when there is none"]
    blocks: Annotated[dict[str, int], "How many blocks of the cube are kept, by the fastest tier that each is in"]


@dataclass(frozen=True, slots=True)
class Warmed:
    """How long a model took to make what prompts of a cube begin with its own."""

    cube: Annotated[str, "The cube"]
    tokens: Annotated[int, "Estimated tokens of what they begin with"]
    seconds: Annotated[float, "Seconds it took"]


@dataclass(frozen=True, slots=True)
class KvService:
    """Activation memory of an installation: what its prompts begin with, and the KV that models keep of it."""

    context: Context
    activations: Activations
    models: Models
    wake: Callable[[], None]
    _one: threading.Lock = field(default_factory=threading.Lock)

    def show(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> CubePrefix:
        """Return the memories that prompts of a cube begin with. Raises: NotFound, PermissionDenied."""
        scope = self.context.scopes.check([cube], actor, embeds=False)
        [cube] = scope.cubes
        now = self.context.clock.now()
        with self.context.ledger.read() as connection:
            rows = prefix_rows.of(connection, cube)
            states = items.with_sources(connection, [cube], [row.item for row in rows])
            part = prefix_text.read(connection, cube, now, self.context.settings.prefix_room, marks=True)
        there = {} if part is None else {item.id: number for number, item in part.shown}
        entries = tuple(
            PrefixEntry(
                f"m{row.ordinal}",
                row.item,
                row.version,
                state.memory,
                row.added_at,
                row.item not in there or state.version != row.version,
            )
            for row in rows
            if (state := states.get(row.item)) is not None and prefix_text.may_stand(state)
        )
        kept: dict[str, int] = {}
        for _, tiers, _ in self.activations.blocks(cube):
            if tiers:
                kept[str(tiers[0])] = kept.get(str(tiers[0]), 0) + 1
        tokens, text = (0, "") if part is None else (part.tokens, part.section)
        return CubePrefix(cube, entries, tokens, self.context.settings.prefix_room, text, kept)

    def stats(self, *, actor: str = LOCAL_OWNER) -> KvStats:
        """Return what is kept of all cubes, for admins. Raises: PermissionDenied."""
        self.context.scopes.check_admin(actor)
        return self.activations.stats()

    def compose(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> str:
        """Have a cube's prefix composed by what is hot and pinned now; return the task.

        Raises: NotFound, PermissionDenied.
        """
        with self.context.change(self.context.scopes.check([cube], actor, right=Right.WRITE)) as change:
            [task] = tasks.enqueue(change.connection, change.cube, [prefix_rows.compose_task()], change.now)
        self.wake()
        return task

    def warm(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Warmed:
        """Have the model compute what prompts of a cube begin with, so that the next answer begins sooner.

        Raises: NotFound, PermissionDenied, BackendUnavailable (no model that keeps anything), ModelError.
        """
        [cube] = self.context.scopes.check([cube], actor).cubes
        return self._warmed(cube, UsageMeter("warm", cube=cube))

    def drop(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> int:
        """Remove what is kept of a cube's prompts in this installation; return how many blocks.

        It is computed again when it is needed. Raises: NotFound, PermissionDenied, BackendUnavailable.
        """
        [cube] = self.context.scopes.check([cube], actor, embeds=False, right=Right.WRITE).cubes
        return self.activations.forget([cube])

    def verify(self, *, actor: str = LOCAL_OWNER) -> tuple[str, ...]:
        """Read every file of the disk tier, for admins; remove the damaged ones and return their keys.

        Raises: PermissionDenied.
        """
        self.context.scopes.check_admin(actor)
        return tuple(self.activations.verify())

    def job(self) -> Job:
        """Return what warms a cube in the background."""
        return Job(prefix_rows.WARM, self._run, budgeted=False)

    def _run(self, run: TaskRun) -> None:
        def tell(call: Call) -> None:
            run.spend(1, call.tokens.prompt, call.tokens.completion)

        run.go_on()
        with self.context.ledger.read() as connection:
            there = bool(prefix_rows.of(connection, run.task.cube))
        if not there or not self.context.settings.prefix_room:  # it went, or settings did
            return
        # One at a time: the other workers are for what changes prefixes, and for everything else.
        if not self._one.acquire(blocking=False):
            with run.finishing() as connection:
                now = self.context.clock.now()
                later = replace(prefix_rows.warm_task(), not_before=now + _LATER)
                tasks.enqueue(connection, run.task.cube, [later], now)
            return
        try:
            self._warmed(run.task.cube, UsageMeter("warm", cube=run.task.cube, task=run.task.id, tell=tell))
        finally:
            self._one.release()

    def _warmed(self, cube: str, meter: UsageMeter) -> Warmed:
        asker = self.models.chat
        if asker is None or not self.context.settings.prefix_room:
            raise BackendUnavailable(
                "No model keeps what prompts begin with. Where this installation is opened, by a server if one runs, "
                "set MEMOS_CHAT_MODEL__MODEL to local:PATH, or MEMOS_CHAT_MODEL__PREFIX_CACHE (docs/activation.md).",
                permanent=True,
            )
        with self.context.ledger.read() as connection:
            part = prefix_text.read(
                connection, cube, self.context.clock.now(), self.context.settings.prefix_room, marks=True
            )
        began = time.perf_counter()
        with suppress(UnfitAnswer):  # an answer of one token is cut off
            asker.talk(self._request(cube, part), meter=meter)
        return Warmed(cube, 0 if part is None else part.tokens, time.perf_counter() - began)

    def _request(self, cube: str, part: PrefixText | None) -> ChatRequest:
        """Return a request that begins as chats of the cube do, and is otherwise as short as can be."""
        recalled = Recalled("", 0, (), False, prefix=part)
        question = Question("?", max_tokens=1)
        return request_of(question, recalled, (), cube=cube)
