"""Move the oldest pages of the short tier into segments; summarise, sweep and rebuild segments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import sqlalchemy as sa
from pydantic import BaseModel, Field

from memos.core.clock import new_id
from memos.core.ports import Vector
from memos.core.text.matching import keywords as text_keywords
from memos.core.text.rendering import marked, with_speaker
from memos.core.types import UNUSED, Item, Standing
from memos.llm.client import LLMClient
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import expiry, items, tasks, tier_moves
from memos.memcube.ledger import segments as segment_rows
from memos.memcube.ledger.segments import ARCHIVED, KEPT_KEYWORDS, OPEN, Overflow, Page, SegmentRow
from memos.memcube.standing import standings
from memos.scheduler.accesses import Triggers, is_hot, warmth_of
from memos.scheduler.heat import Access
from memos.scheduler.learning import meter_of, question, shortened
from memos.scheduler.rules import CubeRules, HeatRules
from memos.scheduler.task import TaskRun

_COMPARED_KEYWORDS = 10
_SPARE_ROWS = 32
_SENTENCES = 3
_SENTENCE_CHARS = (15, 240)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


@dataclass(frozen=True, slots=True)
class PageView:
    """A page for comparison: unit vector float32 (dimension,), keywords."""

    vector: Vector
    keywords: frozenset[str]


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment for comparison: the sum of its pages' vectors, None until it is rebuilt; pages by keyword."""

    id: str
    vector: Vector | None
    keywords: Mapping[str, int]


class Candidates:
    """The segments that a page may join, compared in one matrix product; `put` adds or updates a segment."""

    def __init__(self, segments: Sequence[SegmentView], dimension: int) -> None:
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._vectors = np.zeros((len(segments) + _SPARE_ROWS, dimension), dtype=np.float32)
        self._keywords: list[frozenset[str]] = []
        # Inverted index: only segments with a common keyword have a Jaccard index above 0.
        self._with_word: dict[str, set[int]] = {}
        for segment in segments:
            self.put(segment)

    def put(self, segment: SegmentView) -> None:
        place = self._rows.setdefault(segment.id, len(self._ids))
        if place == len(self._ids):
            self._ids.append(segment.id)
            self._keywords.append(frozenset())
            if place == len(self._vectors):
                self._vectors = np.vstack([self._vectors, np.zeros_like(self._vectors)])
        for word in self._keywords[place]:
            self._with_word[word].discard(place)
        self._keywords[place] = _top_keywords(segment.keywords)
        for word in self._keywords[place]:
            self._with_word.setdefault(word, set()).add(place)
        norm = 0.0 if segment.vector is None else float(np.linalg.norm(segment.vector))
        self._vectors[place] = 0.0 if segment.vector is None or norm == 0 else segment.vector / norm

    def best(self, page: PageView, previous: str | None, least: float) -> str | None:
        """Return the segment that a page joins, None to open a new one.

        The previous page's segment is preferred if its score is at least `least`, otherwise the best one is.
        """
        if not self._ids:
            return None
        scores = self._vectors[: len(self._ids)] @ page.vector
        for place in set().union(*(self._with_word.get(word, ()) for word in page.keywords)):
            scores[place] += _jaccard(page.keywords, self._keywords[place])
        before = self._rows.get(previous) if previous is not None else None
        if before is not None and scores[before] >= least:
            return self._ids[before]
        best = int(np.argmax(scores))
        return self._ids[best] if scores[best] >= least else None


def counted(keywords: Mapping[str, int], page: frozenset[str]) -> dict[str, int]:
    sums = dict.fromkeys(sorted(page), 1) | {word: count + (word in page) for word, count in keywords.items()}
    return dict(sorted(sums.items(), key=lambda entry: -entry[1])[:KEPT_KEYWORDS])


@dataclass(frozen=True, slots=True)
class Sentence:
    item: str
    start: int
    end: int
    text: str


def sentences(item: str, text: str) -> list[Sentence]:
    found = []
    for match in _SENTENCE.finditer(text):
        stripped = match.group().strip()
        if _SENTENCE_CHARS[0] <= len(stripped) <= _SENTENCE_CHARS[1]:
            start = match.start() + match.group().index(stripped)
            found.append(Sentence(item, start, start + len(stripped), stripped))
    if not found and text.strip():
        start = len(text) - len(text.lstrip())
        end = min(len(text.rstrip()), start + _SENTENCE_CHARS[1])
        found.append(Sentence(item, start, end, text[start:end]))
    return found


