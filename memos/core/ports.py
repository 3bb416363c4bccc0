"""The ports of hippocube: embedder, sparse encoder, indexes, reranker, language model, document reader.

Each docstring is the contract; `tests/contracts/` runs one suite over every implementation. Implementations translate
their driver's errors into `memos.errors`, with `from`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from memos.core.filters import Node
from memos.core.kv_cache import Activation, Prefix
from memos.core.tokens import IMAGE_TOKENS, Tokens, estimate_tokens
from memos.core.types import Arm, Fingerprint, Json
from memos.errors import InvalidInput

Vector = NDArray[np.float32]

_MOST_TOKENS = 100_000_000


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term weights: `indices` int64 (n,), `values` float32 (n,), no index twice."""

    indices: NDArray[np.int64]
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class VectorPoint:
    """An index point: one chunk of one version of one item.

    `payload` holds ids and filter fields, never memory text. It always has `cube`, `item` (str), `version`, `revision`
    (int), `recorded_from` (int, epoch microseconds) and, unless the version is the current one, `recorded_to`; `live`
    is 1 for a current version that searches find, else 0. Dense vectors are float32 `(dimension,)`.
    """

    id: str
    payload: Mapping[str, Json]
    turn: Vector
    window: Vector
    turn_terms: SparseVector
    window_terms: SparseVector


@dataclass(frozen=True, slots=True)
class ArmQuery:
    """A recall arm's question: terms for the BM25 arms, a dense vector for the others.

    STANDING, OF_SELF, NAMED and DATED ask the turn vectors, the first two of points that say so (`STANDING_OF`);
    DATED finds also what points away from the question. With `most` it finds no more, whatever the search's limit.
    """

    arm: Arm
    query: Vector | SparseVector
    most: int | None = None

    def limit(self, limit: int) -> int:
        """Return how many points it finds at most in a search of this limit."""
        return limit if self.most is None else min(limit, self.most)


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """Several arms over the same cubes, filter and moment.

    `as_of` is epoch microseconds: only versions recorded at or before it and not replaced by then;
    None means the current versions. `live` asks for points whose payload says so: current versions with a status
    that searches find. BM25 IDF is computed over `cubes` alone.
    """

    cubes: tuple[str, ...]
    arms: tuple[ArmQuery, ...]
    limit: int
    filter: Node | None = None
    as_of: int | None = None
    live: bool = False


class ScoredPoint(NamedTuple):
    """A recalled point: the item and its version the point was built from, as "item:version", and the score."""

    key: str
    score: float

    @property
    def item(self) -> str:
        """Return the item's id."""
        return self.key.rsplit(":", 1)[0]


class HeldPoint(NamedTuple):
    """A point as an index holds it: the item's revision and the vectors at the index's own precision."""

    revision: int
    turn: Vector
    window: Vector


@dataclass(frozen=True, slots=True)
class Stamp:
    """The revision of an item's point in an index, for `verify`."""

    id: str
    item: str
    revision: int


class Embedder(Protocol):
    """Turns text into unit vectors; thread-safe; equal text gives equal vectors."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Name, dimension, prefix rule and normalisation of the space."""

    @property
    def max_tokens(self) -> int:
        """Tokens one piece may have, special tokens included."""

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return `(len(texts), dimension)` float32 unit vectors in the given order.

        A text longer than `max_tokens` is cut into pieces at token boundaries and its vector is the
        length-weighted mean of theirs: nothing is truncated. An empty list gives shape (0, dimension).
        Raises: ModelError.
        """

    def embed_query(self, text: str) -> Vector:
        """Return the `(dimension,)` float32 unit vector of a question. Raises: ModelError."""

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        """Return character spans of at most `max_tokens` tokens that cover all non-blank text in order."""


class SparseEncoder(Protocol):
    """BM25 term weights; both vector backends use the same one, so that both rank alike."""

    def encode_document(self, text: str) -> SparseVector:
        """Return the saturated term frequencies of a stored text."""

    def encode_query(self, text: str) -> SparseVector:
        """Return the query's terms, weight 1 each; empty when it has no indexable term."""


