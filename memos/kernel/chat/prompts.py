"""Build the prompt of a chat: instructions, a fenced memory section within a token budget, history, the question."""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from memos.core.kv_cache import Prefix
from memos.core.ports import ChatMessage, ChatRequest
from memos.core.text import rendering
from memos.core.text.rendering import NOTICE, is_untrusted, memory_section, remembered, speaker_of, wrap_untrusted
from memos.core.text.validation import MAX_MESSAGE_BYTES, check_name, check_text
from memos.core.tokens import estimate_tokens
from memos.core.types import RELEVANT, UNSAID, Hit, Item, ItemType, Message, Role, Standing
from memos.errors import InvalidInput
from memos.kernel.chat.results import Question, Recalled, Reference
from memos.kernel.context import Context
from memos.kernel.former_names import least_relevance
from memos.kernel.search import SearchService
from memos.kernel.tiers import Tiers
from memos.memcube import prompt_prefix
from memos.memcube.ledger import items, tier_moves
from memos.memcube.prompt_prefix import PrefixText
from memos.memcube.standing import standings
from memos.reader.arguments import within
from memos.reader.messages import read_messages
from memos.search.question import MAX_QUERY_CHARS

SYSTEM = "You are a helpful assistant who remembers earlier talks with the user. Answer what you are asked, briefly."
_CITE = "Where you use something remembered, put its mark right behind it, such as [m1]."
_NOTHING = 'Nothing is remembered about this. Asked about the user or earlier talks, say "I don\'t know".'


def instructed(section: str) -> str:
    """Return the system message of a chat with the usual instructions and a memory section."""
    return f"{SYSTEM}\n\n{_CITE}\n\n{section}"


def history_of(question: Question, zone: ZoneInfo, now: datetime) -> list[ChatMessage]:
    if question.history is None or (isinstance(question.history, Sequence) and not question.history):
        return []
    try:
        read = read_messages(question.history, zone, now)
    except InvalidInput as error:
        raise InvalidInput(f"history{error.field.removeprefix('messages')}", error.reason) from error
    return [_turn(place, message) for place, message in enumerate(read)]


def _turn(place: int, message: Message) -> ChatMessage:
    match message.role:
        case Role.USER:
            return ChatMessage("user", message.text)
        case Role.ASSISTANT:
            return ChatMessage("assistant", message.text)
        case Role.SYSTEM:
            return ChatMessage("system", message.text)
        case other:
            raise InvalidInput(f"history[{place}].role", f"{other} is not a role here; use user, assistant or system")


def request_of(question: Question, recalled: Recalled, history: Sequence[ChatMessage], *, cube: str) -> ChatRequest:
    """Build the chat request; the KV of its prefix may be cached for the cube. Raises: InvalidInput."""
    given = question.system_prompt
    system = SYSTEM if given is None else check_text("system_prompt", given, MAX_MESSAGE_BYTES)
    part = recalled.prefix
    starts: tuple[tuple[int, str], ...] = ()
    if recalled.shown or part is not None:
        system = f"{system}\n\n{_CITE}"
    elif given is None and not history:
        system = f"{system}\n\n{_NOTHING}"
    stable = len(system)
    if part is not None:
        begin = len(system) + 2
        system = f"{system}\n\n{part.section}"
        stable, starts = begin + part.stable, tuple((begin + char, id_) for char, id_ in part.starts)
    if recalled.section:
        system = f"{system}\n\n{recalled.section}"
    head = [ChatMessage("system", system)] if system.strip() else []
    return ChatRequest(
        (*head, *history, ChatMessage("user", question.query)),
        question.max_tokens,
        question.temperature,
        top_p=question.top_p,
        prefix=Prefix(cube, stable if head else 0, starts),
    )


_STANDING_SHARE, _RECENT_SHARE = 0.4, 0.35
_TOP_K = 12  # most memories a search gives to a prompt, where a question asks for no other number
_LARGEST_ENTRY = 4  # no one memory takes more than this part of the room
_WIDEST_MARK = "m9999"
_RECENT = "Said last in this conversation:"
_CUT = " […]"