def key_sentences(candidates: Sequence[Sentence], keywords: Mapping[str, int]) -> list[Sentence]:
    """Return up to 3 sentences, in order, that cover the most keywords, weighted by the number of pages with each.

    Greedy maximum coverage. Source: Lin & Bilmes, "A Class of Submodular Functions for Document Summarization", ACL
    2011.
    """
    words = [set(text_keywords(sentence.text)) & keywords.keys() for sentence in candidates]
    left = dict(keywords)
    chosen: list[int] = []
    while len(chosen) < min(_SENTENCES, len(candidates)):
        gains = [
            -1.0 if place in chosen else sum(left.get(word, 0) for word in found) - len(candidates[place].text) * 1e-4
            for place, found in enumerate(words)
        ]
        place = int(np.argmax(gains))
        if chosen and gains[place] <= 0:
            break
        chosen.append(place)
        for word in words[place]:
            left.pop(word, None)
    return [candidates[place] for place in sorted(chosen)]


def _top_keywords(keywords: Mapping[str, int]) -> frozenset[str]:
    return frozenset(sorted(keywords, key=lambda word: -keywords[word])[:_COMPARED_KEYWORDS])


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


ACTOR = "scheduler"

TurnsOf = Callable[[Sequence[Item]], Vector]  # returns the vectors of messages, float32 (messages, dimension)
# Many, since each task loads all segments for comparison.
_PAGES_AT_ONCE = 128
# Characters of a message considered for the summary.
_SCANNED_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class OverflowJob:
    """Moves pages beyond the short tier's capacity into segments; `turns_of` returns the vectors of messages."""

    rules: CubeRules
    turns_of: TurnsOf
    triggers: Triggers

    def run(self, run: TaskRun) -> None:
        cube, conversation = run.task.cube, run.task.payload.get("conversation")
        with run.ledger.read() as connection:
            capacity = 0 if run.task.payload.get("all") else self.rules.of(connection, cube).short_capacity
            found = segment_rows.overflow(connection, cube, conversation, capacity, _PAGES_AT_ONCE)
        if found is None:
            return
        # Outside of a transaction, since embedding may take a while.
        vectors = page_vectors(self.turns_of, [live_items(page) for page in found.pages])
        run.check_cancelled(0.5)
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            still = segment_rows.overflow(connection, cube, conversation, capacity, _PAGES_AT_ONCE)
            # A message that was erased or changed meanwhile must not get into a segment with its old text.
            if still is not None and speakers_of(still.pages) == speakers_of(found.pages):
                self._place(change, self.rules.ready(connection, cube), still, vectors)
            self._requeue(connection, run, capacity, change.now)

    @staticmethod
    def _requeue(connection: sa.Connection, run: TaskRun, capacity: int, now: datetime) -> None:
        cube, conversation = run.task.cube, run.task.payload.get("conversation")
        if segment_rows.overflow(connection, cube, conversation, capacity, 1) is not None:
            again = (
                segment_rows.idle_task(str(conversation), read=bool(run.task.payload.get("read")))
                if run.task.payload.get("all")
                else segment_rows.overflow_task(conversation, now)
            )
            tasks.enqueue(connection, cube, [again], now)
        elif run.task.payload.get("read"):
            tier_moves.enqueue(connection, cube, tier_moves.analyse_task(everything=True), now)

    def _place(self, change: Change, rules: HeatRules, found: Overflow, vectors: Vector) -> None:
        connection, conversation = change.connection, found.conversation
        comparable = segment_rows.comparable(connection, change.cube, rules.mid_capacity)
        candidates = Candidates([SegmentView(*segment) for segment in comparable], vectors.shape[1])
        segments: dict[str, SegmentRow] = {}
        known: set[str] = set()
        previous = None if conversation is None else segment_rows.segment_of(connection, conversation, found.first - 1)
        grown: dict[str, list[Page]] = {}
        for page, vector in zip(found.pages, vectors, strict=True):
            seen = PageView(vector, page_keywords(page))
            joined = candidates.best(seen, previous, rules.similarity)
            if joined is not None and joined not in segments:
                segments |= segment_rows.get_segments(connection, [joined])
                known.add(joined)
            segment = segments.get(joined or "") or SegmentRow(new_id(), change.cube, change.now, change.now)
            segments[segment.id] = _with_page(rules, segment, seen, page, change.now)
            candidates.put(segment_view(segments[segment.id]))
            grown.setdefault(segment.id, []).append(page)
            previous = segment.id if conversation is not None else None
        for id_, pages in grown.items():
            segments[id_].spans = spans(connection, segments[id_], pages)
        segment_rows.save(connection, [segments[id_] for id_ in grown], known)
        placed = [(page, id_) for id_, pages in grown.items() for page in pages]
        segment_rows.place_pages(connection, change.cube, conversation, placed, change.now)
        segment_rows.advance_short_tier(connection, change.cube, found)
        if placed:
            heats = {id_: rules.policy.heat(warmth_of(segments[id_]), change.now) for _, id_ in placed}
            body = {"tier": "mid", "pages": {page.id: id_ for page, id_ in placed}}
            changes.record(change, "move", {**body, "heat": {id_: round(heat, 4) for id_, heat in heats.items()}})
            self.triggers.grown(connection, change.cube, rules, [segments[id_] for id_ in grown], change.now)
            if len(known) < len(grown):
                tier_moves.enqueue(connection, change.cube, tier_moves.sweep_task(), change.now)


