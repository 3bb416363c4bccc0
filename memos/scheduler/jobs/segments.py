"""Moves the oldest pages of a conversation from the short tier into segments, in the transaction that ends the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.ports import Vector
from memos.core.text.render import said
from memos.core.types import UNUSED, Item
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import items, tasks
from memos.memcube.ledger import segments as tiers
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger.segments import Overflow, Page, SegmentRow
from memos.scheduler.accesses import warmth_of
from memos.scheduler.cube_rules import CubeRules
from memos.scheduler.policy import Access
from memos.scheduler.rules import HeatRules
from memos.scheduler.segmentation import Candidates, PageView, SegmentView, Sentence, counted, sentences, telling
from memos.scheduler.task import Run
from memos.scheduler.triggers import Triggers

ACTOR = "scheduler"

TurnsOf = Callable[[Sequence[Item]], Vector]
"""Returns float32 (messages, dimension), the vectors of messages."""

# Many, since each task compares them with all segments.
_PAGES_AT_ONCE = 128
# A pasted megabyte is not what tells a topic.
_SCANNED_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class OverflowJob:
    """Empties the short tier as far as it is over its capacity.

    `turns_of` returns the vectors of messages.
    """

    rules: CubeRules
    turns_of: TurnsOf
    triggers: Triggers

    def run(self, run: Run) -> None:
        """Move pages of the conversation that the task names, or messages without one."""
        cube, conversation = run.task.cube, run.task.payload.get("conversation")
        with run.ledger.read() as connection:
            capacity = 0 if run.task.payload.get("all") else self.rules.of(connection, cube).short_capacity
            found = tiers.overflow(connection, cube, conversation, capacity, _PAGES_AT_ONCE)
        if found is None:
            return
        # Outside the transaction: it may take a while.
        vectors = page_vectors(self.turns_of, [live(page) for page in found.pages])
        run.go_on(0.5)
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            still = tiers.overflow(connection, cube, conversation, capacity, _PAGES_AT_ONCE)
            # Otherwise a message was erased or changed meanwhile, whose words must not get into a segment.
            if still is not None and said_by(still.pages) == said_by(found.pages):
                self._place(change, self.rules.ready(connection, cube), still, vectors)
            self._go_on(connection, run, capacity, change.now)

    @staticmethod
    def _go_on(connection: sa.Connection, run: Run, capacity: int, now: datetime) -> None:
        """Leave a task for the pages that are left, else for reading them when that was asked for."""
        cube, conversation = run.task.cube, run.task.payload.get("conversation")
        if tiers.overflow(connection, cube, conversation, capacity, 1) is not None:
            again = (
                tiers.idle_task(str(conversation), read=bool(run.task.payload.get("read")))
                if run.task.payload.get("all")
                else tiers.overflow_task(conversation, now)
            )
            tasks.enqueue(connection, cube, [again], now)
        elif run.task.payload.get("read"):
            moves.enqueue(connection, cube, moves.analyse_task(everything=True), now)

    def _place(self, change: Change, rules: HeatRules, found: Overflow, vectors: Vector) -> None:
        connection, conversation = change.connection, found.conversation
        comparable = tiers.comparable(connection, change.cube, rules.mid_capacity)
        candidates = Candidates([SegmentView(*segment) for segment in comparable], vectors.shape[1])
        segments: dict[str, SegmentRow] = {}
        known: set[str] = set()
        previous = None if conversation is None else tiers.segment_of(connection, conversation, found.first - 1)
        grown: dict[str, list[Page]] = {}
        for page, vector in zip(found.pages, vectors, strict=True):
            seen = PageView(vector, keywords_of(page))
            joined = candidates.best(seen, previous, rules.similarity)
            if joined is not None and joined not in segments:
                segments |= tiers.get_segments(connection, [joined])
                known.add(joined)
            segment = segments.get(joined or "") or SegmentRow(new_id(), change.cube, change.now, change.now)
            segments[segment.id] = _with(rules, segment, seen, page, change.now)
            candidates.put(view(segments[segment.id]))
            grown.setdefault(segment.id, []).append(page)
            previous = segment.id if conversation is not None else None
        for id_, pages in grown.items():
            segments[id_].spans = spans(connection, segments[id_], pages)
        tiers.save(connection, [segments[id_] for id_ in grown], known)
        placed = [(page, id_) for id_, pages in grown.items() for page in pages]
        tiers.place_pages(connection, change.cube, conversation, placed, change.now)
        tiers.move_on(connection, change.cube, found)
        if placed:
            heats = {id_: rules.policy.heat(warmth_of(segments[id_]), change.now) for _, id_ in placed}
            _tell(change, placed, heats)
            self.triggers.grown(connection, change.cube, rules, [segments[id_] for id_ in grown], change.now)
            if len(known) < len(grown):
                moves.enqueue(connection, change.cube, moves.sweep_task(), change.now)


def _with(rules: HeatRules, segment: SegmentRow, view: PageView, page: Page, now: datetime) -> SegmentRow:
    """Return the segment with one more page: a longer sum of vectors, more keywords, more heat."""
    at = page.messages[-1].said_at or now
    warm = rules.policy.accessed(warmth_of(segment), Access.MERGED, at, now)
    return replace(
        segment,
        vector=view.vector if segment.vector is None else segment.vector + view.vector,
        keywords=counted(segment.keywords, view.keywords),
        pages=segment.pages + 1,
        unread=True,
        updated_at=now,
        level=warm.level,
        visits=warm.visits,
        interactions=warm.interactions,
        last=warm.last,
    )


def _tell(change: Change, placed: Sequence[tuple[Page, str]], heats: Mapping[str, float]) -> None:
    body = {
        "tier": "mid",
        "pages": {page.id: id_ for page, id_ in placed},
        "heat": {id_: round(heat, 4) for id_, heat in heats.items()},
    }
    changes.record(change, "move", body)


def view(segment: SegmentRow) -> SegmentView:
    """Return a segment as pages are compared with it."""
    return SegmentView(segment.id, segment.vector, segment.keywords)


def said_by(pages: Sequence[Page]) -> list[tuple[str, int]]:
    """Return which versions of which messages pages hold, in order."""
    return [(message.id, message.version) for page in pages for message in page.messages]


def live(page: Page) -> list[Item]:
    """Return a page's messages that are neither deleted nor awaiting review."""
    return [message for message in page.messages if message.status not in UNUSED]