@dataclass(frozen=True, slots=True)
class Entry:
    text: str
    at: datetime | None
    speaker: str | None
    untrusted: bool
    item: Item | None = None
    relevance: float | None = None
    standing: Standing = Standing.CURRENT

    @classmethod
    def of(cls, item: Item, standing: Standing) -> Entry:
        doubtful = is_untrusted(item.sources)
        at = item.sources[0].at if item.sources else item.valid_from or item.said_at
        if doubtful:
            return cls(item.memory, at, speaker_of(item, item.sources), True, item, standing=standing)
        return cls(item.memory, at, None if item.type in UNSAID else item.speaker, False, item, standing=standing)

    @classmethod
    def found(cls, hit: Hit) -> Entry:
        at = hit.sources[0].at if hit.sources else hit.item.valid_from
        doubtful = is_untrusted(hit.sources)
        named = None if hit.item.type is ItemType.RECORD else hit.item.speaker
        speaker = speaker_of(hit.item, hit.sources) if doubtful else named
        return cls(hit.item.memory, at, speaker, doubtful, hit.item, hit.relevance, hit.standing)

    @classmethod
    def topic(cls, text: str, *, untrusted: bool) -> Entry:
        return cls(text, None, "conversation" if untrusted else "Topic", untrusted)

    def shown(self, most: int) -> str:
        """Render the entry as a line, its text cut to about `most` tokens."""
        text = _cut(self.text, most).replace("\n", "\n  ")
        if self.untrusted:
            told = wrap_untrusted(text, self.speaker or "")
        else:
            told = text if self.speaker is None else rendering.with_speaker(self.speaker, text)
        return remembered(rendering.marked(self.standing, told, self.text))


@dataclass(slots=True)
class _Filling:
    left: int
    most: int
    seen: set[str]
    noticed: bool = False

    def take(self, entry: Entry, room: int) -> tuple[Entry, str, int] | None:
        text = entry.shown(self.most)
        line = rendering.citation(_WIDEST_MARK, entry.at, text)
        notice = entry.untrusted and not self.noticed
        cost = estimate_tokens(line + "\n") + (estimate_tokens(NOTICE + "\n") if notice else 0)
        known = text in self.seen or (entry.item is not None and entry.item.id in self.seen)
        if known or cost > min(room, self.left):
            return None
        self.seen |= {text} if entry.item is None else {text, entry.item.id}
        self.left -= cost
        self.noticed = self.noticed or notice
        return entry, text, cost