def _with_page(rules: HeatRules, segment: SegmentRow, view: PageView, page: Page, now: datetime) -> SegmentRow:
    warm = rules.policy.accessed(warmth_of(segment), Access.MERGED, page.messages[-1].said_at or now, now)
    return replace(
        segment,
        vector=view.vector if segment.vector is None else segment.vector + view.vector,
        keywords=counted(segment.keywords, view.keywords),
        pages=segment.pages + 1,
        unread=True,
        updated_at=now,
        **asdict(warm),
    )


def segment_view(segment: SegmentRow) -> SegmentView:
    return SegmentView(segment.id, segment.vector, segment.keywords)


def speakers_of(pages: Sequence[Page]) -> list[tuple[str, int]]:
    return [(message.id, message.version) for page in pages for message in page.messages]


def live_items(page: Page) -> list[Item]:
    return [message for message in page.messages if message.status not in UNUSED]


def page_keywords(page: Page) -> frozenset[str]:
    return frozenset(word for message in live_items(page) for word in message.keywords)


def page_vectors(turns_of: TurnsOf, pages: Sequence[Sequence[Item]]) -> Vector:
    """Return the normalised sum of each page's message vectors, float32 (pages, dimension); zero for an empty page."""
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
    before = items.current(connection, [segment.cube], {item for item, _, _ in segment.spans})
    old = [
        Sentence(item, start, end, before[item].memory[start:end])
        for item, start, end in segment.spans
        if item in before
    ]
    new = [
        sentence
        for page in grown
        for message in live_items(page)
        for sentence in sentences(message.id, message.memory[:_SCANNED_CHARS])
    ]
    return [(chosen.item, chosen.start, chosen.end) for chosen in key_sentences([*old, *new], segment.keywords)]


def summary(connection: sa.Connection, segment: SegmentRow, now: datetime, *, mark: bool = False) -> str:
    """Return what is told of a segment; with `mark` its own sentences say so if they do not hold any more."""
    if segment.told is not None:
        return segment.told
    states: dict[str, Item] = items.current(connection, [segment.cube], {item for item, _, _ in segment.spans})
    live = {state.id: state for state in expiry.live(states.values(), now) if state.status not in UNUSED}
    stands = standings(connection, list(live.values()), now) if mark else {}
    told = []
    for item, start, end in segment.spans:
        if item in live:
            standing = stands[item].standing if mark else Standing.CURRENT
            words = live[item].memory[start:end]
            told.append(marked(standing, with_speaker(live[item].speaker, words), words))
    return "\n".join(told)


@dataclass(frozen=True, slots=True)
class RemakeJob:
    """Rebuilds vector, keywords and sentences of a segment after an erasure, a change or a new embedder."""

    turns_of: TurnsOf

    def run(self, run: TaskRun) -> None:
        cube, segment_id = run.task.cube, str(run.task.payload["segment"])
        with run.ledger.read() as connection:
            pages = _pages(segment_rows.members(connection, segment_id))
        vectors = page_vectors(self.turns_of, [live_items(page) for page in pages])
        run.check_cancelled(0.5)
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            segment = segment_rows.get_segments(connection, [segment_id]).get(segment_id)
            if segment is None:
                return
            if speakers_of(_pages(segment_rows.members(connection, segment_id))) != speakers_of(pages):
                segment_rows.remake(connection, cube, [segment_id], change.now)
                return
            words = Counter(word for page in pages for word in sorted(page_keywords(page)))
            segment.keywords = dict(words.most_common(segment_rows.KEPT_KEYWORDS))
            segment.vector = vectors.sum(axis=0)
            segment.told, segment.spans = None, []
            segment.spans = spans(connection, segment, pages)
            segment.updated_at = change.now
            segment_rows.save(connection, [segment], [segment_id])


def _pages(messages: Sequence[Item]) -> list[Page]:
    by_page: dict[tuple[str, int], list[Item]] = {}
    for message in messages:
        place = (message.conversation or message.id, message.page or 0)
        by_page.setdefault(place, []).append(message)
    return [Page(number, tuple(members)) for (_, number), members in by_page.items()]


PROMPT = "summary-1"
_SHOWN_MESSAGES = 48
_SHOWN_CHARS = 600


