"""`MemOS.tiers`: segments, pins, heat, and the working memory of a conversation.

Working memory is a small selection for the start of a prompt, computed on demand. In order: pinned items, standing
instructions, preferences, the current topic, then the hottest facts related to what was said last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Unpack

import sqlalchemy as sa

from memos.core.aliases import ConversationAliases, ItemsAliases
from memos.core.identities import Right
from memos.core.text import rendering
from memos.core.text.rendering import NOTICE, has_fence, is_untrusted, speaker_of, wrap_untrusted
from memos.core.text.validation import check_name
from memos.core.tokens import estimate_tokens
from memos.core.types import (
    DEFAULT_CUBE,
    FOUND,
    LOCAL_OWNER,
    UNSAID,
    Item,
    ItemType,
    SearchResult,
    Segment,
    Standing,
    Status,
)
from memos.errors import InvalidInput, shown
from memos.kernel.context import Context, accept_aliases, retry_read, retry_write
from memos.kernel.moves import SegmentContents, TierMove, moves_before
from memos.kernel.search import FACTS, SearchService
from memos.memcube.ledger import expiry, items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as segment_rows
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.queries import has_untrusted
from memos.memcube.standing import standings
from memos.reader.arguments import ids_of, switch, within
from memos.scheduler.heat import Access
from memos.scheduler.jobs.segments import summary
from memos.scheduler.presets import PresetComparison
from memos.scheduler.scheduler import Scheduler

_MOST = 50
_LAST_MESSAGES = 4
_QUESTION_CHARS = 600


@dataclass(frozen=True, slots=True)
class WorkingMemory:
    """The selected memories by part, and their text; `left_out` lines did not fit into `max_tokens`."""

    conversation: Annotated[str | None, "Conversation it is for"]
    text: Annotated[str, "Ready text for a prompt"]
    tokens: Annotated[int, "Tokens of that text"]
    items: Annotated[tuple[Item, ...], "Memories in it, in order"]
    topic: Annotated[str, "What the current topic is about"]
    left_out: Annotated[int, "Number of lines left out for lack of room"]
    standings: Annotated[Mapping[str, Standing], "Whether each memory still holds, by its id"] = field(
        default_factory=dict
    )
    topic_untrusted: bool = False


@dataclass(frozen=True, slots=True)
class Compose:
    """Makes working memories over one ledger; `related` finds facts near a text."""

    ledger: Ledger
    related: Callable[[str], SearchResult]
    now: datetime

    def __call__(self, cube: str, conversation: str | None, max_tokens: int) -> WorkingMemory:
        """Return the working memory of a conversation of a cube; without one, that of the cube."""
        with self.ledger.read() as connection:
            place = None if conversation is None else _place(connection, cube, conversation)
            last = [] if place is None else expiry.live(_last_said(connection, cube, place[0]), self.now)
            said = "\n".join(item.memory[:_QUESTION_CHARS] for item in last)[:_QUESTION_CHARS].strip()
            topic, found = ("", False) if place is None else _topic(connection, *place, self.now)
            pinned = _ordered(connection, cube, expiry.is_live(self.now) & t.items.c.pinned.is_(True))
            wishes = _wishes(connection, cube, self.now, {item.speaker.casefold() for item in last})
        near = [hit.item.id for hit in self.related(said)] if said else []
        with self.ledger.read() as connection:
            facts = _by_heat(connection, cube, self.now, near) if said else _hottest(connection, cube, self.now)
            stands = standings(connection, [*pinned, *wishes, *facts], self.now)

        def holds(item: Item) -> bool:
            return stands[item.id].standing in (Standing.CURRENT, Standing.POSSIBLY_OUTDATED)

        shown = wrap_untrusted(topic, "conversation") if found else topic
        entries = [(item, _line(item, stands[item.id].standing)) for item in (*pinned, *filter(holds, wishes))]
        further = [(item, _line(item, stands[item.id].standing)) for item in filter(holds, facts)]
        made = _fit(conversation, entries, (topic, shown), further, max_tokens)
        told = {item.id: stands[item.id].standing for item in made.items}
        return replace(made, topic_untrusted=found, standings=told)


def _place(connection: sa.Connection, cube: str, name: str) -> tuple[str, int] | None:
    query = sa.select(t.conversations.c.id, t.conversations.c.first_short)
    row = connection.execute(
        query.where(t.conversations.c.cube_id == cube, t.conversations.c.name == name)
    ).one_or_none()
    return None if row is None else (row.id, row.first_short)


def _last_said(connection: sa.Connection, cube: str, conversation: str) -> list[Item]:
    query = sa.select(t.items.c.id).where(t.items.c.conversation_id == conversation)
    last = list(connection.scalars(query.order_by(t.items.c.position.desc()).limit(_LAST_MESSAGES)))
    states = items.current(connection, [cube], last)
    return [states[item] for item in last if item in states and states[item].status in (Status.ACTIVE, Status.ARCHIVED)]


def _topic(connection: sa.Connection, conversation: str, first_short: int, now: datetime) -> tuple[str, bool]:
    """Return the topic of a conversation's newest segment, and whether part of it is not from the speakers."""
    segment = segment_rows.segment_of(connection, conversation, first_short - 1)
    found = segment_rows.get_segments(connection, [segment]) if segment is not None else {}
    if segment is None or segment not in found:
        return "", False
    return summary(connection, found[segment], now, mark=True), has_untrusted(connection, segment)


