"""`MemOS`: one open installation and its services."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Self

from memos.core.clock import Clock, SystemClock
from memos.core.lora import recipe_with
from memos.core.ports import ChatModel, Embedder, Reranker
from memos.core.settings import Settings
from memos.core.telemetry import Listeners
from memos.core.types import DEFAULT_CUBE
from memos.errors import BackendUnavailable, Conflict
from memos.kernel.access.audit import Audit
from memos.kernel.access.guard import AccessControl
from memos.kernel.access.service import Keys, Sharing, Users
from memos.kernel.access.sessions import Sessions
from memos.kernel.activity import Activity
from memos.kernel.adapters.service import AdapterService
from memos.kernel.adapters.serving import AdapterRemoval
from memos.kernel.adapters.training import AdapterTraining, LearningTasks
from memos.kernel.adapters.transfer import AdapterArrival, remove_ended
from memos.kernel.browsing import Browsing
from memos.kernel.chat.chat import Chat
from memos.kernel.chat.prompts import Recalling
from memos.kernel.context import Context, Lifecycle, Scopes
from memos.kernel.conversations import Conversations
from memos.kernel.cubes import Cubes, KnowledgeBases
from memos.kernel.documents import Documents, Images
from memos.kernel.erasures import Erasures
from memos.kernel.evaluation import EvaluationService
from memos.kernel.events import Events
from memos.kernel.former_names import FormerNames
from memos.kernel.graph import Graph
from memos.kernel.health import Health
from memos.kernel.idempotency import Idempotency, Submissions
from memos.kernel.kv import KvService
from memos.kernel.local_models import Models
from memos.kernel.maintenance import Maintenance
from memos.kernel.memories import Memories
from memos.kernel.opening import OpenedInstallation, open_installation
from memos.kernel.profiles import Profiles
from memos.kernel.records import Records
from memos.kernel.retention import Retention
from memos.kernel.review import Review
from memos.kernel.search import SearchService
from memos.kernel.statistics import Statistics
from memos.kernel.subjects import Subjects
from memos.kernel.tasks import Tasks
from memos.kernel.tiers import Tiers
from memos.kernel.timeline import Timeline
from memos.kernel.tools import Tools
from memos.kernel.transfer import Transfer
from memos.memcube.ledger import cubes
from memos.memcube.ledger.files import READ
from memos.memcube.prompt_prefix import COMPOSE
from memos.scheduler.index_worker import Worker
from memos.scheduler.jobs.files import ReadFileJob
from memos.scheduler.jobs.prefix import ComposeJob
from memos.scheduler.jobs.retention import RetentionJob
from memos.scheduler.learning import SimilarFacts
from memos.scheduler.scheduler import Scheduler
from memos.scheduler.task import Job


class MemOS(FormerNames):
    """An open installation. Thread-safe; close it, or use it as a context manager."""

    def __init__(self, installation: OpenedInstallation | None = None) -> None:
        installation = _opened(installation)
        settings, ledger, clock = installation.settings, installation.ledger, installation.clock
        self.home, self.settings, self.clock, self.ledger = installation.home, settings, clock, ledger
        self.embedder, self.quotas = installation.embedder, installation.quotas
        self.listeners = Listeners()
        self._installation = installation
        writes_files = bool(installation.files) or ledger.is_sqlite
        self._lifecycle = Lifecycle(settings, installation.home if writes_files else None)
        access = AccessControl(ledger)
        self.idempotency = Idempotency(ledger, clock, self._lifecycle.check_open)
        context = self._context = Context(
            settings=settings,
            clock=clock,
            ledger=ledger,
            key=installation.key,
            scopes=Scopes(ledger, access, installation.embedder.fingerprint, settings, self._lifecycle, clock),
            access=access,
            quotas=installation.quotas,
            indexes=installation.indexes,
            idempotency=self.idempotency,
            lifecycle=self._lifecycle,
        )
        self.activity = Activity(context, self.listeners.recent)
        self._removal = AdapterRemoval(
            ledger,
            clock,
            settings,
            installation.adapters,
            installation.trainings,
            installation.activations,
            installation.keep_adapters,
        )
        self.maintenance = Maintenance(
            context, installation, self._removal, self._start_background, self.listeners.slow
        )
        self._scheduler = self._new_scheduler()
        wake = self._scheduler.runner.wake

        self.search = SearchService(context, installation, self._scheduler, self.listeners)
        self.tiers = Tiers(context, self._scheduler, self.search)
        self.memories = Memories(
            context,
            self.maintenance,
            self.search,
            self._scheduler.rules.short_capacity,
            self.listeners,
            installation.web_images,
        )
        self.add = self.memories.add
        self.get = self.memories.get
        self.update, self.delete = self.memories.update, self.memories.delete
        self.feedback, self.context = self.memories.feedback, self.tiers.context
        self.erase = self.purge = self.memories.erase
        self.records = Records(context, self.search, self.listeners)
        self.conversations, self.profiles = Conversations(context), Profiles(context)
        self.graph, self.timeline = Graph(context), Timeline(context)
        self.tools, self.images, self.review = Tools(context), Images(context), Review(context)
        self.documents = Documents(context, wake, self.maintenance.finish_erasure, installation.web_files)
        self.retention, self.sharing = Retention(context, self.maintenance.purge), Sharing(context)

        self.erasures = Erasures(context, installation, self.memories.erase_receipt)
        self.subjects = Subjects(context, self.maintenance)
        self.cubes = Cubes(context, self.maintenance.finish_erasure)
        self.knowledge = KnowledgeBases(context, self.documents, self.cubes)
        self.users = Users(context, self.cubes.create_home)
        self.keys, self.sessions, self.audit = Keys(context), Sessions(context), Audit(context)
        self.tasks, self.events = Tasks(context, self._scheduler.runner), Events(context)
        self.submissions, self.health = Submissions(context), Health(context, installation, self.listeners.slow)
        self.statistics = Statistics(
            context, self._scheduler, installation.askers, lambda: (self.embedder.hits, self.embedder.misses)
        )

        self.models = Models(context, installation.askers, installation.activations)
        self.kv = KvService(context, installation.activations, self.models, wake)
        self.browse = Browsing(context, self._scheduler, installation.activations.blocks_of)
        self.chat = Chat(context, self.models, self.memories, self.tiers, Recalling(context, self.search, self.tiers))
        self.evaluation = EvaluationService(context, self.memories, self.search, installation)
        self.adapters, learning_jobs = self._new_adapters()
        self.transfer = Transfer(context, installation, AdapterArrival(lambda: self.adapters.training))

        compose = Job(COMPOSE, ComposeJob.by(settings, installation.activations.forget).run, budgeted=False)
        self._scheduler.runner.register([compose, self.kv.job(), *learning_jobs])
        self._worker = Worker(
            context.indexes.projections,
            (
                self.maintenance.purge,
                self.maintenance.optimise,
                self._scheduler.accesses.flush_if_due,
                self.maintenance.forget_if_due,
                installation.activations.forget_if_due,
            ),
        )

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

        Args:
            path: The data folder; by default that of the settings.
            settings: Settings; by default those of the environment and the configuration file.
            embedder: Replaces the configured embedder.
            clock: Where the time comes from.
            chat_model: Replaces the configured models for every purpose but vision; it stays the caller's to close.
            vision_model: Describes images; it stays the caller's to close.
            reranker: Replaces the configured reranker.

        Raises:
            BackendUnavailable: Another process has the folder open, the disk is full, or a server is out of reach.
            PermissionDenied: The folder cannot be written.
            IntegrityError: The ledger is damaged, or a newer version made it.
        """
        settings = settings or Settings()
        # Absolute, since a program may change its working directory.
        home = (Path(path) if path is not None else settings.home).absolute()
        installation = open_installation(
            home, settings, embedder, clock or SystemClock(), chat_model, vision_model, reranker
        )
        try:
            memos = cls(installation)
        except BaseException:
            installation.close()  # settings that contradict each other must not keep the folder locked
            raise
        try:
            memos._start()
        except BaseException:
            memos._release()
            raise
        return memos

    @property
    def scratch(self) -> Path | None:
        """The folder in memory for temporary files of an encrypted installation; None for a plain one."""
        vault = self._installation.vault
        return None if vault is None else vault.working

    def close(self) -> None:
        """Flush the indexes and release everything; what cannot be flushed is replayed at the next open."""
        if self._lifecycle.closed:
            return
        try:
            self._scheduler.ask_to_stop()  # first: a task interrupted in training is then released, not failed
            self._installation.trainings.end(lambda _: False)
            self._scheduler.stop()
            self._worker.ask_to_stop()
            if self._installation.building is not None:
                self._installation.building.stop_building()
            self._worker.stop()
            self._context.indexes.following.close()
            for projection in self._context.indexes.projections:
                if projection.drain(self.settings.index.wait_s):
                    with suppress(BackendUnavailable):
                        projection.flush()
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new_scheduler(self) -> Scheduler:
        context, installation = self._context, self._installation
        jobs = [
            Job("retention", RetentionJob(context.change, self.settings.retention_days).run, budgeted=False),
            *self.maintenance.jobs(),
            Job(
                READ,
                ReadFileJob(
                    installation.documents, installation.embedder.split, context.wait_indexed, context.scopes.masking_of
                ).run,
            ),
        ]
        return Scheduler(
            self.ledger,
            self.clock,
            self.settings,
            turns_of=installation.vector_follower.turns_of,
            open_pairs=installation.vector_follower.relations.open_pairs,
            near=SimilarFacts(installation.vector, installation.embedder).of,
            askers=installation.askers,
            wait_indexed=context.wait_indexed,
            masking=context.scopes.masking_of,
            jobs=jobs,
            is_busy=self.listeners.busy,
        )

    def _new_adapters(self) -> tuple[AdapterService, list[Job]]:
        installation, settings = self._installation, self.settings
        training = AdapterTraining(
            self._context,
            settings,
            installation.adapters,
            self._removal.drop,
            installation.trainings,
            installation.new_trainer,
            installation.activations.remembered,
            recipe=recipe_with(settings.parametric.recipe),
            keep=installation.keep_adapters,
        )
        tasks = LearningTasks(lambda: self.adapters.training, self._scheduler.runner.wake)
        return AdapterService(self._context, self._removal, training, tasks.submit), tasks.jobs()

    def _start(self) -> None:
        with self.ledger.read() as connection:
            known = [cube.fingerprint for cube in cubes.list_all(connection)]
        if not known:
            with suppress(Conflict):  # another process opens the same new ledger
                self.cubes.create(DEFAULT_CUBE, description="the cube of calls that name none")
        elif any(fingerprint != self.embedder.fingerprint for fingerprint in known):
            # Until `reembed` only calls without vectors are served, and the cubes' own indexes stay as they are.
            self._forget_adapters()
            return
        self.maintenance.start()
        self._forget_adapters()
        self._start_background()

    def _forget_adapters(self) -> None:
        """Remove adapter files without rows, left by a restore or a kill: they contain training text."""
        if (folder := self._installation.adapters) is not None:
            remove_ended(self.ledger, folder)
        with suppress(BackendUnavailable):  # the next purge reports it again
            self._removal.forget(())

    def _start_background(self) -> None:
        self._worker.start()
        self._scheduler.start()

    def _release(self) -> None:
        self._lifecycle.closed = True
        self.search.close()
        self._installation.close()


def _opened(installation: OpenedInstallation | None) -> OpenedInstallation:
    if not isinstance(installation, OpenedInstallation):
        raise TypeError("Open an installation with MemOS.open(folder).")
    return installation