def section_of(
    standing: Sequence[Entry],
    recent: Sequence[Entry],
    found: Sequence[Entry],
    budget: int,
    *,
    marks: bool,
    marked: int = 0,
) -> Recalled:
    """Return a memory section of at most `budget` estimated tokens.

    Standing memories get at most two fifths of the room, recent ones a third, newest first; hits get the rest. With
    `marks` each item gets a citation mark, numbered from `marked` + 1.
    """
    room = budget - estimate_tokens(memory_section([]) + "\n\n")
    filling = _Filling(room, max(1, room // _LARGEST_ENTRY), set())
    first = _fill(filling, standing, int(room * _STANDING_SHARE))
    last_room = int(room * _RECENT_SHARE) - estimate_tokens(_RECENT + "\n")
    filling.left -= estimate_tokens(_RECENT + "\n") if recent else 0
    last = _fill(filling, recent[::-1], last_room, whole=True)[::-1]
    middle = _fill(filling, found, filling.left)
    taken = [*first, *middle, *last]
    if not taken:
        return Recalled("", 0, (), False)
    lines: list[str] = [NOTICE] if filling.noticed else []
    shown: list[Reference] = []
    for place, (entry, text) in enumerate(taken):
        if last and place == len(first) + len(middle):
            lines.append(_RECENT)
        if entry.item is None:
            lines.append(f"- {text}")
            continue
        reference = _reference(entry, entry.item, f"m{marked + len(shown) + 1}")
        lines.append(
            rendering.citation(reference.mark, entry.at, text) if marks else f"- {rendering.dated(entry.at, text)}"
        )
        shown.append(reference)
    text = memory_section(lines)
    return Recalled(text, estimate_tokens(text), tuple(shown), filling.noticed)


def known_ids(entries: Sequence[Entry]) -> Set[str]:
    return {entry.item.id for entry in entries if entry.item is not None}


def _fill(filling: _Filling, entries: Sequence[Entry], room: int, *, whole: bool = False) -> list[tuple[Entry, str]]:
    taken: list[tuple[Entry, str]] = []
    for entry in entries:
        found = filling.take(entry, room)
        if found is not None:
            taken.append(found[:2])
            room -= found[2]
        elif whole:
            break
    return taken


def _reference(entry: Entry, item: Item, mark: str) -> Reference:
    return Reference(mark, item.id, item.cube, item.memory, item.speaker, entry.at, entry.relevance)


def _cut(text: str, tokens: int) -> str:
    if estimate_tokens(text) <= tokens:
        return text
    short, long = 0, len(text)
    while short + 1 < long:
        middle = (short + long) // 2
        if estimate_tokens(text[:middle] + _CUT) <= tokens:
            short = middle
        else:
            long = middle
    return text[:short] + _CUT


_RECENT_PAGES = 6
_STANDING_DIVISOR = 2
_SAID = (Role.USER, Role.ASSISTANT)


@dataclass(frozen=True, slots=True)
class Recalling:
    context: Context
    search: SearchService
    tiers: Tiers

    def __call__(self, question: Question, *, marks: bool) -> Recalled:
        began = time.perf_counter()
        budget = self.context.settings.recall.tokens if question.token_budget is None else question.token_budget
        budget = within("token_budget", budget, 1, 1_000_000)
        scope = self.context.scopes.check(question.cubes, question.actor)
        prefix = self._prefix(question, scope.cubes[0], budget, marks=marks)
        there = set() if prefix is None else {item.id for _, item in prefix.shown}
        standing = [entry for entry in self._standing(question, scope.cubes[0], budget) if _id(entry) not in there]
        recent = self._recent(question, scope.cubes[0])
        known, said = {*known_ids([*standing, *recent]), *there}, set(question.known)
        found = [entry for entry in self._found(question) if entry.item is None or entry.item.id not in known]
        found = [entry for entry in found if entry.text not in said]
        recalled = section_of(standing, recent, found, budget, marks=marks, marked=0 if prefix is None else prefix.last)
        if prefix is not None:
            first = [_prefix_reference(number, item) for number, item in prefix.shown]
            tokens = prefix.tokens + recalled.tokens
            recalled = replace(recalled, prefix=prefix, shown=(*first, *recalled.shown), tokens=tokens)
        return replace(recalled, timings_ms={"recall": round((time.perf_counter() - began) * 1000, 2)})

    def _prefix(self, question: Question, cube: str, budget: int, *, marks: bool) -> PrefixText | None:
        if not (question.working and self.context.settings.prefix_room):
            return None
        with self.context.ledger.read() as connection:
            part = prompt_prefix.read(
                connection, cube, self.context.clock.now(), self.context.settings.prefix_room, marks=marks
            )
        small = question.token_budget is not None and part is not None and part.tokens > budget
        return None if small else part

    def _standing(self, question: Question, cube: str, budget: int) -> list[Entry]:
        if not question.working:
            return []
        most = max(1, budget // _STANDING_DIVISOR)
        working = self.tiers.working_memory(question.conversation, cube=cube, actor=question.actor, max_tokens=most)
        entries = [Entry.of(item, working.standings[item.id]) for item in working.items]
        if working.topic:
            entries.append(Entry.topic(working.topic, untrusted=working.topic_untrusted))
        return entries

    def _recent(self, question: Question, cube: str) -> list[Entry]:
        if question.conversation is None or not question.recent:
            return []
        scope = self.context.scopes.check([cube], question.actor)
        name = self.context.scopes.masking(scope).name(
            "conversation", check_name("conversation", question.conversation)
        )
        with self.context.ledger.read() as connection:
            pages = tier_moves.newest(connection, cube, name, _RECENT_PAGES)
            said = [item.id for page in pages for item in page.messages if item.role in _SAID]
            states = items.with_sources(connection, [cube], said)
            stands = standings(connection, list(states.values()), self.context.clock.now())
        return [Entry.of(states[id_], stands[id_].standing) for id_ in said if id_ in states]

    def _found(self, question: Question) -> list[Entry]:
        asked = question.query[:MAX_QUERY_CHARS]
        if not asked.strip():  # a picture alone
            return []
        least = RELEVANT if question.min_relevance is None else question.min_relevance
        found = self.search(
            asked,
            cubes=question.cubes,
            actor=question.actor,
            top_k=_TOP_K if question.top_k is None else question.top_k,
            filter=question.filter,
            reference_time=question.reference_time,
            min_relevance=least_relevance(least, question.relevance),
        )
        return [Entry.found(hit) for hit in found.hits]


def _id(entry: Entry) -> str | None:
    return None if entry.item is None else entry.item.id


def _prefix_reference(number: int, item: Item) -> Reference:
    return Reference(f"m{number}", item.id, item.cube, item.memory, item.speaker, prompt_prefix.date_of(item))