def _wishes(connection: sa.Connection, cube: str, now: datetime, speakers: Set[str]) -> list[Item]:
    """Return instructions, then preferences: in each those of who speaks first, then the hottest.

    Two people may share a cube: what one of them ordered is not what the other did.
    """
    so = _still_so(now)
    orders = _ordered(connection, cube, so & (t.versions.c.type == ItemType.INSTRUCTION))
    wishes = _ordered(connection, cube, so & (t.versions.c.type == ItemType.PREFERENCE))

    def others(item: Item) -> bool:
        return item.speaker.casefold() not in speakers

    return [*sorted(orders, key=others), *sorted(wishes, key=others)]


def _hottest(connection: sa.Connection, cube: str, now: datetime) -> list[Item]:
    return _ordered(connection, cube, _still_so(now) & t.versions.c.type.in_([str(kind) for kind in FACTS]))


def _by_heat(connection: sa.Connection, cube: str, now: datetime, ids: Sequence[str]) -> list[Item]:
    return _ordered(connection, cube, _still_so(now) & t.items.c.id.in_(list(ids))) if ids else []


def _still_so(now: datetime) -> sa.ColumnElement[bool]:
    return expiry.is_live(now) & (t.versions.c.valid_to.is_(None) | (t.versions.c.valid_to > now))


def _ordered(connection: sa.Connection, cube: str, condition: sa.ColumnElement[bool]) -> list[Item]:
    query = (
        sa.select(t.items.c.id)
        .join(t.versions, t.versions.c.id == t.items.c.version_id)
        .outerjoin(t.warmth, t.warmth.c.item_id == t.items.c.id)
        .where(t.items.c.cube_id == cube, t.versions.c.status == Status.ACTIVE, condition)
        .order_by(t.warmth.c.level.is_(None), t.warmth.c.level.desc(), t.items.c.created_at.desc(), t.items.c.id)
        .limit(_MOST)
    )
    ids = list(connection.scalars(query))
    states = items.with_sources(connection, [cube], ids)
    return [states[id_] for id_ in ids if id_ in states]


