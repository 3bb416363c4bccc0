"""One user's memory as a MemoryOS program uses it: exchanges go in, profile, knowledge and answers come out.

Works on an open `MemOS`, in the user's cube; knows no constructor parameters and opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.asking.asker import Asker
from memos.asking.meter import Meter
from memos.compat import names
from memos.compat.composing import Context, Exchange, Known, compose
from memos.compat.importing import described
from memos.compat.parameters import filled
from memos.errors import BackendUnavailable, Conflict, InvalidInput, NotFound
from memos.kernel import MemOS
from memos.memcube.ledger import paging, tiers
from memos.memcube.ledger.tiers import Page
from memos.model import Item, ItemType, Json, Role, TaskState
from memos.reader.exports.memoryos import ASSISTANT_KNOWLEDGE, PROFILE, USER_KNOWLEDGE
from memos.reader.messages import read_time
from memos.text.checks import check_text

# The original's settings of its own answers.
_ANSWER_TOKENS = 1500
_TEMPERATURE = 0.7
_KNOWLEDGE_SHOWN = 20
_HITS_A_PAGE = 4
_LISTED = 10_000
_NOTE_CHARS = 120
_NOTE_KEYWORDS = 5
_ANALYSIS_S = 600.0
_SHAPING = [str(kind) for kind in (ItemType.PROFILE, ItemType.PREFERENCE, ItemType.INSTRUCTION)]
_UNENDED = [str(state) for state in (TaskState.WAITING, TaskState.RUNNING)]
_KNOWN = [str(kind) for kind in (ItemType.USER, ItemType.SKILL)]
_SAID = {"and": [{"type": "message"}, {"role": {"in": [str(Role.USER), str(Role.ASSISTANT)]}}]}


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of the memory an answer is made from; `tokens` caps its whole prompt."""

    recent_pages: int
    retrieved_pages: int
    knowledge: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Manner:
    """How an answer is wanted, and what is known about the conversation."""

    relationship: str = "friend"
    style: str = ""
    metadata: Mapping[str, Json] | None = None


