"""Find facts without a model: what users state, like and order, what assistants say of themselves.

Conservative: a fact is a sentence as it was written, so a wrong one can be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from memos.core.text.instructions import is_commitment, own_name, reads_like_instruction, standing_instructions
from memos.core.text.preferences import Liking, firm_preference, likings
from memos.core.text.sentences import asserted, is_question, sentences, without_pasted_text
from memos.core.text.statements import Kind, Statement, key_of, past_statements, self_disclosures, statements
from memos.core.text.times import TimeExpression, time_expressions
from memos.core.types import Fact, Item, ItemType, Role, Span, Trust
from memos.reader.facts.grounding import said_at, trust_of
from memos.reader.facts.skills import skills

READER = "patterns/2"
# Patterns look for what people say of themselves; a pasted megabyte is not that.
SCAN_CHARS = 4_000
_MOST_CHARS = 500
_MOST_STATED = 8
# A page full of orders is one thing to look at, not a hundred.
_MOST_DOUBTFUL = 3
_CONFIDENCE = {ItemType.USER: 0.9, ItemType.PREFERENCE: 0.8, ItemType.INSTRUCTION: 0.8, ItemType.ASSISTANT: 0.6}
_UNTIL = re.compile(r"\b(?:until|till|til|through|up to)\s*$|(?:直到|到)$", re.IGNORECASE)
# "I used to live there in 2015" says when it was so, "I left in 2015" when it ended.
_WAS_SO = re.compile(r"used to|\blived\b|以前|之前|曾|过去|原来|从前")
_SINCE = re.compile(r"since\b", re.IGNORECASE)
# "No, I moved to Lyon in May" is the newest word, whatever was said in June.
_CORRECTS = re.compile(r"(?:no|nope|sorry|wait|correction)\b[,:;.!— -]|(?:不是?|不对|更正|抱歉)[，,：:]", re.IGNORECASE)
_WISH = re.compile(
    r"\bI(?:['’]d| would) (?:really |absolutely |just )?(?:love|like|enjoy|hate)\b|\bI hate to \w", re.IGNORECASE
)
_JOINS = frozenset("and but so that because since as also now then actually btw no yes hi hello ok okay well".split())  # noqa: SIM905
_PAST = re.compile(r"^[Mm]y [\w\- ]{1,30} (?:was|were) ")
# "My birthday is on 12 September" has been so before that day.
_TIMELESS = frozenset({"my:birthday", "my:生日", "name"})
_NOT_TO = re.compile(r"(?:don['’]t|do not|never|stop|no longer|not|不要|不|别|别再)(?: ever)?\s*$", re.IGNORECASE)
_AT_TIMES = re.compile(r"\b(?:when|whenever|if|unless|every time)\b|如果|的时候|每当|每次", re.IGNORECASE)
_ENOUGH = re.compile(r"(?:就可以了?|就行了?|就好了?|好了|吧|哦)$")
_BETWEEN = re.compile(
    r"\s*[,，;；、]\s*(?:(?:and|but)\s+|但是?|而且|不过)?|\s+(?:and|but)\s+(?:now\s+)?|但是?|而且|不过", re.IGNORECASE
)
_CALLED = re.compile(
    r"(?<!n['’]t )(?<!not )(?<!never )\b[Cc]all me (?P<v>(?:(?:Dr|Mrs?|Ms|Prof)\. )?[\w'’\-]+(?: [A-Z][\w'’\-]*){0,3})"
    r"|(?<!别)(?<!不要)(?<!不)(?:叫我|称呼我为?)(?P<h>[^\s，。！？,.!?]{1,12})"
)
_ANSWERS_IN = re.compile(
    r"\b(?:answer|reply|respond|speak|talk|write)(?: to)?(?: me| us)?(?: back)?(?: only)? in (?P<v>[A-Z][a-z]+)\b"
    r"|用(?P<h>中文|英文|英语|日文|日语|法语|德语|韩语|西班牙语|俄语|普通话|粤语)(?:来)?(?:回答|回复|说|写|交流)"
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    item: Item
    text: str
    start: int
    end: int
    zone: ZoneInfo

    @property
    def said_at(self) -> datetime:
        return said_at(self.item)


def facts_by_pattern(messages: Sequence[Item], zone: ZoneInfo) -> list[Fact]:
    found = [fact for item in messages for fact in _of_message(item, zone)]
    return found + skills(messages, READER)


def _of_message(item: Item, zone: ZoneInfo) -> Iterator[Fact]:
    whole = item.memory[:SCAN_CHARS]
    # Of a tool's output whatever it tries to order is to be seen, in code, too.
    head = whole if trust_of([item]) is Trust.UNTRUSTED else without_pasted_text(whole)
    said = [_Sentence(item, head[start:end], start, end, zone) for start, end in sentences(head)]
    said = [sentence for sentence in said if sentence.text == whole[sentence.start : sentence.end]]
    match item.role:
        case Role.USER:
            orders = _orders(item, head, said)
            for sentence in said:
                found = _stated(sentence)
                if sentence in orders:
                    found.append((0, _instruction(sentence)))
                else:
                    found += _preferences(sentence)
                    found += _told(sentence, found)
                yield from _divided(sentence, found)
        case Role.ASSISTANT:
            for sentence in said:
                yield from _of_assistant(sentence)
        case Role.TOOL:
            for sentence in _orders(item, head, said):
                yield _instruction(sentence)


def _orders(item: Item, head: str, said: Sequence[_Sentence]) -> list[_Sentence]:
    if trust_of([item]) is Trust.UNTRUSTED:
        return [sentence for sentence in said if reads_like_instruction(sentence.text)][:_MOST_DOUBTFUL]
    standing = set(standing_instructions(head)) if item.role is Role.USER else set()
    return [sentence for sentence in said if (sentence.start, sentence.end) in standing]


def _divided(sentence: _Sentence, found: Sequence[tuple[int, Fact]]) -> Iterator[Fact]:
    """Split the facts of a sentence into parts, so that changing one leaves no other behind."""
    # "I live in Paris, and I like tea" is split before "I like"; text without a separator stays together.
    text = sentence.text
    starts = sorted({start for start, fact in found if fact.type is not ItemType.INSTRUCTION})
    parts: dict[int, tuple[int, int]] = {}
    begin, first = 0, 0
    for place, start in enumerate(starts):
        following = starts[place + 1] if place + 1 < len(starts) else None
        cut = None if following is None else _last(_BETWEEN, text, start, following)
        if cut is not None or following is None:
            parts |= dict.fromkeys(starts[first : place + 1], (begin, len(text) if cut is None else cut[0]))
            begin, first = (0 if cut is None else cut[1]), place + 1
    for start, fact in found:
        piece = (0, len(text)) if fact.type is ItemType.INSTRUCTION else parts[start]
        yield _worded(sentence, fact, piece, start)


def _last(pattern: re.Pattern[str], text: str, start: int, end: int) -> tuple[int, int] | None:
    return next((match.span() for match in pattern.finditer(text, start, end) if match.end() == end), None)


def _worded(sentence: _Sentence, fact: Fact, piece: tuple[int, int], focus: int) -> Fact:
    begin, end = piece
    start, end = _cut(sentence.text[begin:end], focus - begin)
    start, end = begin + start, begin + end
    span = Span(sentence.item.id, sentence.start + start, sentence.start + end)
    return replace(fact, memory=sentence.text[start:end], spans=(span,))


def _stated(sentence: _Sentence) -> list[tuple[int, Fact]]:
    text = sentence.text
    told = []
    found = sorted([*statements(text), *past_statements(text)], key=lambda each: each.start)
    for stated in found[:_MOST_STATED]:
        if asserted(text, stated.start, stated.end) and not _in_passing(text, stated):
            # A favourite colour is a preference that has a key of its own.
            liked = stated.attribute.startswith("my:favorite")
            kind, tags = (ItemType.PREFERENCE, ("explicit",)) if liked else (ItemType.USER, ())
            about = stated.attribute, stated.value
            told.append((stated.start, _fact(sentence, kind, about, _validity(sentence, stated), tags)))
    return told


def _in_passing(text: str, stated: Statement) -> bool:
    """Return True for "losing my job was hard" and "my job was hard": neither says what the job is."""
    if not stated.attribute.startswith("my:"):
        return False
    before = text[: stated.start].split()
    inside = bool(before) and before[-1].isalpha() and before[-1].casefold() not in _JOINS
    return inside or _PAST.search(text[stated.start : stated.end]) is not None


def _preferences(sentence: _Sentence) -> list[tuple[int, Fact]]:
    text = sentence.text
    if is_question(text):
        return []
    told = []
    for liked in likings(text)[:_MOST_STATED]:
        if asserted(text, liked.start, liked.end) and not _WISH.search(text[liked.start : liked.end]):
            answer = "yes" if liked.likes else "no"
            about = None if liked.thing is None else (f"likes:{liked.thing}", answer)
            found = _fact(sentence, ItemType.PREFERENCE, about, _validity(sentence, liked), ("explicit",))
            told.append((liked.start, found))
    firm = firm_preference(text)
    if firm is None or not asserted(text, *firm) or _WISH.search(text):
        return told
    if any(each.attribute.startswith("my:favorite") for each in statements(text)):
        return told
    # "I'm allergic to nuts and I love tea" says two things; "I hate it that I can't eat nuts" says one.
    if any(liked.start < firm[1] and firm[0] < liked.end for liked in likings(text)):
        return told
    return [*told, (firm[0], _fact(sentence, ItemType.PREFERENCE, None, _validity(sentence, None), ("explicit",)))]


def _told(sentence: _Sentence, found: Sequence[tuple[int, Fact]]) -> list[tuple[int, Fact]]:
    text = sentence.text
    if is_question(text):
        return []
    told: list[tuple[int, Fact]] = []
    for telling in self_disclosures(text)[:_MOST_STATED]:
        taken = any(telling.start <= start < telling.end for start, _ in found)
        if not taken and asserted(text, telling.start, telling.end):
            began = (sentence.said_at, None) if telling.kind is Kind.PLAN else _validity(sentence, None)
            told.append((telling.start, _fact(sentence, ItemType.USER, None, began)))
    return told


def _instruction(sentence: _Sentence) -> Fact:
    about = _ordered(sentence.text) if sentence.item.role is Role.USER else None
    # A time in an order is part of what is ordered; the order holds since it was given.
    return _fact(sentence, ItemType.INSTRUCTION, about, (sentence.said_at, None), ("explicit",))


def _ordered(text: str) -> tuple[str, str] | None:
    for attribute, pattern in (("called", _CALLED), ("answers in", _ANSWERS_IN)):
        for match in pattern.finditer(text):
            value = _ENOUGH.sub("", match.group("v") or match.group("h"))
            at_times = attribute == "answers in" and _AT_TIMES.search(text)
            if value and not at_times and not _NOT_TO.search(text[: match.start()]):
                return attribute, value
    return None


def _of_assistant(sentence: _Sentence) -> Iterator[Fact]:
    name = own_name(sentence.text)
    if is_question(sentence.text) or (name is None and not is_commitment(sentence.text)):
        return
    about = None if name is None else ("name", name)
    yield _fact(sentence, ItemType.ASSISTANT, about, _validity(sentence, None))


def _validity(sentence: _Sentence, said: Statement | Liking | None) -> tuple[datetime | None, datetime | None]:
    since, until = _times(sentence, said)
    now = sentence.said_at
    if isinstance(said, Statement) and said.attribute in _TIMELESS and not said.ended:
        return now, None
    if said is None or not said.ended:
        # "I live in Paris; tomorrow I fly to Rome" is so already, "I moved to Rome today" since it was said.
        began = since is not None and (since.valid_to <= now or (_SINCE.match(since.text) and since.valid_from <= now))
        begun = since.valid_from if since is not None and began and not _CORRECTS.match(sentence.text) else now
        return begun, until.valid_from if until is not None and until.valid_from > begun else None
    matched = sentence.text[said.start : said.end]
    named = since.valid_from if since is not None and since.valid_from < now else None
    if _WAS_SO.search(matched):
        over = until.valid_from if until is not None and until.valid_from < now else now
        if until is None and since is not None and since.valid_to <= now and not _SINCE.match(since.text):
            over = since.valid_to  # "I lived there in 2015" says nothing of the years after
        return (named if named is not None and named < over else None), over
    return None, named or now


def times_of(item: Item, text: str, zone: ZoneInfo) -> tuple[datetime | None, datetime | None]:
    """Return since when and until when a sentence of a message is true, by the times that it names."""
    return _validity(_Sentence(item, text, 0, len(text), zone), None)


def _times(sentence: _Sentence, said: Statement | Liking | None) -> tuple[TimeExpression | None, TimeExpression | None]:
    value = said.value if isinstance(said, Statement) else ""
    at = sentence.text.find(value, said.start) if said is not None and value else 0
    since, until = None, None
    for time in time_expressions(sentence.text, sentence.said_at, sentence.zone):
        if value and time.start < at + len(value) and time.end > at:
            continue
        if _UNTIL.match(time.text.split()[0]) or _UNTIL.search(sentence.text[: time.start]):
            until = until or time
        else:
            since = since or time
    return since, until


def _fact(
    sentence: _Sentence,
    type_: ItemType,
    about: tuple[str, str] | None,
    valid: tuple[datetime | None, datetime | None],
    tags: tuple[str, ...] = (),
) -> Fact:
    start, end = _cut(sentence.text, 0)
    item = sentence.item
    return Fact(
        type=type_,
        memory=sentence.text[start:end],
        spans=(Span(item.id, sentence.start + start, sentence.start + end),),
        subject=item.speaker,
        reader=READER,
        said_at=sentence.said_at,
        key=None if about is None else key_of(item.speaker, about[0]),
        value=None if about is None else about[1],
        confidence=_CONFIDENCE[type_],
        valid_from=valid[0],
        valid_to=valid[1],
        tags=tags,
        trust=trust_of([item]),
    )


def _cut(text: str, focus: int) -> tuple[int, int]:
    if len(text) <= _MOST_CHARS:
        return 0, len(text)
    start = max(0, min(focus - 100, len(text) - _MOST_CHARS))
    piece = text[start : start + _MOST_CHARS]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
