"""`MemOS.models`, and the models in this process with the KV cache of their prompts, opened on their first use."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memos.core.clock import Clock
from memos.core.kv_cache import KvShape, KvStats, ServerPrefixCache
from memos.core.ports import ChatModel
from memos.core.settings import ActivationSettings, ChatSettings
from memos.core.types import Status
from memos.errors import BackendUnavailable, InvalidInput, NotFound
from memos.kernel.adapters.serving import AdapterResolver
from memos.kernel.context import Context
from memos.llm.client import LLMClient, LLMClients
from memos.memcube.activation.blocks import Array, Block, Tier, fingerprint_of
from memos.memcube.activation.prefill import PrefillEngine
from memos.memcube.activation.store import BlockStore
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import cubes, items
from memos.memcube.ledger.engine import Ledger

if TYPE_CHECKING:
    from memos.backends.local.loading import Loaded
    from memos.backends.local.models import TransformersModels
    from memos.memcube.encryption.vault import BlockSealer

FOLDER = "activation"
# Who erases elsewhere does not wait for this process; what is left here is found by nobody who does not send it.
_LOOK_S = 10.0
DEVICE_BYTES = 2 * 2**30  # most bytes of KV kept on a GPU


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where files of models are: KV in `home` and LoRA adapters, None where there are none; `sealer` encrypts KV."""

    home: Path | None
    adapters: Path | None
    sealer: BlockSealer | None = None