class Reranker(Protocol):
    """Says how well texts answer a question, each read together with it; thread-safe."""

    @property
    def name(self) -> str:
        """The model's name, as results tell it."""

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return one finite score a text, in the given order: the higher, the better it answers. Any scale.

        A text that is too long is cut, the question is not lost by it. No texts give no scores, and nothing is asked.
        Raises: ModelError (no usable model, or no usable answer), BackendUnavailable, BackendTimeout.
        """


class VectorIndex(Protocol):
    """Dense and sparse search over points with payload filters. Thread-safe.

    Writes are visible to the next search at once and durable after the next `flush`.
    Raises: BackendUnavailable, BackendTimeout from every method.
    """

    @property
    def restart_count(self) -> int:
        """A number that grows whenever the engine restarted and lost its unflushed writes."""

    def upsert(self, points: Sequence[VectorPoint]) -> None:
        """Insert or replace points by id; repeating a call changes nothing."""

    def prune(self, keep: Mapping[str, int | None]) -> None:
        """For each item id delete its points whose `revision` is not the given one; None deletes all."""

    def search(self, request: VectorSearch, meanwhile: Callable[[], None] | None = None) -> list[list[ScoredPoint]]:
        """Return one list per arm, best first, at most `limit` points with a positive score each.

        `meanwhile` is called at most once, while the index works; what it raises is raised. An index may leave it out.
        Raises: InvalidInput when `cubes` is empty.
        """

    def turns(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the turn vectors of those points that are held, by point id, as exact as the index keeps them."""

    def held(self, ids: Sequence[str]) -> dict[str, HeldPoint]:
        """Return those of these points that are held, by point id."""

    def scan(self, cube: str) -> Iterator[Stamp]:
        """Yield what is held of one cube, in no order."""

    def count(self, items: Sequence[str]) -> int:
        """Return how many points there are of these items."""

    def cubes(self) -> list[str]:
        """Return the cubes that have at least one point."""

    def flush(self, mark: int) -> None:
        """Make everything so far durable, then remember `mark` with it."""

    def mark(self) -> int:
        """Return the mark of the last durable flush, 0 for a new index."""

    def close(self) -> None:
        """Release files and processes without flushing; safe to call twice."""


class Rewritable(Protocol):
    """A file-based index that can rewrite its files; a server has no such thing."""

    def rewrite(self) -> None:
        """Rebuild the files from live content, so that no byte of what was deleted is left in them.

        Searches and writes continue meanwhile; returns when the new files are in use and the old ones gone.
        """


class Optimisable(Protocol):
    """An index that can build faster structures in the background."""

    def optimise(self, on_progress: Callable[[str], None] | None = None) -> bool:
        """Build what makes search faster; return True if something changed. Searches and writes continue."""

    def unoptimised(self) -> int:
        """Return how many points were written since the last `optimise`."""

    def optimised(self) -> int:
        """Return how many points the last `optimise` saw."""

    def stop_building(self) -> None:
        """End a running build and refuse new ones; for a program that ends."""


class Generations(Protocol):
    """An index that builds another embedder's vectors while the present ones stay in use."""

    def use(self) -> None:
        """Make this generation the one in use."""

    def remove_others(self) -> list[str]:
        """Delete the generations of embedders no cube uses any more; return their names."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An item in the graph; `previous` is the item said just before it in its conversation.

    `entities` are keyed digests, never names, `links` are (kind, target item id).
    """

    id: str
    cube: str
    revision: int
    conversation: str | None
    previous: str | None
    entities: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


class Graph(Protocol):
    """Find the neighbours of an item. Thread-safe."""

    def adjacent(self, cubes: Sequence[str], seed: str, limit: int) -> list[str]:
        """Return up to `limit` items of `cubes` that stand next to `seed` in its session or are linked to it.

        Raises: BackendUnavailable, BackendTimeout.
        """