def _fit(
    conversation: str | None,
    standing: Sequence[tuple[Item, str]],
    topic: tuple[str, str],
    facts: Sequence[tuple[Item, str]],
    max_tokens: int,
) -> WorkingMemory:
    """Take lines while they fit, skipping what is too long. A topic is what it says and how it is shown."""
    chosen: dict[str, Item] = {}
    lines: list[str] = []
    used = left_out = 0
    about: list[tuple[Item | None, str]] = [(None, f"Topic: {topic[1]}")] if topic[0] else []
    told, noticed = "", False
    for item, line in (*standing, *about, *facts):
        # One sentence may have given several facts.
        if (item is not None and item.id in chosen) or line in lines:
            continue
        notice = not noticed and has_fence(line) and (item is None or is_untrusted(item.sources))
        cost = estimate_tokens(line + "\n") + (estimate_tokens(NOTICE + "\n") if notice else 0)
        if used + cost > max_tokens:
            left_out += 1
            continue
        lines.append(line)
        used += cost
        noticed = noticed or notice
        if item is None:
            told = topic[0]
        else:
            chosen[item.id] = item
    lines = [NOTICE, *lines] if noticed else lines
    return WorkingMemory(conversation, "\n".join(lines), used, tuple(chosen.values()), told, left_out)


def _line(item: Item, standing: Standing) -> str:
    at = item.valid_from or item.said_at
    text = item.memory if item.type in UNSAID else rendering.with_speaker(item.speaker, item.memory)
    if is_untrusted(item.sources):
        text = wrap_untrusted(item.memory, speaker_of(item, item.sources))
    return f"- {rendering.dated(at, rendering.marked(standing, text, item.memory))}"