class LocalModels:
    """Language models in this process and the cache of their KV. Thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        settings: ActivationSettings,
        files: ModelFiles,
        backend: TransformersModels,
        server_stats: Callable[[ChatSettings], ServerPrefixCache],
    ) -> None:
        """`server_stats` asks the endpoint of a model what it says of its prefix cache."""
        self.server_stats = server_stats
        self._ledger = ledger
        self._clock = clock
        self._settings = settings
        self._backend = backend
        self._folder = None if files.home is None else files.home / FOLDER
        self._adapters = files.adapters
        self._sealer = files.sealer
        self._lock = threading.Lock()
        self._store: BlockStore | None = None
        self._loaded: dict[str, Loaded] = {}
        # One for all that ask it: they take turns.
        self._models: dict[ChatSettings, ChatModel] = {}
        self._closed = False
        self._look_at = 0.0

    def model(self, settings: ChatSettings) -> ChatModel:
        """Return the model of a `local:` setting. Raises: InvalidInput (the extra, the model), BackendUnavailable."""
        assert settings.local is not None
        with self._lock:
            if (known := self._models.get(settings)) is not None:
                return known
            loaded = self._loaded.get(settings.local)
            if loaded is None:
                loaded = self._loaded[settings.local] = self._backend.load(settings, self.remembered)
            lending = AdapterResolver(self._ledger, self._adapters, partial(self._fill_of, loaded))
            fill = self._fill_of(loaded)
            return self._models.setdefault(settings, self._backend.chat_model(loaded, settings, fill, lending))

    @property
    def remembered(self) -> Path | None:
        return None if self._folder is None else self._folder / "weights.json"

    def base(self, settings: ChatSettings) -> str:
        """Return the base digest of a `local:` model, which its adapters must match. Raises: as `model`."""
        self.model(settings)
        with self._lock:
            loaded = self._loaded.get(str(settings.local))
        if loaded is None:
            raise BackendUnavailable("This process is shutting down.", permanent=True)
        return loaded.base

    def shape(self, settings: ChatSettings) -> KvShape | None:
        """Return the KV layout of a `local:` model, None if none is cached. Raises: as `model`."""
        self.model(settings)
        with self._lock:
            loaded = self._loaded.get(str(settings.local))
            return None if loaded is None or loaded.unusable is not None else self._shape_of(loaded)

    @contextmanager
    def lend_blocks(self, cube: str) -> Iterator[Iterable[tuple[Block, Array]]]:
        if (live := self._store) is not None:  # holds up nobody else
            with closing(live.lend_blocks(cube)) as found:
                yield found
            return
        with self._stored() as store:
            if store is None:
                yield ()
                return
            with closing(store.lend_blocks(cube)) as found:
                yield found

    def adopt(self, found: Iterable[tuple[Block, Array]], cube: str, shape: KvShape) -> int:
        store = self._store
        if store is None:  # it was closed meanwhile
            return 0
        fits = (shape.fingerprint, cube, shape.dtype, shape.shape)
        return sum(
            store.adopt(block, array)
            for block, array in found
            if (block.fingerprint, block.cube, block.dtype, block.shape) == fits
        )

    def forget(self, erased_in: Collection[str] = ()) -> int:
        """Remove blocks of these cubes, and of cubes or memories that are gone, from all tiers; return how many.

        Includes files of earlier processes; models unload removed adapters. Raises: BackendUnavailable.
        """
        self._forget_adapters()
        with self._stored() as store:
            if store is None:
                return 0
            try:
                return sum(store.drop(cube) for cube in erased_in) + store.reconcile()
            except OSError as error:
                raise BackendUnavailable(
                    f"Blocks of activation memory could not be removed ({error.strerror or error}); check "
                    f"{self._folder}. Erased memories stay in them until they are removed."
                ) from error

    def forget_if_due(self) -> None:
        """Remove what another process on the same ledger erased. Raises: BackendUnavailable."""
        if self._ledger.is_sqlite or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        if self._store is None:  # a model that keeps no KV may have adapters all the same
            self._forget_adapters()
        else:
            self.forget()

    def stats(self) -> KvStats:
        with self._stored() as store:
            return KvStats() if store is None else store.stats()

    def blocks(self, cube: str) -> list[tuple[Block, tuple[Tier, ...], float]]:
        with self._stored() as store:
            return [] if store is None else [each for each in store.blocks() if each[0].cube == cube]

    def blocks_of(self, cube: str, item: str) -> dict[str, int]:
        """Return how many blocks contain an item, by the fastest tier that has each."""
        held = (tiers[0] for block, tiers, _ in self.blocks(cube) if tiers and item in block.items)
        return dict(Counter(str(tier) for tier in held))

    def verify(self) -> list[str]:
        with self._stored() as store:
            return [] if store is None else store.verify()

    @contextmanager
    def _stored(self) -> Iterator[BlockStore | None]:
        with self._lock:
            if self._store is not None or self._closed or self._folder is None or not self._folder.exists():
                yield self._store
                return
            store = self._new_store(None)
            try:
                yield store
            finally:
                store.close()

    def close(self) -> None:
        """Write pending blocks and close the files; safe to call twice."""
        with self._lock:
            self._closed = True
            store, self._store = self._store, None
            self._loaded.clear()
            self._models.clear()
        if store is not None:
            store.close()

    def _new_store(self, loaded: Loaded | None) -> BlockStore:
        device = None if loaded is None else self._backend.device(loaded)
        budgets = {
            Tier.DEVICE: DEVICE_BYTES,
            Tier.HOST: self._settings.host_bytes,
            Tier.DISK: self._settings.disk_bytes,
        }
        return BlockStore(
            budgets, self._clock, folder=self._folder, sealer=self._sealer, device=device, alive=self._alive
        )

    def _alive(self, cube: str, ids: Collection[str]) -> bool:
        with self._ledger.read() as connection:
            try:
                cubes.heads(connection, [cube])
            except NotFound:
                return False
            found = items.current(connection, [cube], list(ids))
        # A superseded memory may still be shown, followed by its replacement.
        return all(id_ in found and found[id_].status is not Status.DELETED for id_ in ids)

    def _forget_adapters(self) -> None:
        def is_there(id_: str) -> bool:
            with self._ledger.read() as connection:
                return adapter_rows.get(connection, id_) is not None

        for loaded in list(self._loaded.values()):
            with loaded.turns():
                loaded.adapters.keep_only(is_there)

    def _fill_of(self, loaded: Loaded, adapter: str = "base") -> PrefillEngine | None:
        if loaded.unusable is not None or self._closed:
            return None
        self._store = self._store or self._new_store(loaded)
        tier = Tier.HOST if self._backend.device(loaded) is None else Tier.DEVICE
        return PrefillEngine(self._shape_of(loaded, adapter), self._store, tier)

    def _shape_of(self, loaded: Loaded, adapter: str = "base") -> KvShape:
        made_by = {**loaded.made_by, "adapter": adapter}
        return KvShape(fingerprint_of(made_by), loaded.dtype, loaded.block, loaded.chunk_blocks)


class Models:
    """The configured language models."""

    def __init__(self, context: Context, askers: LLMClients, activations: LocalModels) -> None:
        self._context = context
        self._askers = askers
        self._activations = activations

    @property
    def chat(self) -> LLMClient | None:
        self._context.lifecycle.check_open()
        return self._askers.chat

    @property
    def reader(self) -> LLMClient | None:
        self._context.lifecycle.check_open()
        return self._askers.reader

    @property
    def local(self) -> ChatModel:
        self._context.lifecycle.check_open()
        return self._activations.model(self._context.settings.chat_model)

    def chat_named(self, model: str | None) -> LLMClient | None:
        """Return the model that a request names: `local:…`, or the configured one. Raises: InvalidInput (any other)."""
        configured = self._context.settings.chat_model
        if model is None or model == configured.model:
            return self.chat
        self._context.lifecycle.check_open()
        settings = configured.model_copy(update={"base_url": None, "model": model})
        if settings.local is None or not settings.local:
            raise InvalidInput("model", "must be `local:` and a folder or hub name, or the configured model")
        return self._askers.of(settings)
