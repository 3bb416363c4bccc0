"""Write items to the vector index and the graph index: ids and filter fields, a point per chunk of each version."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import sqlalchemy as sa

from memos.core.clock import to_micros
from memos.core.filters import LEDGER_FIELDS, TOLD_INFO, folders_of, info_paths
from memos.core.ports import Embedder, GraphIndex, GraphNode, SparseEncoder, Vector, VectorIndex, VectorPoint
from memos.core.text import rendering
from memos.core.text.instructions import is_lasting_preference
from memos.core.text.sentences import is_about_speaker
from memos.core.types import FOUND, JUDGED, STANDING_OF, UNUSED, Arm, Item, ItemType, Json, Role, Status
from memos.memcube.changes import WINDOW
from memos.memcube.ledger import cubes, items
from memos.memcube.ledger.engine import Ledger
from memos.memcube.relations import RelationFinder, Told

CHUNK_TOKENS = 200
"""Tokens of one chunk: a rendered chunk with its speaker stays under the embedder's 256."""

TEXT_FORMAT = 6
"""Grows when texts are rendered otherwise before they are embedded, to 8 next: vectors of before are of no use then."""

SAME_TEXTS = frozenset({6, 7})
"""Formats with the same rendering of texts as today's; 7 changed only the points."""

POINT_FORMAT = 8
"""Increased with every change to the points: since 8 a cube's standing items have graphs of their own."""

# Shorter texts have at most CHUNK_TOKENS tokens, since a token has at least one character.
_SURELY_ONE_CHUNK = CHUNK_TOKENS - 2
_POINTS_PER_WRITE = 256
_MOST_KNOWN_SPANS = 10_000
# About 230 tokens of English, under the embedder's 256 with names and marks.
_WINDOW_CHARS = 900
_LEAST_CONTEXT_CHARS = 100


@dataclass(frozen=True, slots=True)
class Chunk:
    item: Item
    number: int
    text: str
    turn: str
    window: str


class _Read(NamedTuple):
    chunks: list[Chunk]
    revisions: Mapping[str, int]


class VectorSource(Protocol):
    def of(self, point: str) -> tuple[Vector, Vector] | None: ...


class EmbeddingAhead:
    """Embeds texts in the background that are soon asked for, into the cache of its embedder. Thread-safe.

    Nothing else passes between the two, so that what was changed or erased meanwhile is not written after all.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._thread: threading.Thread | None = None

    def start(self, texts: Sequence[str]) -> None:
        self._thread = threading.Thread(target=self._embed, args=(texts,), name="memos-embedding")
        self._thread.start()

    def finish(self) -> None:
        """Wait for what was started last."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _embed(self, texts: Sequence[str]) -> None:
        # Whoever asks for these texts embeds them again then, and meets the error.
        with suppress(Exception):
            self._embedder.embed_documents(texts)