class Tiers:
    """The tiers of an installation's cubes: topics and their heat, and what the background does to them."""

    def __init__(self, context: Context, scheduler: Scheduler, search: SearchService) -> None:
        self._context = context
        self._scheduler = scheduler
        self._search = search

    @retry_read
    def segments(
        self,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        limit: int = 100,
        state: str | None = None,
        after: str | None = None,
    ) -> tuple[Segment, ...]:
        """Return the topics of a cube's older pages with their summaries: those in use first, the hottest first.

        Args:
            cube: The cube.
            actor: Who asks.
            limit: Maximum number of topics.
            state: Only `open` topics, or only `archived` ones.
            after: Continue after this topic.

        Raises: NotFound, InvalidInput.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        if state not in (None, segment_rows.OPEN, segment_rows.ARCHIVED):
            raise InvalidInput("state", f"must be open or archived, got {shown(state)}")
        last = None if after is None else check_name("after", after, 64)
        limit = within("limit", limit, 1, 10_000)
        return tuple(self._scheduler.segments(scope.cubes[0], limit, state=state, after=last))

    @retry_read
    def segment(
        self,
        segment: str,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        limit: int = 50,
        after: str | None = None,
    ) -> SegmentContents:
        """Return a topic with its messages, the newest first, and what was read from them. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        limit, last = within("limit", limit, 1, 1_000), None if after is None else check_name("after", after, 64)
        with self._context.ledger.read() as connection:
            told = self._scheduler.segment(connection, scope.cubes[0], check_name("segment", segment, 64))
            ids = segment_rows.newest_members(connection, told.id, limit + 1, last)
            shown_ids = ids[:limit]
            made = sorted(items.derived_from(connection, shown_ids))[:limit]
            states = items.current(connection, scope.cubes, [*shown_ids, *made])
        unexpired = expiry.live(states.values(), self._context.clock.now())
        live = {state.id: state for state in unexpired if state.status in FOUND}
        return SegmentContents(
            told,
            tuple(live[id_] for id_ in shown_ids if id_ in live),
            tuple(live[id_] for id_ in made if id_ in live),
            shown_ids[-1] if len(ids) > limit else None,
        )

    @retry_read
    def moves(
        self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, before: int | None = None, limit: int = 100
    ) -> tuple[TierMove, ...]:
        """Return the moves between tiers, newest first, with their reasons; those before event number `before`.

        Moves older than 100,000 events of the cube are left out. Raises: NotFound, InvalidInput.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        limit, end = within("limit", limit, 1, 1_000), None if before is None else within("before", before, 0, 2**62)
        with self._context.ledger.read() as connection:
            rules = self._scheduler.cube_rules.of(connection, scope.cubes[0])
            return tuple(moves_before(connection, scope.cubes[0], rules, end, limit, self._context.clock.now()))

    @retry_read
    def compare_presets(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> PresetComparison:
        """Return what each preset of heat would have made of a cube's hottest topics. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return self._scheduler.compare_presets(connection, scope.cubes[0])

    @retry_write
    def pin(self, id_: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, pinned: bool = True) -> None:
        """Keep an item in working memory, or a segment unarchived; `pinned=False` undoes it. Raises: NotFound."""
        pinned = switch("pinned", pinned)
        with self._context.change(self._context.scopes.check([cube], actor, embeds=False, right=Right.WRITE)) as change:
            self._scheduler.pin(change, check_name("id", id_, 64), pinned=pinned)
        self._scheduler.runner.wake()

    @retry_write
    def move(self, segment: str, tier: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> None:
        """Send a segment by hand: `long` has its pages read now, `archive` ranks it lower, `mid` brings it back.

        Raises: NotFound, InvalidInput, Conflict (pages not read yet may not go into the archive).
        """
        with self._context.change(self._context.scopes.check([cube], actor, right=Right.WRITE)) as change:
            self._scheduler.move(change, check_name("segment", segment, 64), tier)
        self._scheduler.runner.wake()

    @accept_aliases
    def mark_used(
        self,
        item_ids: str | Sequence[str] = (),
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        confirmed: bool = False,
        **_aliases: Unpack[ItemsAliases],
    ) -> None:
        """Report that an answer was made from these items or, with `confirmed`, that a person called them right.

        Raises the items' heat within seconds; unknown ids are ignored. Raises: NotFound, InvalidInput.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        how = Access.CONFIRMED if switch("confirmed", confirmed) else Access.CITED
        self._scheduler.used(scope.cubes[0], ids_of(item_ids), how)

    used = mark_used

    @accept_aliases
    @retry_read
    def context(
        self,
        conversation: str | None = None,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        max_tokens: int = 1_000,
        **_aliases: Unpack[ConversationAliases],
    ) -> WorkingMemory:
        """Return what a prompt begins with: pins, orders, wishes, topic, hot facts. Raises: NotFound, InvalidInput."""
        scope = self._context.scopes.check([cube], actor)
        name = None if conversation is None else check_name("conversation", conversation)
        name = None if name is None else self._context.scopes.masking(scope).name("conversation", name)

        compose = Compose(
            self._context.ledger, lambda text: self._search.related_facts(text, scope), self._context.clock.now()
        )
        return compose(scope.cubes[0], name, within("max_tokens", max_tokens, 1, 1_000_000))

    working_memory = context

    @retry_write
    def analyse(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, everything: bool = False) -> None:
        """Queue fact extraction for pages of hot segments, or all; `tasks.wait()` waits for it. Raises: NotFound."""
        everything = switch("everything", everything)
        with self._context.change(self._context.scopes.check([cube], actor, right=Right.WRITE)) as change:
            self._scheduler.analyse(change, everything=everything)
        self._scheduler.runner.wake()

    @retry_write
    def consolidate(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> None:
        """Queue consolidation (daily by itself): one current value a key, duplicates merged. Raises: NotFound."""
        with self._context.change(self._context.scopes.check([cube], actor, right=Right.WRITE)) as change:
            self._scheduler.consolidate(change)
        self._scheduler.runner.wake()

    @retry_write
    def reflect(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> None:
        """Queue reflection: conclusions from facts. Raises: NotFound, InvalidInput (no chat model)."""
        with self._context.change(self._context.scopes.check([cube], actor, right=Right.WRITE)) as change:
            self._scheduler.reflect(change)
        self._scheduler.runner.wake()