def keywords_of(page: Page) -> frozenset[str]:
    """Return the keywords of a page's messages."""
    return frozenset(word for message in live(page) for word in message.keywords)


def page_vectors(turns_of: TurnsOf, pages: Sequence[Sequence[Item]]) -> Vector:
    """Return float32 (pages, dimension): the direction of each page's messages together, zero for a page of none."""
    vectors = turns_of([message for page in pages for message in page])
    found = np.zeros((len(pages), vectors.shape[1]), dtype=np.float32)
    place = 0
    for number, page in enumerate(pages):
        total = vectors[place : place + len(page)].sum(axis=0)
        norm = float(np.linalg.norm(total))
        found[number] = total / norm if norm > 0 else total
        place += len(page)
    return found


def spans(connection: sa.Connection, segment: SegmentRow, grown: Sequence[Page]) -> list[tuple[str, int, int]]:
    """Return the sentences that tell what the segment is about now: of those that told it before and the new ones."""
    before = items.current(connection, [segment.cube], {item for item, _, _ in segment.spans})
    old = [
        Sentence(item, start, end, before[item].memory[start:end])
        for item, start, end in segment.spans
        if item in before
    ]
    new = [
        sentence
        for page in grown
        for message in live(page)
        for sentence in sentences(message.id, message.memory[:_SCANNED_CHARS])
    ]
    return [(chosen.item, chosen.start, chosen.end) for chosen in telling([*old, *new], segment.keywords)]


def summary(connection: sa.Connection, segment: SegmentRow) -> str:
    """Return what a segment is about: a model's words when there are some, else its own messages'."""
    if segment.told is not None:
        return segment.told
    states: dict[str, Item] = items.current(connection, [segment.cube], {item for item, _, _ in segment.spans})
    live = {id_: state for id_, state in states.items() if state.status not in UNUSED}
    told = [
        said(live[item].speaker, live[item].memory[start:end]) for item, start, end in segment.spans if item in live
    ]
    return "\n".join(told)