class GraphIndex(Graph, Protocol):
    """Items, entities and conversations with their edges. Thread-safe; one writer at a time inside.

    Writes are visible to the next read at once and durable after the next `flush`.
    Raises: BackendUnavailable, BackendTimeout from every method.
    """

    @property
    def restart_count(self) -> int:
        """A number that grows whenever the engine restarted and may have lost unflushed writes."""

    def upsert(self, nodes: Sequence[GraphNode]) -> None:
        """Insert or replace nodes and exactly the edges each node names.

        MENTIONS item->entity, IN item->conversation, NEXT previous->item, and one edge per link. An
        edge's other end may be unknown yet: it is then created as a bare node of the same cube
        (revision 0, not scanned) and filled by its own upsert later.
        """

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items with all their edges, and entities and conversations left without any."""

    def scan(self, cube: str) -> Iterator[Stamp]:
        """Yield (id, id, revision) of every filled node of one cube."""

    def cubes(self) -> list[str]:
        """Return the cubes that have at least one filled node."""

    def flush(self, mark: int) -> None:
        """Make everything so far durable, then remember `mark` with it."""

    def mark(self) -> int:
        """Return the mark of the last durable flush, 0 for a new index."""

    def close(self) -> None:
        """Release files; safe to call twice."""


@dataclass(frozen=True, slots=True)
class FetchedImage:
    """An image fetched from a URL: its bytes, claimed media type, final file name and final address."""

    data: bytes
    media_type: str
    name: str
    source: str


class ImageSource(Protocol):
    """Fetches images that messages name by their addresses; thread-safe."""

    def fetch(self, where: str, url: str) -> FetchedImage:
        """Return what is at a web address; `where` names it in errors.

        Raises: InvalidInput (no public address, no image, too large), BackendUnavailable, BackendTimeout.
        """


class FileSource(Protocol):
    """Fetches files that requests name by their addresses, of any type; thread-safe."""

    def fetch(self, where: str, url: str) -> FetchedImage:
        """Return what is at a web address; `where` names it in errors.

        Raises: InvalidInput (no public address, too large), BackendUnavailable, BackendTimeout.
        """


@dataclass(frozen=True, slots=True)
class Image:
    """A picture as a model is shown it: the bytes of an image file of this media type."""

    media_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A turn of the conversation a model is shown; `images` come after the text, and only a user's has some."""

    role: Literal["system", "user", "assistant"]
    content: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request to a language model; None for `max_tokens` and `temperature` means the model's settings.

    `schema` is the JSON Schema of the expected object; the endpoint is held to it where possible, and the caller
    still validates the answer. `words` are the answers of one word that are wanted: the reply tells how probable each
    is, where the endpoint does. `later` requests yield to interactive ones.
    Raises: InvalidInput (no messages, or a limit that no model has).
    """

    messages: tuple[ChatMessage, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    schema: Mapping[str, Json] | None = None
    schema_name: str = "answer"
    top_p: float | None = None
    prefix: Prefix | None = None
    later: bool = False
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.messages:
            raise InvalidInput("messages", "must not be empty")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidInput("max_tokens", f"must be at least 1; got {self.max_tokens}")
        if self.max_tokens is not None and self.max_tokens > _MOST_TOKENS:
            raise InvalidInput("max_tokens", f"must be at most {_MOST_TOKENS:,}; got {self.max_tokens:,}")
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise InvalidInput("temperature", f"must be from 0 to 2; got {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InvalidInput("top_p", f"must be above 0 and at most 1; got {self.top_p}")
        if any(message.images and message.role != "user" for message in self.messages):
            raise InvalidInput("messages", "can have images only in messages of the user")

    @property
    def estimated_tokens(self) -> int:
        """Tokens the messages cost, where nobody counts them."""
        text = "\n".join(message.content for message in self.messages)
        return estimate_tokens(text) + IMAGE_TOKENS * sum(len(message.images) for message in self.messages)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A finished answer: `text` is never empty, without reasoning, NUL or lone surrogates.

    `activation` tells what of the prompt was not computed, where that is known, `adapter` the id of the adapter that
    the model answered with. `probabilities` are those of the request's `words` as the answer's first, None if unknown.
    """

    text: str
    tokens: Tokens
    activation: Activation | None = None
    adapter: str | None = None
    probabilities: Mapping[str, float] | None = None


class ChatModel(Protocol):
    """Answers a conversation; thread-safe. What is no finished answer is an error, never text.

    Tokens that the endpoint does not report are estimated and marked so. Images are made smaller and sent without
    what their files say besides pixels; one that cannot be decoded is a permanent ModelError, and nothing is asked.
    """

    @property
    def name(self) -> str:
        """The model's name, as accounts and remembered answers know it."""

    @property
    def in_steps(self) -> bool:
        """True if the model works here, step by step: then `stream` does what `complete` does, and can be closed."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the model's answer, whatever characters the messages have.

        Raises: ModelError with the tokens it cost (refused, nonsense), as InvalidAnswer if a smaller question may fare
        better (empty, cut off, or the request is too long); BackendUnavailable; BackendTimeout. All say whether
        repeating makes sense (`permanent`).
        """

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        """Yield the answer's text piece by piece, and last of all the finished answer.

        A piece may be empty while the model reads the prompt; the caller may stop it then. The request is sent when the
        first piece is wanted; closing the stream ends it. Raises: as `complete`, also after some pieces: what came
        until then is no answer.
        """

    def close(self) -> None:
        """Take no further calls; those under way may end. Safe to call twice."""


@dataclass(frozen=True, slots=True)
class Page:
    """Text of one page or slide of a document, or all of it; `number` from 1, `path` the outline's titles above it.

    `ocr` is how sure one is, from 0 to 1, of a text that was recognised in a picture.
    """

    text: str
    number: int | None = None
    path: tuple[str, ...] = ()
    ocr: float | None = None


@dataclass(frozen=True, slots=True)
class DocumentPages:
    """A document's pages, as Markdown unless `format` is pdf, text or an image format.

    `unread` counts pages that are images without recognised text.
    """

    format: str
    media_type: str
    pages: tuple[Page, ...]
    unread: int = 0


class DocumentReader(Protocol):
    """Reads files into text; whatever is in a file, it harms nobody but its own reading."""

    def pages(self, name: str, data: bytes, check_cancelled: Callable[[], object]) -> DocumentPages:
        """Return a document's text; `check_cancelled` is called now and again and may end it by raising.

        Raises: InvalidInput (it cannot be read, with the reason), BackendUnavailable.
        """