class UserMemory:
    """The memory of one user with one assistant; the cube is made when new. Thread-safe."""

    def __init__(self, memos: MemOS, user_id: str, assistant_id: str, extent: Extent) -> None:
        self._memos = memos
        self._extent = extent
        self.cube = names.cube_of_user(names.check_id("user_id", user_id))
        self.conversation = names.conversation_with(names.check_id("assistant_id", assistant_id))
        self._assistant_cube = names.cube_of_assistant(assistant_id)
        self.new = False
        try:
            memos.cubes.get(self.cube)
        except NotFound:
            self.new = True
            with suppress(Conflict):  # another object of the same user makes it
                memos.cubes.create(self.cube, description=described("user", user_id))

    def add(self, user_input: str, agent_response: str, timestamp: Json, meta_data: Json) -> None:
        """Store one exchange, both messages or none. Raises: InvalidInput, BackendUnavailable."""
        limit = self._memos.settings.limits.message_bytes
        said = (("user_input", Role.USER, user_input), ("agent_response", Role.ASSISTANT, agent_response))
        messages: list[dict[str, Json]] = []
        for where, role, text in said:
            if not check_text(where, text, limit).strip():
                raise InvalidInput(where, "is empty; an exchange has something said on both sides")
            messages.append({"role": str(role), "content": text})
        if timestamp:  # an empty one means now, as in the original
            if isinstance(timestamp, str):
                check_text("timestamp", timestamp, 256)
            read_time("timestamp", timestamp, ZoneInfo("UTC"), self._memos.clock.now())
            messages = [{**message, "chat_time": timestamp} for message in messages]
        info = _info(meta_data)
        try:
            self._memos.add(messages, cube=self.cube, conversation=self.conversation, info=info)
        except InvalidInput as error:
            if error.field.startswith("info"):
                raise InvalidInput(f"meta_data{error.field.removeprefix('info')}", error.reason) from error
            raise

    def answer(self, query: str, manner: Manner) -> str:
        """Return the chat model's answer and remember the exchange; of a failed call nothing is kept.

        Raises: InvalidInput, BackendUnavailable (also: no model configured), ModelError.
        """
        context = self._context(filled("query", query), manner)
        answer = self._asker().say(
            compose(context, self._extent.tokens),
            meter=Meter("chat", cube=self.cube),
            max_tokens=_ANSWER_TOKENS,
            temperature=_TEMPERATURE,
        )
        self.add(query, answer, None, None)
        return answer

    def profile(self) -> list[Known]:
        """Return what shapes answers to the user, an imported profile first."""
        return [*map(_known, self._tagged([self.cube], PROFILE)[-1:]), *map(_known, self._derived(_SHAPING))]

    def assistant_knowledge(self) -> list[Known]:
        """Return what the assistant knows itself, the newest last, at most as much as is to be kept in view."""
        found = [
            *self._tagged(self._assistant_cubes(), ASSISTANT_KNOWLEDGE),
            *self._derived([str(ItemType.ASSISTANT)]),
        ]
        found.sort(key=lambda item: item.said_at or item.created_at)
        return [_known(item) for item in found[-self._extent.knowledge :]]

    def analyse(self) -> None:
        """Read every page of the mid tier that was not read yet. Raises: BackendUnavailable, BackendTimeout."""
        memos = self._memos
        moving = memos.tasks.list(cubes=[self.cube], kinds=[tiers.OVERFLOW], states=_UNENDED)
        for each in moving:  # pages on their way to the mid tier
            memos.tasks.wait(each.id, timeout_s=_ANALYSIS_S)
        task = memos.analyse(cube=self.cube, everything=True)
        memos.tasks.wait(task.id, timeout_s=_ANALYSIS_S)
        ended = memos.tasks.get(task.id)
        if ended.state is not TaskState.DONE:
            raise BackendUnavailable(
                f"The analysis ended as {ended.state}: {ended.error or 'no reason given'} Look with `memos tasks show "
                f"{ended.id}`."
            )

    def pages(self) -> int:
        """Return how many pages are in the short tier."""
        with self._memos.ledger.read() as connection:
            return len(paging.newest(connection, self.cube, self.conversation, _LISTED))

    def segments(self) -> int:
        """Return how many segments the mid tier has."""
        return len(self._memos.segments(cube=self.cube, limit=_LISTED))

    def _asker(self) -> Asker:
        asker = self._memos.asker
        if asker is None:
            raise BackendUnavailable(
                "There is no language model to answer: give openai_api_key or openai_base_url, or set "
                "MEMOS_CHAT_MODEL__BASE_URL and MEMOS_CHAT_MODEL__MODEL.",
                permanent=True,
            )
        return asker

    def _context(self, query: str, manner: Manner) -> Context:
        self._asker()  # before anything is searched
        with self._memos.ledger.read() as connection:
            recent = paging.newest(connection, self.cube, self.conversation, self._extent.recent_pages)
        most = min(_KNOWLEDGE_SHOWN, self._extent.knowledge)
        return Context(
            query=query,
            relationship=filled("relationship_with_user", manner.relationship),
            style=check_text("style_hint", manner.style, 65_536),
            assistant_knowledge=self._found(
                query, self._assistant_cubes(), [str(ItemType.ASSISTANT)], ASSISTANT_KNOWLEDGE, most
            ),
            metadata=_metadata(manner.metadata),
            recent=[_exchange(page) for page in recent],
            retrieved=self._retrieved(query, {page.id for page in recent}),
            profile=self.profile(),
            facts=self._found(query, [self.cube], _KNOWN, USER_KNOWLEDGE, most),
        )

    def _retrieved(self, query: str, shown: set[str]) -> list[Exchange]:
        """Return the pages with the messages a search finds, those already shown left out."""
        most = self._extent.retrieved_pages
        limit = min(self._memos.settings.limits.top_k, most * _HITS_A_PAGE)
        found = self._memos.search(query, cubes=[self.cube], filter=_SAID, top_k=limit)
        exchanges: list[Exchange] = []
        seen = set(shown)
        with self._memos.ledger.read() as connection:
            for place in dict.fromkeys(_Place.of(hit.item) for hit in found):
                page, before = place.read(connection)
                if page is not None and page.id not in seen and len(exchanges) < most:
                    seen.add(page.id)
                    exchanges.append(_exchange(page, _note(connection, page, before)))
        return exchanges

    def _found(self, query: str, cubes: Sequence[str], kinds: list[str], tag: str, most: int) -> list[Known]:
        wanted = {"or": [{"type": {"in": kinds}}, {"tags": {"contains": tag}}]}
        return [_known(hit.item) for hit in self._memos.search(query, cubes=cubes, filter=wanted, top_k=most)]

    def _assistant_cubes(self) -> list[str]:
        """Return where knowledge of the assistant is: with the user, and what was imported for all of its users."""
        try:
            self._memos.cubes.get(self._assistant_cube)
        except NotFound:
            return [self.cube]
        return [self.cube, self._assistant_cube]

    def _tagged(self, cubes: Sequence[str], tag: str) -> list[Item]:
        return [item for cube in cubes for item in self._listed(cube, {"tags": {"contains": tag}})]

    def _derived(self, kinds: list[str]) -> list[Item]:
        """Return what was read out of pages and holds now."""
        now = self._memos.clock.now()
        found = self._listed(self.cube, {"type": {"in": kinds}})
        return [item for item in found if item.valid_to is None or item.valid_to > now]

    def _listed(self, cube: str, wanted: Mapping[str, Json]) -> list[Item]:
        found = self._memos.list(cube=cube, filter={"and": [wanted, {"status": "active"}]}, limit=_LISTED)
        return sorted(found, key=lambda item: item.said_at or item.created_at)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a found message stands: a page of a conversation, or a page of its own."""

    cube: str
    conversation: str | None
    number: int
    lone: Item | None = None

    @classmethod
    def of(cls, item: Item) -> _Place:
        """Return the place of a message."""
        if item.conversation is None or item.page is None:
            return cls(item.cube, None, 0, replace(item, info={}))
        return cls(item.cube, item.conversation, item.page)

    def read(self, connection: sa.Connection) -> tuple[Page | None, Page | None]:
        """Return the page, and the one before it."""
        if self.conversation is None:
            return (None if self.lone is None else Page(0, (self.lone,))), None
        found = paging.numbered(connection, self.cube, self.conversation, (self.number - 1, self.number))
        return found.get(self.number), found.get(self.number - 1)


def _note(connection: sa.Connection, page: Page, before: Page | None) -> str:
    """Return the chain note of a page: the topic of its segment, and what was said just before."""
    notes = []
    places = tiers.segments_by_item(connection, [page.id])
    for segment in tiers.get_segments(connection, places.values()).values():
        notes.append(f"part of: {', '.join(list(segment.keywords)[:_NOTE_KEYWORDS])}")
    if before is not None:
        text = " ".join(before.messages[0].memory.split())
        notes.append(f"after: {text if len(text) <= _NOTE_CHARS else text[:_NOTE_CHARS] + '…'}")
    return "; ".join(notes)


def _exchange(page: Page, note: str = "") -> Exchange:
    by_role = {
        role: "\n".join(message.memory for message in page.messages if message.role is role)
        for role in (Role.USER, Role.ASSISTANT)
    }
    return Exchange(page.messages[0].said_at, by_role[Role.USER], by_role[Role.ASSISTANT], note)


def _known(item: Item) -> Known:
    return Known(item.memory, item.said_at or item.created_at)


def _info(meta_data: Json) -> dict[str, Json]:
    """Return metadata as an item's info takes it: what is nested becomes JSON text. Raises: InvalidInput."""
    if meta_data is None:
        return {}
    if not isinstance(meta_data, Mapping):
        raise InvalidInput("meta_data", f"must be an object, not {type(meta_data).__name__}")
    return {name: _flat(value) for name, value in meta_data.items() if value is not None}


def _flat(value: Json) -> Json:
    scalars = value if isinstance(value, list | tuple) else [value]
    if all(isinstance(each, str | bool | int | float) for each in scalars):
        return value
    return _dumped("meta_data", value)


def _metadata(metadata: Json) -> Mapping[str, Json] | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise InvalidInput("user_conversation_meta_data", f"must be an object, not {type(metadata).__name__}")
    _dumped("user_conversation_meta_data", metadata)
    return metadata


def _dumped(where: str, value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(where, "cannot be written as JSON; use text, numbers, lists and objects") from error
