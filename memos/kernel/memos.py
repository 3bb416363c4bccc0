"""`MemOS`: the one object that wires ports to backends and that every surface calls.

Each method checks its input, opens one transaction or search, and leaves the work to the packages below.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.core.clock import Clock, SystemClock
from memos.core.filters import parse
from memos.core.identities import Right
from memos.core.lora import recipe_with
from memos.core.ports import ChatModel, Embedder, Reranker
from memos.core.settings import Settings
from memos.core.telemetry import Listeners
from memos.core.text.validation import check_name, check_text
from memos.core.types import (
    DEFAULT_CUBE,
    LOCAL_OWNER,
    AddReceipt,
    EraseReceipt,
    ExtractionRecord,
    FeedbackReceipt,
    Hit,
    Item,
    Json,
    Mode,
    Scope,
    SearchResult,
    Segment,
    Status,
    VerifyReport,
    Version,
    WhyNot,
)
from memos.errors import (
    BackendUnavailable,
    Conflict,
    InvalidInput,
    NotFound,
    PermissionDenied,
)  # fmt: skip
from memos.kernel.access.guard import Guard
from memos.kernel.access.service import Doors, Keys, Sharing, Users
from memos.kernel.adapters.rephrasing import Rephrasing
from memos.kernel.adapters.service import Adapters
from memos.kernel.adapters.tasks import LearningTasks
from memos.kernel.adapters.training import AdapterTraining
from memos.kernel.adapters.transfer import AdapterArrival, remove_ended
from memos.kernel.chat.chat import Chat
from memos.kernel.chat.chat import Doors as ChatDoors
from memos.kernel.chat.recalling import Recalling
from memos.kernel.context import Handles, Scopes, repeated
from memos.kernel.conversations import Exchanges
from memos.kernel.cubes import Cubes, Knowledge, Making
from memos.kernel.documents import Documents, Images
from memos.kernel.events import Events
from memos.kernel.feedback import correct
from memos.kernel.idempotency import Idempotency
from memos.kernel.kv import Kv
from memos.kernel.maintenance import Upkeep
from memos.kernel.memories import Adding, FineReading, Page, listed, page
from memos.kernel.opening import Parts, assemble
from memos.kernel.profiles import Profiles
from memos.kernel.retention import Retention
from memos.kernel.review import Review
from memos.kernel.search import Kind, Reranked, by_reranker, by_vectors_and_words, check_given, recall
from memos.kernel.statistics import Asked, Overview, overview
from memos.kernel.submissions import Submissions
from memos.kernel.tasks import Tasks
from memos.kernel.tiers import FACTS, Compose, WorkingMemory
from memos.kernel.tools import ToolMemory
from memos.kernel.totals import Totals
from memos.kernel.transfer import Means as TravelMeans
from memos.kernel.transfer import Travel
from memos.llm.client import Asker
from memos.memcube import changes, documents
from memos.memcube import erasure as erase
from memos.memcube.backup import backups as known_backups
from memos.memcube.backup.archive import Manifest
from memos.memcube.backup.backups import KnownBackup
from memos.memcube.changes import Change
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger import items
from memos.memcube.ledger.files import READ
from memos.memcube.parametric.forgetting import Forgotten
from memos.memcube.prompt_prefix import COMPOSE
from memos.memcube.retraction import withdraw
from memos.reader import messages as fast
from memos.reader.arguments import edits_of, ids_of, member_of, version_of, within
from memos.reader.facts.extractor import FEEDBACK
from memos.reader.messages import read_messages, read_time
from memos.scheduler.heat import Access
from memos.scheduler.index_worker import Worker
from memos.scheduler.jobs.prefix import ComposeJob
from memos.scheduler.jobs.read_file import ReadFileJob
from memos.scheduler.jobs.retention import RetentionJob
from memos.scheduler.learning import Nearness
from memos.scheduler.scheduler import Means, Scheduler
from memos.scheduler.task import Job
from memos.search.explain import why_not
from memos.search.patience import PatientReranker
from memos.search.request import SearchRequest
from memos.search.searcher import Searcher

_RELATED_BY_SEARCH = 3
_RELATED_FACTS = 20
# More searches than that take turns: one holds up to three of the ledger's 32 connections, and would wait for its third
# for ever when others held all the rest. More at once are no quicker in one interpreter.
_SEARCHES_AT_ONCE = 8

# `list` is a method here, so its annotations need other names.
Items = list[Item]
Versions = list[Version]
Ids = list[str]


class MemOS:
    """One open installation. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, parts: Parts) -> None:
        self.home = parts.home
        self.settings = parts.settings
        self.clock = parts.clock
        self.ledger = parts.ledger
        self.embedder = parts.embedder
        self.listeners = Listeners()
        self._parts = parts
        self._guard = Guard(parts.ledger)
        self._scopes = Scopes(parts.ledger, self._guard, parts.embedder.fingerprint, parts.settings, self._check_open)
        self.idempotency = Idempotency(parts.ledger, parts.clock, self._check_open)
        self.quotas = parts.quotas
        self._vector, self._graph = parts.projection("vector"), parts.projection("graph")
        self._upkeep = Upkeep(parts, self._vector, self._graph)
        handles = Handles(
            parts.ledger, parts.clock, parts.settings.limits, self._check_open, self._scopes.of, self._scopes.of_item,
            self._change, self._settle, self._upkeep.purge, self._guard.readable, self._scopes.masking,
        )  # fmt: skip
        finish = partial(self._finish_erasure, wait=True)
        making = Making(
            self._writing,
            self._scopes.forget,
            finish,
            self._guard,
            parts.embedder.fingerprint,
            parts.settings.time_zone,
        )
        self.cubes = Cubes(handles, making)
        doors = Doors(
            parts.ledger, parts.clock, self._guard, self._writing, self._check_open, self.cubes.give_home, self.quotas
        )  # fmt: skip
        self.users, self.keys, self.sharing = Users(doors), Keys(doors), Sharing(doors)
        self._helper = ThreadPoolExecutor(_SEARCHES_AT_ONCE, thread_name_prefix="memos-search")
        self._reranker = None if parts.reranker is None else PatientReranker(parts.reranker, parts.settings.rerank)
        self._searcher = Searcher(
            parts.ledger,
            parts.vector,
            parts.graph,
            parts.vector_follower,
            self._vector,
            parts.embedder,
            parts.terms,
            self._helper,
            threading.BoundedSemaphore(_SEARCHES_AT_ONCE),
            self._reranker,
        )
        upkeep = [
            Job("retention", RetentionJob(self._change, parts.settings.retention_days).run, budgeted=False),
            *self._upkeep.jobs(),
            Job(READ, ReadFileJob(parts.documents, parts.embedder.split, self._settle, self._scopes.masking_of).run),
        ]
        near = Nearness(parts.vector, parts.embedder).of
        means = Means(
            parts.vector_follower.turns_of, near, parts.askers, self._settle, self._scopes.masking_of, upkeep,
            self.listeners.busy,
        )  # fmt: skip
        self._scheduler = Scheduler(parts.ledger, parts.clock, parts.settings, means)
        self.kv = Kv(
            handles, parts.activations, lambda: self.asker, parts.settings.recall, parts.settings.prefix_room,
            self._scheduler.runner.wake, self._scopes.check_admin,
        )  # fmt: skip
        learner = AdapterTraining(
            handles, parts.settings, parts.adapters, self._drop_adapters, parts.trainings,
            parts.embedder.embed_documents, parts.activations.remembered,
            Rephrasing(lambda: None if parts.settings.local_chat else parts.askers.chat),
            recipe=recipe_with(parts.settings.parametric.recipe),
        )  # fmt: skip
        learning = LearningTasks(
            handles, parts.settings, lambda: self.adapters.training, self._drop_adapters, self._scheduler.runner.wake
        )
        self.adapters = Adapters(handles, self._drop_adapters, learner, learning.submit, self._adapter_base)
        compose = Job(COMPOSE, ComposeJob.by(parts.settings, parts.activations.forget).run, budgeted=False)
        self._scheduler.runner.register([compose, self.kv.job(), *learning.jobs()])
        self.tasks = Tasks(parts.ledger, parts.clock, self._scheduler.runner, self._scopes.known)
        self.submissions = Submissions(parts.ledger, parts.clock, self._writing)
        self.profile, self.tools = Profiles(handles), ToolMemory(handles)
        self.events = Events(parts.ledger, self._scopes.known)
        self._adding = Adding(handles, self._scheduler.rules.short_capacity, parts.settings.images, parts.web_images)
        self._fine_reading = FineReading(handles)
        self.images, self.exchanges = Images(handles), Exchanges(handles)
        self.retention, self.review = Retention(handles), Review(handles)
        carrying = TravelMeans(
            parts.embedder, parts.vector, parts.vector_follower, parts.home, parts.settings.limits.dump_bytes,
            parts.check_space, self.quotas.charge, parts.activations, AdapterArrival(lambda: self.adapters.training),
            parts.settings.local_chat,
        )  # fmt: skip
        self.travel = Travel(handles, doors, carrying)
        self.documents = Documents(handles, self._scheduler.runner.wake, parts.web_files)
        dropping = lambda cube, actor: self.cubes.drop(cube, actor=actor)  # noqa: E731
        self.knowledge = Knowledge(handles, self.documents, self.cubes.create, dropping)
        recalling = Recalling(
            handles, parts.settings.recall, self.search, self.working_memory, parts.settings.prefix_room
        )
        self.chat = Chat(ChatDoors(self._chat_asker, self.add, self.used), recalling)
        self._worker = Worker(
            (self._vector, self._graph),
            (
                self._upkeep.purge_if_due,
                self._upkeep.optimise,
                self._scheduler.accesses.flush_if_due,
                self._upkeep.forget_if_due,
                parts.activations.look_if_due,
                parts.take_back_if_due,
            ),
        )
        self.totals = Totals(
            parts.ledger, parts.clock, parts.askers, parts.embedder, self._scopes.check_admin, quotas=parts.quotas
        )
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        *,
        settings: Settings | None = None,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        chat_model: ChatModel | None = None,
        vision_model: ChatModel | None = None,
        reranker: Reranker | None = None,
    ) -> MemOS:
        """Open the installation in a folder, made when new; indexes that lost writes are brought up to date.

        A `chat_model` given here serves every purpose but vision instead of the configured ones, a `vision_model`
        describes images; both stay the caller's to close. A `reranker` given here stands for the configured one.

        Raises: BackendUnavailable (in use, disk full), PermissionDenied, IntegrityError (damaged, or newer).
        """
        settings = settings or Settings()
        home = Path(path) if path is not None else settings.home
        parts = assemble(home, settings, embedder, clock or SystemClock(), chat_model, vision_model, reranker)
        try:
            memos = cls(parts)
        except BaseException:
            parts.close()  # settings that contradict each other must not keep the folder locked
            raise
        try:
            memos._start()
        except BaseException:
            memos._abandon()
            raise
        return memos

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush the indexes and give everything back; what cannot be flushed is replayed at the next open."""
        if self._closed:
            return
        try:
            self._scheduler.ask_to_stop()  # first: a task whose training ends now is given back, and not failed
            self._parts.trainings.end(lambda _: False)
            self._scheduler.stop()
            self._worker.ask_to_stop()
            if self._parts.building is not None:
                self._parts.building.stop_building()
            self._worker.stop()
            for projection in (self._vector, self._graph):
                if projection.drain(self.settings.index.wait_s):
                    with suppress(BackendUnavailable):
                        projection.flush()
        finally:
            self._abandon()

    def _drop_adapters(self, cubes: Collection[str]) -> Sequence[Forgotten]:
        """Remove the files of adapters that are no more, these from the models that have them, and these cubes' KV."""
        gone = self._parts.forget_adapters(())
        self._parts.activations.forget(cubes)
        self._parts.take_back()
        return gone

    def _adapter_base(self) -> str | None:
        """Return by its digest the model that adapters answer on: the one here, which is loaded, or behind an endpoint.

        The latter has the digest that the base had when an adapter was trained on it last, "" before.
        """
        if (local := self.settings.local_chat) is not None:
            return self._parts.activations.base(local)
        if (learning := self.settings.learning_model) is None:
            return None
        with self.ledger.read() as connection:
            return adapter_rows.newest_base(connection, str(learning.model)) or ""

    @property
    def asker(self) -> Asker | None:
        """What answers in a chat, None when no chat model is configured. Raises: BackendUnavailable (closed)."""
        self._check_open()
        return self._parts.askers.chat

    @property
    def model_here(self) -> ChatModel:
        """The configured chat model, which is one in this process. Raises: InvalidInput, BackendUnavailable."""
        self._check_open()
        return self._parts.activations.model(self.settings.chat_model)

    def _chat_asker(self, model: str | None) -> Asker | None:
        """Return what answers in a chat: the model in this process that is named, else the configured one."""
        if model is None or model == self.settings.chat_model.model:
            return self.asker
        self._check_open()
        settings = self.settings.chat_model.model_copy(update={"base_url": None, "model": model})
        if settings.local is None or not settings.local:
            raise InvalidInput("model", "must be local: and a folder or a hub name; others are set, not named")
        return self._parts.askers.of(settings)

    @property
    def reader(self) -> Asker | None:
        """What reads facts out of messages, None when no model does. Raises: BackendUnavailable (closed)."""
        self._check_open()
        return self._parts.askers.reader

    # Adding and changing

    def add(  # noqa: PLR0913 - the wire contract names them all
        self,
        messages: Json,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        conversation: str | None = None,
        tags: Sequence[str] = (),
        info: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        mode: str = Mode.ROUGH,
        tools: Json = None,
    ) -> AddReceipt:
        """Store a string, a message or a list of messages; committed and searchable when it returns.

        A message id the conversation has, or a repeated idempotency key, stores nothing twice. With `mode="fine"` the
        messages are read into facts in the background; the receipt names the task. `tools` are the definitions of
        tools that were at hand, in OpenAI's shape.
        Raises: InvalidInput, NotFound (cube), Conflict (same id, other content), BackendUnavailable (disk full).
        """
        with self.listeners.call("add") as clock:
            return self._adding.add(
                messages, self._scopes.of([cube], actor, right=Right.WRITE), conversation=conversation, tags=tags,
                info=info, idempotency_key=idempotency_key, mode=mode, tools=tools, clock=clock,
            )  # fmt: skip

    def update(
        self,
        item: str,
        memory: str | None = None,
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        expected_version: int | None = None,
        reason: str = "updated",
        **fields: Any,
    ) -> Item:
        """Write an item's next version: other text, tags, info, key, value, confidence, tier, status or validity.

        What is masked in it says so in its place, and the cube's event `mask` counts it by kind.
        Raises: NotFound, Conflict (it is no longer at `expected_version`), InvalidInput.
        """
        scope = self._scopes.of_item(item, cube, actor, right=Right.WRITE)
        expected_version = None if expected_version is None else version_of("expected_version", expected_version)
        masking = self._scopes.masking(scope)
        given = masking.fields({**({} if memory is None else {"memory": memory}), **fields})
        edits, reason = (
            edits_of(given, self.settings.limits),
            masking.text("reason", check_text("reason", reason, 1000)),
        )
        memory = edits.get("memory")
        with self._change(scope) as change:
            if memory is not None:
                # What was read out of the old text must not stand for the new one.
                before = items.require(change.connection, scope.cubes, item)
                zone = ZoneInfo(scope.time_zone)
                edits = {**fast.stated(memory, before.speaker, before.role, before.said_at, zone), **edits}
            changes.update(change, item, expected_version, edits, reason)
            masking.record(change)
            if memory is not None:
                withdraw(change, [item])
        self._settle()
        return self.get(item, cube=scope.cubes[0], actor=actor)

    def feedback(
        self,
        text: str,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        speaker: str | None = None,
        conversation: str | None = None,
        item_ids: Sequence[str] = (),
        chat_time: Json = None,
    ) -> FeedbackReceipt:
        """Take a correction in plain words ("no, I moved to Lyon in May") as the newest statement.

        It is linked to `item_ids`, else to what a search finds; items whose key it matches with another value
        become superseded. Raises: InvalidInput, NotFound.
        """
        scope = self._scopes.of([cube], actor, right=Right.WRITE)
        ids = ids_of(item_ids, least=0)
        conversation = None if conversation is None else check_name("conversation", conversation)
        message: dict[str, Json] = {"role": "user", "content": text, "chat_time": chat_time}
        if speaker is not None:
            message["name"] = speaker
        zone, masking = ZoneInfo(scope.time_zone), self._scopes.masking(scope)
        conversation = None if conversation is None else masking.name("conversation", conversation)
        message = masking.fields(message, "feedback")
        read = read_messages([message], zone, self.clock.now(), self.settings.limits)
        [draft] = fast.read(read, (FEEDBACK,), {}, zone)
        for item_id in ids:
            self.get(item_id, cube=cube, actor=actor)
        related = ids or self._related(draft.memory, scope)
        with self._change(scope) as change:
            receipt = correct(change, draft, related, conversation, self._scheduler.rules.short_capacity)
            masking.record(change)
        return replace(receipt, indexed=self._settle(), masked=masking.masked)

    def delete(
        self, item_ids: str | Sequence[str], *, cube: str | None = None, actor: str = LOCAL_OWNER,
        reason: str = "deleted",
    ) -> tuple[str, ...]:  # fmt: skip
        """Take items out of sight; `rollback` brings them back. All or none. Raises: NotFound, InvalidInput."""
        ids = ids_of(item_ids)
        scope = self._scopes.of_item(ids[0], cube, actor, embeds=False, right=Right.WRITE)
        with self._change(scope) as change:
            deleted = changes.delete(
                change, ids, self._scopes.masking(scope).text("reason", check_text("reason", reason, 1000))
            )
            withdraw(change, [state.id for state in deleted])
        self._settle()
        return tuple(state.id for state in deleted)

    def rollback(
        self, item: str, to_version: int, *, cube: str | None = None, actor: str = LOCAL_OWNER,
        expected_version: int | None = None,
    ) -> Item:  # fmt: skip
        """Write a new version equal to an old one. Raises: NotFound, Conflict."""
        scope = self._scopes.of_item(item, cube, actor, right=Right.WRITE)
        to_version = version_of("to_version", to_version)
        expected_version = None if expected_version is None else version_of("expected_version", expected_version)
        with self._change(scope) as change:
            documents.check_rollback(change, item)
            changes.rollback(change, item, to_version, expected_version, f"rolled back to version {to_version}")
            withdraw(change, [item])
        self._settle()
        return self.get(item, cube=scope.cubes[0], actor=actor)

    def erase(
        self, item_ids: str | Sequence[str], *, cube: str | None = None, actor: str = LOCAL_OWNER, wait: bool = True
    ) -> EraseReceipt:
        """Remove items in every form, with what was derived from them; a receipt without content stays.

        With `wait` it returns when files and logs are purged too, else the receipt says `purging` and the
        background finishes. Raises: NotFound, InvalidInput, BackendUnavailable (rows gone, files still purging).
        """
        ids = ids_of(item_ids)
        scope = self._scopes.of_item(ids[0], cube, actor, embeds=False, right=Right.WRITE)
        with self._change(scope) as change:
            receipt = erase.erase(change, ids)
        return self._finish_erasure(receipt, wait=wait)

    def erase_receipt(self, receipt_id: str, *, actor: str = LOCAL_OWNER) -> EraseReceipt:
        """Return an erasure's receipt as it stands now. Raises: NotFound."""
        self._check_open()
        readable = self._guard.readable(check_name("actor", actor, 128))
        receipt = erase.find(self.ledger, check_name("receipt", receipt_id, 64))
        if receipt is None or (readable is not None and receipt.cube not in readable):
            raise NotFound("receipt", receipt_id)
        return receipt

    # Reading

    @repeated
    def search(  # noqa: PLR0913 - the wire contract names them all
        self,
        query: str,
        *,
        cubes: Sequence[str] = (DEFAULT_CUBE,),
        actor: str = LOCAL_OWNER,
        top_k: int = 10,
        filter: Mapping[str, Json] | None = None,
        as_of: Json = None,
        reference_time: Json = None,
        token_budget: int | None = None,
        explain: bool = False,
        rerank: bool | None = None,
    ) -> SearchResult:
        """Return the best memories for a question, with sources.

        `as_of` searches what was recorded then; `reference_time` (default now) is when the question is asked:
        what had ended by then is left out. With `token_budget` the hits that fit come with a ready text.
        Relative dates in the question ("last week") are counted from the reference time. With `rerank` the first
        candidates are read again by the reranker; without saying so they are where one is configured.
        Raises: InvalidInput, NotFound (cube).
        """
        with self.listeners.call("search") as clock:
            scope = self._scopes.of(cubes, actor)
            request = self._question(query, scope, top_k, filter, as_of, reference_time, token_budget, explain, rerank)
            result = self._searcher.search(request, clock)
            self._scheduler.found(result.hits)
        return result

    def recall(  # noqa: PLR0913 - what `search` takes
        self,
        query: str,
        limits: Mapping[str, int],
        *,
        cubes: Sequence[str] = (DEFAULT_CUBE,),
        actor: str = LOCAL_OWNER,
        filter: Mapping[str, Json] | None = None,
        relevance: float = 0.0,
        reference_time: Json = None,
        rerank: bool | None = None,
    ) -> dict[Kind, tuple[Hit, ...]]:
        """Return the best memories of each kind in `limits` (memory, preference, tool, skill), so many of each.

        Hits below the least `relevance` are left out. Raises: InvalidInput, NotFound (cube).
        """
        wanted = {member_of("limits", kind, Kind): limit for kind, limit in limits.items()}

        def searching(most: int, of_kind: Mapping[str, Json]) -> SearchResult:
            return self.search(
                query, cubes=cubes, actor=actor, top_k=most, filter=of_kind, reference_time=reference_time,
                rerank=rerank,
            )  # fmt: skip

        return recall(searching, wanted, filter, relevance)

    @repeated
    def why_not(  # noqa: PLR0913 - what `search` takes
        self,
        item: str,
        query: str,
        *,
        cubes: Sequence[str] | None = None,
        actor: str = LOCAL_OWNER,
        top_k: int = 10,
        filter: Mapping[str, Json] | None = None,
        as_of: Json = None,
        reference_time: Json = None,
        token_budget: int | None = None,
        rerank: bool | None = None,
    ) -> WhyNot:
        """Say at which stage of such a search an item falls out, or at which place it is found.

        Without `cubes` the item's own cube is searched. Raises: InvalidInput, NotFound (cube, item).
        """
        own = self._scopes.of_item(item, None, actor)
        scope = own if cubes is None else self._scopes.of(cubes, actor)
        if not set(own.cubes) & set(scope.cubes):
            return WhyNot(item, "cube", f"it is in the cube {own.cubes[0]}, which was not searched")
        request = self._question(query, scope, top_k, filter, as_of, reference_time, token_budget, True, rerank)
        with self.ledger.read() as connection:
            state = items.current(connection, scope.cubes, [item], request.as_of).get(item)
            if state is None:
                items.require(connection, scope.cubes, item)
                raise NotFound("item", item, f"There was no such item yet at {request.as_of}.")
        return why_not(self._searcher, request, state)

    @repeated
    def get(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Item:
        """Return an item's current state with its sources. Raises: NotFound (also when deleted or erased)."""
        scope = self._scopes.of_item(item, cube, actor, embeds=False)
        with self.ledger.read() as connection:
            state = items.require(connection, scope.cubes, item)
            if state.status is Status.DELETED:
                raise NotFound("item", item, "It is deleted; `memos rollback` brings it back.")
            return replace(state, sources=items.sources_of(connection, [item]).get(item, ()))

    @repeated
    def list(
        self,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        filter: Mapping[str, Json] | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Items:
        """Return a cube's items that pass the filter, oldest first; deleted ones only when the filter names status."""
        return listed(self.ledger, self._scopes.of([cube], actor, embeds=False), filter, limit, offset)

    @repeated
    def page(
        self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, filter: Mapping[str, Json] | None = None,
        limit: int = 100, offset: int = 0,
    ) -> Page:  # fmt: skip
        """Return items as `list` does, the newest first, with sources, and how many there are. Raises: NotFound."""
        return page(self.ledger, self._scopes.of([cube], actor, embeds=False), filter, limit, offset)

    def rerank(self, query: str, documents: Sequence[str], *, top_n: int | None = None) -> Reranked:
        """Return texts in the order in which they answer a question, by the reranker, else by vectors and words.

        Raises: InvalidInput, ModelError, BackendUnavailable, BackendTimeout.
        """
        self._check_open()
        given = check_given(query, documents, self.settings.limits, top_n)
        if self._parts.reranker is not None:
            return by_reranker(given, self._parts.reranker)
        return by_vectors_and_words(given, self.embedder, self._parts.terms)

    @repeated
    def segments(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = 100) -> tuple[Segment, ...]:
        """Return the topics of a cube's older pages with their summaries, the hottest first. Raises: NotFound."""
        scope = self._scopes.of([cube], actor, embeds=False)
        return tuple(self._scheduler.segments(scope.cubes[0], within("limit", limit, 1, 10_000)))

    def pin(self, id_: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, pinned: bool = True) -> None:
        """Keep an item in working memory, or a segment out of the archive; undo it with `pinned=False`.

        Raises: NotFound.
        """
        with self._change(self._scopes.of([cube], actor, embeds=False, right=Right.WRITE)) as change:
            self._scheduler.pin(change, check_name("id", id_, 64), pinned=pinned)
        self._scheduler.runner.wake()

    def move(self, segment: str, tier: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> None:
        """Send a segment by hand: `long` has its pages read now, `archive` ranks it lower, `mid` brings it back.

        Raises: NotFound, InvalidInput, Conflict (pages not read yet may not go into the archive).
        """
        with self._change(self._scopes.of([cube], actor, right=Right.WRITE)) as change:
            self._scheduler.move(change, check_name("segment", segment, 64), tier)
        self._scheduler.runner.wake()

    @repeated
    def working_memory(
        self, conversation: str | None = None, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER,
        max_tokens: int = 1_000,
    ) -> WorkingMemory:  # fmt: skip
        """Return the small set a prompt begins with: pinned, instructions, preferences, topic, hottest related facts.

        Raises: NotFound, InvalidInput.
        """
        scope = self._scopes.of([cube], actor)
        name = None if conversation is None else check_name("conversation", conversation)
        name = None if name is None else self._scopes.masking(scope).name("conversation", name)

        def related(cube: str, text: str) -> SearchResult:
            kinds = {"type": {"in": [str(kind) for kind in FACTS]}}
            request = self._question(text, scope, _RELATED_FACTS, kinds, None, None, None, False, False)
            return self._searcher.search(request)

        compose = Compose(self.ledger, related, self.clock.now())
        return compose(scope.cubes[0], name, within("max_tokens", max_tokens, 1, 1_000_000))

    def analyse(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, everything: bool = False) -> None:
        """Have pages read into long-term memory in the background: those of hot segments, or all there are.

        Wait for it with `memos.tasks.wait()`. Raises: NotFound.
        """
        with self._change(self._scopes.of([cube], actor, right=Right.WRITE)) as change:
            self._scheduler.analyse(change, everything=everything)
        self._scheduler.runner.wake()

    def read_finely(
        self, conversation: str | None = None, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER
    ) -> tuple[str, ...]:
        """Have messages that were added roughly read into facts: those of a conversation, or all of a cube.

        Returns the first task of each conversation; what was read finely is not read again. Raises: NotFound.
        """
        name = None if conversation is None else check_name("conversation", conversation)
        return self._fine_reading.want(self._scopes.of([cube], actor, right=Right.WRITE), name)

    @repeated
    def receipt(self, idempotency_key: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> AddReceipt:
        """Return what the add with an idempotency key stored. Raises: NotFound (also when it was erased since)."""
        scope = self._scopes.of([cube], actor, embeds=False)
        key = check_name("idempotency_key", idempotency_key)
        with self.ledger.read() as connection:
            found = changes.receipt_of(connection, scope.cubes[0], key)
        if found is None:
            raise NotFound("add with the key", key)
        return found

    @repeated
    def extractions(
        self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER
    ) -> tuple[ExtractionRecord, ...]:
        """Return what read a message into facts, or read a fact: patterns or a model with its answer, and when.

        Raises: NotFound.
        """
        return self._fine_reading.records(item, self._scopes.of_item(item, cube, actor, embeds=False))

    def used(
        self, item_ids: str | Sequence[str], *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER,
        confirmed: bool = False,
    ) -> None:  # fmt: skip
        """Say that an answer was made from these items, or, `confirmed`, that a person called them right: they get hot.

        Counted in memory and written within seconds; unknown ids count nothing. Raises: NotFound (cube), InvalidInput.
        """
        scope = self._scopes.of([cube], actor, embeds=False)
        access = Access.CONFIRMED if confirmed else Access.CITED
        self._scheduler.used(scope.cubes[0], ids_of(item_ids), access)

    def consolidate(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> None:
        """Have a cube's facts put in order in the background: one current value a key, doubles joined.

        It happens once a day by itself. Raises: NotFound.
        """
        with self._change(self._scopes.of([cube], actor, right=Right.WRITE)) as change:
            self._scheduler.consolidate(change)
        self._scheduler.runner.wake()

    def reflect(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> None:
        """Have the chat model conclude in the background what several facts of a cube show together, with sources.

        Raises: NotFound, InvalidInput (no model).
        """
        with self._change(self._scopes.of([cube], actor, right=Right.WRITE)) as change:
            self._scheduler.reflect(change)
        self._scheduler.runner.wake()

    @repeated
    def derived(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Items:
        """Return the items made out of an item, deleted ones not, by id: facts of a message. Raises: NotFound."""
        scope = self._scopes.of_item(item, cube, actor, embeds=False)
        with self.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            made = items.current(connection, scope.cubes, sorted(items.derived_from(connection, [item])))
        return [made[id_] for id_ in sorted(made) if made[id_].status is not Status.DELETED]

    @repeated
    def history(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Versions:
        """Return every version of an item, deleted or not: who, when, why, before and after. Raises: NotFound."""
        scope = self._scopes.of_item(item, cube, actor, embeds=False)
        with self.ledger.read() as connection:
            return items.history(connection, scope.cubes, item)

    @repeated
    def overview(
        self, cubes: Sequence[str] | None = None, *, actor: str = LOCAL_OWNER, since: Overview | None = None
    ) -> Overview:
        """Return how full the tiers are, what the background does and how fast; without `cubes` of the busiest.

        Rates are those since an earlier overview, else of the last minute. Raises: InvalidInput, NotFound (cube).
        """
        self._check_open()
        named = self._scopes.known(cubes, actor, Right.READ)
        return overview(self.ledger, self._scheduler, Asked(self.clock.now(), named, since))

    # Upkeep

    def verify(
        self, *, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER, repair: bool = False
    ) -> VerifyReport:
        """Compare the ledger with itself and both indexes; with `repair` bring the indexes back to it.

        Without `cubes` all of them, which is for admins. Raises: NotFound, PermissionDenied.
        """
        if cubes is None and not self._every_cube(actor):
            return VerifyReport(0, {}, (), 0)
        scope = self._scopes.of(self._every_cube(actor) if cubes is None else cubes, actor)
        return self._upkeep.verify(scope.cubes, repair=repair, strangers=cubes is None)

    def reindex(
        self,
        *,
        cubes: Sequence[str] | None = None,
        actor: str = LOCAL_OWNER,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Build both indexes of these cubes anew from the ledger; return how many items. Raises: BackendUnavailable."""
        scope = self._scopes.of(self._every_cube(actor) if cubes is None else cubes, actor, right=Right.OWN)
        self._parts.check_space()
        return self._upkeep.repair.reindex(scope.cubes, on_progress)

    def reembed(self, *, actor: str = LOCAL_OWNER, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Give every cube vectors of the configured embedder; return how many items. Raises: BackendUnavailable.

        The old vectors stay until the new ones are complete; an interrupted run goes on at the next open.
        """
        self._check_open()
        self._guard.check_admin(check_name("actor", actor, 128))
        self._scopes.forget()
        count = self._upkeep.reembed(on_progress)
        self._scopes.forget()
        self._start_working()
        return count

    def check_ready(self) -> None:
        """See that calls can be served: open, and the ledger answers. Raises: BackendUnavailable."""
        self._check_open()
        with self.ledger.read() as connection:
            connection.scalar(sa.select(1))

    def catch_up(self, *, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Have both indexes show everything the ledger has. Raises: BackendUnavailable."""
        self._check_open()
        self._upkeep.catch_up(on_progress)

    def finish_erasures(self) -> None:
        """Finish now what erasures left to the background. Raises: BackendUnavailable."""
        self._check_open()
        self._upkeep.purge()

    def backup(self, folder: str | Path, *, on_progress: Callable[[int, int], None] | None = None) -> Manifest:
        """Write a backup of one moment into a new folder while work goes on; its files hold memory text.

        Raises: Conflict (the folder holds something), InvalidInput, PermissionDenied, BackendUnavailable (disk full).
        """
        self._check_open()
        return self._upkeep.backup(Path(folder), on_progress)

    def backups(self) -> tuple[KnownBackup, ...]:
        """Return the backups that were made and not forgotten, oldest first."""
        self._check_open()
        return tuple(known_backups.known(self.ledger))

    def forget_backup(self, folder: str | Path) -> None:
        """Leave a backup that is no more out of later receipts. Raises: NotFound, Conflict (it is still there)."""
        self._check_open()
        known_backups.forget(self.ledger, Path(folder))

    # Inside

    def _question(  # noqa: PLR0913, PLR0917 - what `search` takes
        self, query: str, scope: Scope, top_k: int, raw_filter: Json, as_of: Json, reference_time: Json,
        token_budget: int | None, explain: bool, rerank: bool | None,
    ) -> SearchRequest:  # fmt: skip
        """Check what a search was asked. Raises: InvalidInput."""
        limits, now, zone = self.settings.limits, self.clock.now(), ZoneInfo(scope.time_zone)
        text = check_text("query", query, limits.query_chars * 4)
        if not text.strip():
            raise InvalidInput("query", "is empty; ask something")
        if len(text) > limits.query_chars:
            raise InvalidInput("query", f"has {len(text):,} characters, at most {limits.query_chars:,} are taken")
        moment = None if as_of is None else read_time("as_of", as_of, zone, now)
        return SearchRequest(
            query=text,
            scope=scope,
            top_k=within("top_k", top_k, 1, limits.top_k),
            filter=parse(raw_filter),
            as_of=moment,
            reference_time=read_time("reference_time", reference_time, zone, moment or now),
            zone=zone,
            token_budget=None if token_budget is None else within("token_budget", token_budget, 1, 10_000_000),
            explain=explain,
            rerank=self._wants_reranker(rerank),
        )

    def _wants_reranker(self, rerank: bool | None) -> bool:
        if rerank is None:
            return self._reranker is not None
        if not isinstance(rerank, bool):
            raise InvalidInput("rerank", "must be true or false, or left out")
        if rerank and self._reranker is None:
            raise InvalidInput("rerank", "is wanted and there is no reranker: set MEMOS_RERANK__MODEL, or leave it out")
        return rerank

    def _start(self) -> None:
        with self.ledger.read() as connection:
            known = [cube.fingerprint for cube in cube_rows.list_all(connection)]
        if not known:
            with suppress(Conflict):  # another process opens the same new ledger
                self.cubes.create(DEFAULT_CUBE, description="the cube of calls that name none")
        elif any(fingerprint != self.embedder.fingerprint for fingerprint in known):
            # Until `reembed` only calls without vectors are served, and the cubes' own indexes stay as they are.
            self._forget_adapters()
            return
        self._upkeep.use_my_vectors()
        self._upkeep.repair.lost_writes()
        self._forget_adapters()
        self._start_working()

    def _forget_adapters(self) -> None:
        """Remove what a restore, or a kill, left without rows: it has what was taught in words."""
        if (folder := self._parts.adapters) is not None:
            remove_ended(self.ledger, folder)
        with suppress(BackendUnavailable):  # the next purge is told again
            self._parts.forget_adapters(())

    def _start_working(self) -> None:
        self._worker.start()
        self._scheduler.start()

    def _abandon(self) -> None:
        self._closed = True
        self._helper.shutdown()
        if self._reranker is not None:
            self._reranker.close()
        self._parts.close()

    def _check_open(self) -> None:
        if self._closed:
            raise BackendUnavailable("This MemOS is closed; open it again with MemOS.open().")

    def _every_cube(self, actor: str) -> tuple[str, ...]:
        self._scopes.check_admin(actor)
        return self._upkeep.cubes()

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        self._check_open()
        self._parts.check_space()
        self.ledger.renew_hold()  # what others may be doing alone must not be disturbed, nor followed by halves
        with self.ledger.write() as connection:
            self.idempotency.note(connection)
            yield connection

    @contextmanager
    def _change(self, scope: Scope) -> Iterator[Change]:
        if scope.right is Right.READ:
            raise PermissionDenied(f"{scope.actor!r} asked to read; that changes nothing.")
        with self._writing() as connection:
            yield changes.begin(connection, scope.cubes[0], scope.actor, self.clock, self.quotas.charge)

    def _settle(self) -> bool:
        """Have the indexes follow within the time a caller waits; True when they did."""
        wait_s = self.settings.index.wait_s
        vector, graph = self._vector.drain(wait_s), self._graph.drain(wait_s)
        return vector and graph

    def _related(self, text: str, scope: Scope) -> Ids:
        found = self.search(
            text[: self.settings.limits.query_chars], cubes=scope.cubes, actor=scope.actor, top_k=_RELATED_BY_SEARCH,
            rerank=False,
        )  # fmt: skip
        return [hit.item.id for hit in found.hits]

    def _finish_erasure(self, receipt: EraseReceipt, *, wait: bool) -> EraseReceipt:
        if not wait:
            return receipt
        self._upkeep.purge()
        return erase.find(self.ledger, receipt.id) or receipt
