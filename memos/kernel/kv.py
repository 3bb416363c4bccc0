"""`MemOS.kv`: the prompt prefix of a cube, and its KV in the tiers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from memos.core.identities import Right
from memos.core.kv_cache import CubePrefix, FirstToken, KvStats, PrefixEntry, Warmed
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import BackendUnavailable, Conflict, InvalidAnswer
from memos.kernel.chat.prompts import request_of
from memos.kernel.chat.results import Question, Recalled
from memos.kernel.context import Context
from memos.kernel.local_models import LocalModels, Models
from memos.llm.usage import Call, UsageMeter
from memos.memcube import prompt_prefix
from memos.memcube.ledger import items, tasks
from memos.scheduler.task import Job, TaskRun

_LATER = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class KvService:
    """Activation memory: prompt prefixes of cubes and their cached KV."""

    context: Context
    activations: LocalModels
    models: Models
    wake: Callable[[], None]
    _one: threading.Lock = field(default_factory=threading.Lock)
    _measured: dict[str, FirstToken] = field(default_factory=dict)

    def show(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> CubePrefix:
        """Return the prompt prefix of a cube. Raises: NotFound, PermissionDenied."""
        [cube] = self.context.scopes.check([cube], actor, embeds=False).cubes
        now = self.context.clock.now()
        with self.context.ledger.read() as connection:
            rows = prompt_prefix.of(connection, cube)
            states = items.with_sources(connection, [cube], [row.item for row in rows])
            part = prompt_prefix.read(connection, cube, now, self.context.settings.prefix_room, marks=True)
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
            if (state := states.get(row.item)) is not None and prompt_prefix.may_include(state, now)
        )
        kept = Counter(str(tiers[0]) for _, tiers, _ in self.activations.blocks(cube) if tiers)
        tokens, text = (0, "") if part is None else (part.tokens, part.section)
        return CubePrefix(cube, entries, tokens, self.context.settings.prefix_room, text, dict(kept))

    def stats(self, *, actor: str = LOCAL_OWNER) -> KvStats:
        """Return the KV statistics of all cubes, and those of the endpoint that caches prefixes, if there is one.

        For admins. Raises: PermissionDenied.
        """
        self.context.scopes.check_admin(actor)
        found, chat = self.activations.stats(), self.context.settings.chat_model
        if chat.base_url is None or chat.prefix_cache == "off":
            return found
        return replace(found, server=self.activations.server_stats(chat))

    def compose(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> str:
        """Queue a new prefix from what is hot and pinned now; return the task. Raises: NotFound, PermissionDenied."""
        with self.context.change(self.context.scopes.check([cube], actor, right=Right.WRITE)) as change:
            [task] = tasks.enqueue(change.connection, change.cube, [prompt_prefix.compose_task()], change.now)
        self.wake()
        return task

    def warm(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> Warmed:
        """Prefill a cube's prefix, so that the next answer starts sooner.

        Raises: NotFound, PermissionDenied, BackendUnavailable (no model keeps KV), ModelError.
        """
        [cube] = self.context.scopes.check([cube], actor).cubes
        return self._warmed(cube, UsageMeter("warm", cube=cube))

    def drop(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> int:
        """Remove a cube's cached KV; return the number of blocks.

        It is recomputed on demand. Raises: NotFound, PermissionDenied, BackendUnavailable.
        """
        [cube] = self.context.scopes.check([cube], actor, embeds=False, right=Right.WRITE).cubes
        return self.activations.forget([cube])

    def measure(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> FirstToken:
        """Measure the time to the first token without and with the kept prefix; what is kept is computed anew.

        For a model in this process alone: what an endpoint keeps cannot be dropped.
        Raises: NotFound, PermissionDenied, BackendUnavailable (no such model), Conflict (no prefix), ModelError.
        """
        [cube] = self.context.scopes.check([cube], actor, right=Right.WRITE).cubes
        if self.context.settings.local_chat is None:
            raise BackendUnavailable(
                "No model runs in this process. Set MEMOS_CHAT_MODEL__MODEL to local:PATH for the process that opens "
                "this installation, and restart it (docs/how-to/models.md).",
                permanent=True,
            )
        with self.context.ledger.read() as connection:
            if not prompt_prefix.of(connection, cube):
                raise Conflict(
                    f"Cube {cube!r} has no prompt prefix yet; compose it first (docs/concepts/activation.md)."
                )
        meter = UsageMeter("warm", cube=cube)
        with self._one:
            self._warmed(cube, meter)  # loads the model
            self.activations.forget([cube])
            cold = self._warmed(cube, meter)
            warm = self._warmed(cube, meter)
        now = self.context.clock.now()
        found = self._measured[cube] = FirstToken(cube, warm.tokens, cold.seconds, warm.seconds, now)
        return found

    def measured(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> FirstToken | None:
        """Return what `measure` found last in this process, None before. Raises: NotFound, PermissionDenied."""
        [cube] = self.context.scopes.check([cube], actor, embeds=False).cubes
        return self._measured.get(cube)

    def verify(self, *, actor: str = LOCAL_OWNER) -> tuple[str, ...]:
        """Remove damaged files of the disk tier and return their keys. For admins. Raises: PermissionDenied."""
        self.context.scopes.check_admin(actor)
        return tuple(self.activations.verify())

    def job(self) -> Job:
        """Return the job that prefills a cube's prefix."""
        return Job(prompt_prefix.WARM, self._run, budgeted=False)

    def _run(self, run: TaskRun) -> None:
        def tell(call: Call) -> None:
            run.spend(1, call.tokens.prompt, call.tokens.completion)

        run.check_cancelled()
        with self.context.ledger.read() as connection:
            there = bool(prompt_prefix.of(connection, run.task.cube))
        if not there or not self.context.settings.prefix_room:  # it went, or settings did
            return
        # One at a time: the other workers are for what changes prefixes, and for everything else.
        if not self._one.acquire(blocking=False):
            with run.finishing() as connection:
                now = self.context.clock.now()
                later = replace(prompt_prefix.warm_task(), not_before=now + _LATER)
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
                "No model with a prefix cache is configured. Set MEMOS_CHAT_MODEL__MODEL to local:PATH, or set "
                "MEMOS_CHAT_MODEL__PREFIX_CACHE, for the process that opens this installation, and restart it "
                "(docs/concepts/activation.md).",
                permanent=True,
            )
        with self.context.ledger.read() as connection:
            part = prompt_prefix.read(
                connection, cube, self.context.clock.now(), self.context.settings.prefix_room, marks=True
            )
        began = time.perf_counter()
        with suppress(InvalidAnswer):  # an answer of one token is cut off
            recalled = Recalled("", 0, (), False, prefix=part)
            asker.chat(request_of(Question("?", max_tokens=1), recalled, (), cube=cube), meter=meter)
        return Warmed(cube, 0 if part is None else part.tokens, time.perf_counter() - began)