class SummaryAnswer(BaseModel):
    """A model's summary of a segment."""

    summary: str = Field(min_length=1, max_length=1_000)


@dataclass(frozen=True, slots=True)
class SummariseJob:
    """Updates the summary of a segment that has grown, with one model call."""

    asker: Callable[[], LLMClient | None]

    def run(self, run: TaskRun) -> None:
        asker, segment_id = self.asker(), str(run.task.payload["segment"])
        with run.ledger.read() as connection:
            segment = segment_rows.get_segments(connection, [segment_id]).get(segment_id)
            members = [] if segment is None else segment_rows.members(connection, segment_id)
        said = [message for message in members if message.status not in UNUSED]
        if asker is None or segment is None or not said or segment.told_pages >= segment.pages:
            return
        run.check_budget()
        lines = [f"summary so far: {shortened(segment.told or '', _SHOWN_CHARS)}", *map(_line, said[-_SHOWN_MESSAGES:])]
        answer = asker.complete_json(question(PROMPT, lines), SummaryAnswer, meter=meter_of(run, "chat"))
        with run.finishing() as connection:
            changes.begin(connection, run.task.cube, ACTOR, run.clock)
            now = segment_rows.get_segments(connection, [segment_id]).get(segment_id)
            # Otherwise the answer may contain text that was erased or changed meanwhile; a later task asks again.
            if now is not None and _states(segment_rows.members(connection, segment_id)) == _states(members):
                now.told, now.told_pages = answer.summary.strip() or None, segment.pages
                segment_rows.save(connection, [now], [segment_id])


def _states(members: Sequence[Item]) -> list[str]:
    return [message.version_id for message in members]


def _line(message: Item) -> str:
    at = message.said_at or message.created_at
    return f"{at:%F} {shortened(message.speaker, 80)}: {shortened(message.memory, _SHOWN_CHARS)}"


_MOVED_AT_ONCE = 64
# Age from which a segment may be archived: a new one has had no time to be accessed.
GRACE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SweepJob:
    rules: CubeRules

    def run(self, run: TaskRun) -> None:
        with run.finishing() as connection:
            change = changes.begin(connection, run.task.cube, ACTOR, run.clock)
            self.rules.adjust_tau(connection, change.cube, change.now)
            rules = self.rules.ready(connection, change.cube)
            back = self._bring_back(change, rules)
            down = self._archive(change, rules)
            level = rules.policy.level_of(rules.thresholds.promote_above, change.now) - rules.policy.slack
            unread = tier_moves.hot_unread(connection, change.cube, level, 8)
            if any(is_hot(segment, rules, change.now) for segment in unread):
                tier_moves.enqueue(connection, change.cube, tier_moves.analyse_task(), change.now)
            if max(back, down) == _MOVED_AT_ONCE:
                tasks.enqueue(connection, change.cube, [tier_moves.sweep_task()], change.now)

    @staticmethod
    def _bring_back(change: Change, rules: HeatRules) -> int:
        level = rules.policy.level_of(rules.thresholds.promote_above, change.now) - rules.policy.slack
        found = tier_moves.revived(change.connection, change.cube, level, _MOVED_AT_ONCE)
        hot = [segment for segment in found if is_hot(segment, rules, change.now)]
        move(change, rules, hot, OPEN)
        return len(hot)

    def _archive(self, change: Change, rules: HeatRules) -> int:
        connection, cube = change.connection, change.cube
        level = rules.policy.level_of(rules.thresholds.demote_below, change.now)
        beyond = tier_moves.border_of(connection, cube, rules.mid_capacity)
        if beyond is not None:
            # Raised slightly, so that "below" includes the segment at the border.
            level = max(level, beyond + max(1e-9, abs(beyond) * 1e-12))
        before = change.now - GRACE
        found = tier_moves.cold(connection, cube, level, before, _MOVED_AT_ONCE)
        move(change, rules, found, ARCHIVED)
        for unread in tier_moves.cold_unread(connection, cube, level, before, _MOVED_AT_ONCE):
            tier_moves.enqueue(connection, cube, tier_moves.analyse_task(segment=unread, cheaply=True), change.now)
        return len(found)


def move(change: Change, rules: HeatRules, segments: Sequence[SegmentRow], state: str) -> None:
    if not segments:
        return
    heats = {segment.id: rules.policy.heat(warmth_of(segment), change.now) for segment in segments}
    tier_moves.set_state(change.connection, segments, state, change.now)
    tier = "archive" if state == ARCHIVED else "mid"
    body = {"tier": tier, "segments": list(heats), "heat": {id_: round(heat, 4) for id_, heat in heats.items()}}
    changes.record(change, "move", body)