class VectorFollower:
    def __init__(
        self,
        ledger: Ledger,
        index: VectorIndex,
        embedder: Embedder,
        terms: SparseEncoder,
        relations: RelationFinder,
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._embedder = embedder
        self._terms = terms
        self.relations = relations
        self._lent: VectorSource | None = None
        self._ahead = EmbeddingAhead(embedder)
        self._known_spans: dict[str, list[tuple[int, int]]] = {}

    def lend(self, lent: VectorSource | None) -> None:
        self._lent = lent

    def project(self, item_ids: Sequence[str], following: Sequence[str] = ()) -> None:
        read = self._read(item_ids)
        starts = range(0, len(read.chunks), _POINTS_PER_WRITE)
        batches = [read.chunks[start : start + _POINTS_PER_WRITE] for start in starts]
        told: list[Told] = []
        for place, batch in enumerate(batches):
            self._ahead.finish()
            dense = self._dense(batch, read.revisions)
            # While these are written and judged, what comes next is embedded.
            if place + 1 < len(batches):
                self._embed_ahead(batches[place + 1])
            elif following:
                self._embed_ahead(self._read(following).chunks[:_POINTS_PER_WRITE])
            points = self._points(batch, dense, read.revisions)
            self._index.upsert(points)
            told += [
                Told(chunk.item, point.turn)
                for chunk, point in zip(batch, points, strict=True)
                if chunk.number == 0 and chunk.item.recorded_to is None
            ]
        # At revision 1 an item is new: it has no older points to remove.
        stale = {item_id: read.revisions.get(item_id) for item_id in item_ids if read.revisions.get(item_id) != 1}
        if stale:
            self._index.prune(stale)
        self.relations.find(told, again=stale, together=item_ids)

    def _embed_ahead(self, chunks: Sequence[Chunk]) -> None:
        if self._lent is None:
            self._ahead.start(_texts(chunks))

    def _read(self, item_ids: Sequence[str]) -> _Read:
        with self._ledger.read() as connection:
            states = items.all_versions(connection, item_ids)
            revisions = items.revisions(connection, item_ids)
            before = self._before(connection, states)
            records = [id_ for id_, versions in states.items() if versions[-1].record_id is not None]
            hidden = items.unsearchable(connection, records)
        chunks = [
            chunk
            for item_id in item_ids
            for version in states.get(item_id, ())
            if version.id not in hidden
            for chunk in self._chunks(version, before.get(version.id, ()))
        ]
        return _Read(chunks, revisions)

    def flush(self, mark: int) -> None:
        self._index.flush(mark)

    def mark(self) -> int:
        return self._index.mark()

    def restart_count(self) -> int:
        return self._index.restart_count

    def first_chunk(self, state: Item) -> Chunk:
        return self._chunks(state, ())[0]

    def turns_of(self, states: Sequence[Item]) -> Vector:
        """Return float32 (len(states), dimension), read from the index or, where it lacks them, embedded."""
        found = self._index.turns([point_id(state.version_id, 0) for state in states])
        missing = [state for state in states if point_id(state.version_id, 0) not in found]
        if missing:
            made = self._embedder.embed_documents([self.first_chunk(state).turn for state in missing])
            found |= {point_id(state.version_id, 0): vector for state, vector in zip(missing, made, strict=True)}
        turns = np.zeros((len(states), self._embedder.fingerprint.dimension), dtype=np.float32)
        for place, state in enumerate(states):
            turns[place] = found[point_id(state.version_id, 0)]
        return turns

    def _before(self, connection: sa.Connection, states: Mapping[str, list[Item]]) -> dict[str, tuple[list[Item], ...]]:
        ids = {
            item_id: items.before_in_conversation(connection, versions[-1], WINDOW - 1)
            for item_id, versions in states.items()
        }
        wanted = {other for others in ids.values() for other in others}
        missing = wanted - states.keys()
        known = {**states, **items.all_versions(connection, missing)}
        return {item_id: tuple(known[other] for other in reversed(others)) for item_id, others in ids.items()}

    def _chunks(self, item: Item, before: Sequence[list[Item]]) -> list[Chunk]:
        pieces = [
            rendering.with_speaker(state.speaker, state.memory)
            for versions in before
            if (state := _at(versions, item)) is not None and state.status not in UNUSED
        ]
        chunks = []
        for number, (start, end) in enumerate(self._spans(item.memory)):
            text = item.memory[start:end]
            said = _rendered(item, text)
            pieces.append(said)
            context = pieces[-WINDOW:-1]
            room = _WINDOW_CHARS - len(said)
            window = rendering.window([*(_tail(piece, room // max(1, len(context))) for piece in context), said])
            chunks.append(Chunk(item, number, text, said, window))
        return chunks

    def spans_of(self, item: Item) -> list[tuple[int, int]]:
        """Return the spans of an item's chunks in its text, remembered by version."""
        if len(item.memory) <= _SURELY_ONE_CHUNK:
            return [(0, len(item.memory))]
        if (spans := self._known_spans.get(item.version_id)) is None:
            spans = self._spans(item.memory)
            if len(self._known_spans) >= _MOST_KNOWN_SPANS:
                self._known_spans.clear()
            self._known_spans[item.version_id] = spans
        return spans

    def _spans(self, text: str) -> list[tuple[int, int]]:
        if len(text) <= _SURELY_ONE_CHUNK:
            return [(0, len(text))]
        return self._embedder.split(text, CHUNK_TOKENS) or [(0, len(text))]

    def _points(
        self, chunks: Sequence[Chunk], dense: Sequence[tuple[Vector, Vector]], revisions: Mapping[str, int]
    ) -> list[VectorPoint]:
        return [
            VectorPoint(
                id=point_id(chunk.item.version_id, chunk.number),
                payload=payload_of(chunk, revisions.get(chunk.item.id, 0)),
                turn=turn,
                window=window,
                turn_terms=self._terms.encode_document(chunk.turn),
                window_terms=self._terms.encode_document(chunk.window),
            )
            for chunk, (turn, window) in zip(chunks, dense, strict=True)
        ]

    def _dense(self, chunks: Sequence[Chunk], revisions: Mapping[str, int]) -> list[tuple[Vector, Vector]]:
        found: list[tuple[Vector, Vector] | None] = [None] * len(chunks)
        if (lent := self._lent) is not None:
            found = [
                lent.of(point_id(chunk.item.version_id, chunk.number)) if revisions.get(chunk.item.id) == 1 else None
                for chunk in chunks
            ]
        missing = [chunk for chunk, vectors in zip(chunks, found, strict=True) if vectors is None]
        dense = self._embedder.embed_documents(_texts(missing))
        made = iter(zip(dense[: len(missing)], dense[len(missing) :], strict=True))
        return [next(made) if vectors is None else vectors for vectors in found]


def _texts(chunks: Sequence[Chunk]) -> list[str]:
    return [chunk.turn for chunk in chunks] + [chunk.window for chunk in chunks]


def _at(versions: Sequence[Item], item: Item) -> Item | None:
    if item.recorded_to is None:
        return versions[-1]
    standing = [version for version in versions if version.updated_at < item.recorded_to]
    return standing[-1] if standing else None


def _rendered(item: Item, text: str) -> str:
    if item.type is ItemType.RECORD:
        return text  # nobody said it
    if item.type is not ItemType.DOCUMENT:
        return rendering.with_speaker(item.speaker, text)
    path, header = item.info.get("path"), item.info.get("table")
    titles = [str(title) for title in path] if isinstance(path, list) else []
    return rendering.passage(item.speaker, titles, header if isinstance(header, str) else None, text)


def _tail(text: str, room: int) -> str:
    """Shorten a window's context: text the embedder had to split would cost double and blur the turn."""
    room = max(_LEAST_CONTEXT_CHARS, room)
    return text if len(text) <= room else "…" + text[-room:]


def point_id(version_id: str, chunk: int) -> str:
    """Return a point's UUID: the version's id for its first chunk, derived from it for the others."""
    return version_id if chunk == 0 else str(uuid.uuid5(uuid.UUID(version_id), str(chunk)))


def standing_arm(chunk: Chunk) -> Arm | None:
    """Return the extra arm of a chunk: lasting preferences, or what users tell about themselves.

    Of a long message only the chunks that qualify, otherwise everything near them would be found.
    """
    item = chunk.item
    if item.type in (ItemType.PREFERENCE, ItemType.INSTRUCTION):
        return Arm.STANDING
    if item.type is not ItemType.MESSAGE or item.role is not Role.USER:
        return None
    if is_lasting_preference(chunk.text):
        return Arm.STANDING
    return Arm.OF_SELF if is_about_speaker(item.memory) else None


def payload_of(chunk: Chunk, revision: int) -> dict[str, Json]:
    item = chunk.item
    record = {
        name: value
        for name, value in items.record_of(item).items()
        if name not in LEDGER_FIELDS | {"id"} and not name.startswith("info.") and value is not None
    }
    record |= {
        "item": item.id,
        "chunk": chunk.number,
        "revision": revision,
        "recorded_from": to_micros(item.updated_at),
        "info": _indexed_info(item.info) if item.info else {},
        "live": int(item.recorded_to is None and (item.status in FOUND or _leads_to_successor(item))),
        "standing": 0 if (arm := standing_arm(chunk)) is None else STANDING_OF[arm],
    }
    if item.recorded_to is not None:
        record["recorded_to"] = to_micros(item.recorded_to)
    if item.record_id is not None:
        record["record_folders"] = folders_of(item.record_id)
    return record


def _leads_to_successor(item: Item) -> bool:
    """Return True for a superseded message: a search that recalls it returns the message that superseded it."""
    return item.type is ItemType.MESSAGE and item.status is Status.SUPERSEDED and item.superseded_by is not None


def _indexed_info(info: Mapping[str, Json]) -> dict[str, Json]:
    return {path: value for path, value in info_paths(info) if path.split(".")[0] not in TOLD_INFO}


class GraphFollower:
    def __init__(self, ledger: Ledger, index: GraphIndex) -> None:
        self._ledger = ledger
        self._index = index

    def project(self, item_ids: Sequence[str], following: Sequence[str] = ()) -> None:
        with self._ledger.read() as connection:
            states = {item_id: versions[-1] for item_id, versions in items.all_versions(connection, item_ids).items()}
            live = {item_id: state for item_id, state in states.items() if state.status is not Status.DELETED}
            revisions = items.revisions(connection, live)
            links = items.links_from(connection, live)
            salts = {cube: cubes.entity_salt(connection, cube) for cube in {state.cube for state in live.values()}}
            previous = {item_id: self._previous(connection, state) for item_id, state in live.items()}
        gone = [item_id for item_id in item_ids if item_id not in live]
        if gone:
            self._index.delete(gone)
        self._index.upsert(
            [
                GraphNode(
                    id=state.id,
                    cube=state.cube,
                    revision=revisions[state.id],
                    conversation=state.conversation and digest(salts[state.cube], "conversation", state.conversation),
                    previous=previous[state.id],
                    entities=tuple(digest(salts[state.cube], "entity", name) for name in state.entities),
                    links=tuple(link for link in links.get(state.id, ()) if link[0] not in JUDGED),
                )
                for state in live.values()
            ]
        )

    @staticmethod
    def _previous(connection: sa.Connection, state: Item) -> str | None:
        before = items.before_in_conversation(connection, state, WINDOW - 1)
        known = items.current(connection, [state.cube], before)
        return next((other for other in before if known[other].status is not Status.DELETED), None)

    def flush(self, mark: int) -> None:
        self._index.flush(mark)

    def mark(self) -> int:
        return self._index.mark()

    def restart_count(self) -> int:
        return self._index.restart_count


def digest(salt: bytes, kind: str, name: str) -> str:
    """Return the graph id of a name: equal names share a node, and the name cannot be read from it."""
    text = f"{kind}\0{' '.join(name.casefold().split())}"
    return hashlib.blake2b(text.encode(), key=salt, digest_size=16).hexdigest()
