"""Parse a question without a model: quotes, names, times and the kind of answer wanted."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from memos.core.clock import to_micros
from memos.core.filters import And, Condition, Node, Not, Op, Or, fields_of
from memos.core.text import wording_by_language
from memos.core.text.caches import cached_by_text
from memos.core.text.claims import Claim, read_claim, terms_of
from memos.core.text.matching import entities
from memos.core.text.sentences import is_request
from memos.core.text.times import TimeExpression, time_expressions
from memos.core.types import FOUND, TOLD, Scope, Status
from memos.memcube.ledger import items
from memos.memcube.ledger.entities import fold
from memos.search.merged_names import MergedName, spelled_otherwise

MAX_TOP_K = 1_000  # largest `top_k` of a search
MAX_QUERY_CHARS = 20_000  # longest question in characters
_CHARS_BEFORE = 40  # characters before a time that are looked at; longer phrases say something else
_UNITS = {"day": 1, "weekend": 7, "week": 7, "month": 31, "year": 366}
_UNIT = "(?P<unit>day|weekend|week|month|year)s?"
_BESIDE = re.compile(rf"\b(?:(?P<count>\d{{1,2}}) )?{_UNIT} (?P<side>before|after|following|prior to) (?:the )?$", re.I)
_FROM = re.compile(r"\bsince (?:the )?(?:start of |beginning of )?$|自从?$", re.I)
_AFTER = re.compile(r"\b(?:after|following) (?:the )?$", re.I)
_BEFORE = re.compile(r"\b(?:before|prior to|until|till|up to) (?:the )?$|(?:直到|截止?到?)$", re.I)
# What a month or a year is found with, and is no part of it.
_LEADS = re.compile(r"(?:in|during|since|until|early|late|of|by) ", re.I)
_BETWEEN = re.compile(r"^\s*(?:,\s*\d{4}\s*)?(?:and|to|until|through|-|–|到|至)\s*(?:the )?$", re.I)
_BETWEEN_OPENS = re.compile(r"\b(?:between|from) (?:the )?$|从$", re.I)
_PART = re.compile(
    r"\b(?:(?P<nth>first|second|third|fourth|last|1st|2nd|3rd|4th) (?P<piece>half|week|weekend) (?:of|in) "
    r"|(?P<third>early|mid|late)[ -](?:in )?|(?:the )?(?P<end>beginning|start|middle|end) of )(?:the )?$",
    re.I,
)
_OF = re.compile(r"^ (?:of|in) (?:the )?$|^ $", re.I)
_PIECE = re.compile(r"^last week(?:end)?$", re.I)
_NTH = {"first": 0, "1st": 0, "second": 1, "2nd": 1, "third": 2, "3rd": 2, "fourth": 3, "4th": 3, "last": -1}
_THIRDS = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}


class Span(NamedTuple):
    """The moments from `since` up to, not including, `until`; None where that side is open."""

    since: datetime | None
    until: datetime | None

    def holds(self, moment: datetime) -> bool:
        """Return whether a moment is in it."""
        return (self.since is None or self.since <= moment) and (self.until is None or moment < self.until)


def asked_spans(text: str, times: Sequence[TimeExpression], asked_at: datetime) -> tuple[Span, ...]:
    """Return the spans a question asks about, in its order; "after" and "since" reach to `asked_at` (aware)."""
    found: list[Span] = []
    taken = False
    for place, time in enumerate(times):
        follows = text[time.end : times[place + 1].start] if place + 1 < len(times) else ""
        # "The last week of May" is no week before today.
        if taken or (_OF.search(follows) and _PIECE.search(time.text)):
            taken = False
            continue
        leads = _LEADS.match(time.text)
        begin = time.start + (leads.end() if leads else 0)
        before = text[max(0, begin - _CHARS_BEFORE) : begin]
        after = times[place + 1] if place + 1 < len(times) else None
        if after is not None and _BETWEEN_OPENS.search(before) and _BETWEEN.match(follows):
            found.append(Span(time.valid_from, max(time.valid_to, after.valid_to)))
            taken = True
        else:
            found.append(_span(before, time, asked_at.astimezone(UTC)))
    return tuple(found)


def of_spans(spans: Sequence[Span]) -> Node:
    parts: list[Node] = []
    for span in spans:
        for begin, end in (("said_at", "said_at"), ("valid_from", "valid_from"), ("valid_from", "valid_to")):
            sides = []
            if span.until is not None:
                sides.append(Condition(begin, Op.LT, to_micros(span.until)))
            if span.since is not None:
                sides.append(Condition(end, Op.GTE if begin == end else Op.GT, to_micros(span.since)))
            parts.append(And(tuple(sides)))
    return Or(tuple(parts))


def _span(before: str, time: TimeExpression, asked_at: datetime) -> Span:
    since, until = time.valid_from, time.valid_to
    if beside := _BESIDE.search(before):
        length = int(beside["count"] or 1) * _UNITS[beside["unit"].casefold()]
        if beside["side"].casefold() in ("before", "prior to"):
            return Span(_moved(since, -length), since)
        return Span(until, _moved(until, length))
    if part := _PART.search(before):
        return _part(part, since, until)
    if _FROM.search(before):
        return Span(since, max(until, asked_at))
    if _AFTER.search(before):
        return Span(until, max(until, asked_at))
    if _BEFORE.search(before):
        return Span(None, since)
    return Span(since, until)


def _part(part: re.Match[str], since: datetime, until: datetime) -> Span:
    whole = until - since
    if whole <= timedelta(days=7):
        return Span(since, until)
    if part["nth"] is None:
        third = whole / 3
        place = _THIRDS[(part["third"] or part["end"]).casefold()]
        return Span(since + place * third, since + (place + 1) * third)
    length = whole / 2 if part["piece"].casefold() == "half" else timedelta(days=7)
    place = _NTH[part["nth"].casefold()]
    if place < 0:
        return Span(until - length, until)
    return Span(min(since + place * length, until - length), min(since + (place + 1) * length, until))


def _moved(moment: datetime, days: int) -> datetime | None:
    try:
        return moment + timedelta(days=days)
    except OverflowError:  # beyond the calendar
        return None


_QUOTED = re.compile(r"[\"“「『《]([^\"”」』》\n]{2,100})[\"”」』》]|(?<!\w)'([^'\n]{2,100})'(?!\w)")

_WORD = re.compile(r"[\u3400-\u9fff]|\w+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")  # scripts that put no space between words
# Of the words that have a space between them: Ann stands alone in "Ann喜欢什么", and not in "Anna".
_LETTER = r"[^\W\u3040-\u30ff\u3400-\u9fff]"
_LEAST_WORDS = 3  # words that have to be left of a question without names: "Who is" asks for nothing

# Words that are names as well, of people or of roles: they are meant only as they are written, with a capital.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an i me my you your he she they we it is are was do does did has have had will can may must the this that "
        "and or of in on at to for from with what who which when where why how user assistant system tool agent bot "
        "mark bill rob grant chase drew hope faith grace joy rose art sue pat guy",
    )
)
_MONTHS = frozenset(
    re.findall(r"\w+", "january february march april may june july august september october november december")
)
_NO_MONTH = "".join(
    f"(?<!\\b{before} )" for before in ("in", "of", "on", "by", "this", "last", "next", "since", "until")
)


class Intent(StrEnum):
    COUNT = "count"
    LIST = "list"
    LATEST = "latest"
    FIRST = "first"
    FORMER = "former"
    ADVICE = "advice"
    WHEN = "when"
    DONE = "done"
    ORDER = "order"
    OWN = "own"
    """Asks about the asker."""
    ANSWERED = "answered"
    """Asks what the assistant said."""


_ANSWERING = (
    r"(?:recommend|suggest|advise|guide|help|explain|propose|tell|told|give|given|show|offer|list|describe|say|said|"
    r"mention|walk|assist|outline|provide|teach|write|answer|share|come up with|make|create|generate|draft|prepare)"
)
_ANSWERED = (
    r"(?:recommended|suggested|advised|guided|explained|proposed|told|gave|showed|offered|listed|described|said|"
    r"mentioned|walked|outlined|provided|taught|wrote|answered|shared|came up with|made|created|generated|drafted|"
    r"prepared)"
)
_ANSWERED_GERMAN = r"(?:empfohlen|gesagt|geraten|vorgeschlagen|erklärt|genannt|gegeben|erwähnt|geschrieben|gezeigt)\b"

_INTENTS = {
    Intent.COUNT: re.compile(
        r"\bhow (?:many|often|much)\b|\bnumber of\b|几[个次位本只场]|多少|いくつ|何[回個人]", re.I
    ),
    Intent.LIST: re.compile(
        r"^\s*(?:list|name)\b|\b(?:what|which) (?:are|were|other|all|kinds?|types?|sorts?)\b|\ball the\b"
        r"|\bboth\b|\bin common\b|\b(?:kinds?|types?|sorts?) of\b|\bshare\b"
        # "What books has he read?", "which two mystery novels did": a plural within three words, and a verb after it.
        r"|\b(?:what|which) (?:(?!(?:is|was|does|did|do|has|have|had|will|would|can|could|made|makes|kept)\b)\w+ ){0,2}"
        r"(?!\w*(?:ss|us|is)\b|does\b)\w{2,}s "
        r"(?:is|are|was|were|do|does|did|has|have|had|will|would|can|could|might|may|should|of|besides)\b"
        r"|哪些|列出|有什么|どんな",
        re.I,
    ),
    Intent.LATEST: re.compile(
        r"\b(?:latest|currently|current|(?<!before )now|nowadays|these days|most recent(?:ly)?|newest|at the moment|"
        r"still|last time)\b"
        r"|现在|目前|最新|如今|最近一次|上一?次|今の|最新の",
        re.I,
    ),
    # What came first of several, not who came first: "first place".
    Intent.FIRST: re.compile(
        r"\b(?:earliest|initially|originally|"
        r"first(?! (?:name|aid|class|floor|half|hand|person|lady|language|grade|place|prize)\b))\b"
        r"|第一次|最早|最初|初めて",
        re.I,
    ),
    # "Is he used to it?" asks how it is, "which tool was used to" and "what did she use to clean" by what means; 走过去
    # goes somewhere, 过去一年 is the year until now, 原来如此 is surprise.
    Intent.FORMER: re.compile(
        r""
        r"(?<!\bis )(?<!\bare )(?<!\bam )(?<!\bwas )(?<!\bwere )(?<!\bbe )(?<!\bbeen )(?<!\bbeing )(?<!['’]s )"
        r"(?<!\bget )(?<!\bgot )(?<!\bgetting )\bused to\b|"
        r"\b(?:where|whom?|why)\b.{0,40}\bdid\b.{1,80}\buse to\b|^\W*did\b.{1,80}\buse to\b|"
        r"\b(?:formerly|former|previous(?:ly)?|originally|original|initial(?:ly)?)\b|\bin the past\b(?! (?:few|"
        r"couple|\w+ )?(?:second|minute|hour|day|week|month|quarter|year|decade)s?\b)|\b(?:was|were|did|had|been|"
        r"came)\b.{1,80}\bbefore\b|\bbefore (?:that|then|now|the|she|he|they|it|[A-Z])|\bbefore\W*$|\bearlier\W*$|"
        r"\b(?:was|were|did|had)\b.{1,80}\b(?:earlier|at first|once|back then|at the time|in those days|"
        r"to begin with|at the start|planned first)\b|\b(?:was|were) (?:the|his|her|their|its|my|our|your) old \w+|"
        r"\b(?:the|his|her|their|its|my|our|whose) (?:old|first|earlier|prior) (?:\w+ ){0,2}(?:name|policy|address|"
        r"number|job|home|flat|car|price|rate|plan|employer|boss|title|team|place|version|provider|password|date|"
        r"time|day|rent|limit|tool|desk)\b|\bold name\b|"
        r"以前|从前|之前|(?<![走跑飞开搬送拿赶])过去(?![了吗?？一二两三几这那\d])|曾经|原来(?!如此|"
        r"是这样|是你)|原先|早先|当时|那时|最初|最早|最开始|小时候|本来|[婚迁学职业]前|かつて|昔|\b(?:früher|vorher|zuvor|damals|ursprünglich|"
        r"ehemalig\w*|bisher|zuerst|bevor)\b|\bhatte\b.{1,40}\bvor de[mr]\b|"
        r"^\W*w\w+ (?:\w+ )?(?:habe|hast|hat|haben|war|waren|hatte|hatten)\b.{1,40}\bvor (?-i:[A-ZÄÖÜ])\w+ |"
        r"\b(?:antes|anteriormente|anterior|"
        r"originalmente|al principio|entonces)\b",
        re.I,
    ),
    Intent.ADVICE: re.compile(
        r"\b(?:recommend(?:ations?|ed)?|suggest(?:ions?)?|advice|advise|tips|ideas?|what should I|should I|where can I|"
        r"help me (?:find|choose|pick|plan)|what are some|any good|options)\b|推荐|建议|おすすめ",
        re.I,
    ),
    Intent.WHEN: re.compile(
        r"^\W*(?:when|what (?:date|day|month|year|time)|which (?:date|day|month|year|week)|how long ago|since when)\b"
        r"|什么时候|何时|哪[天年月]|几[号月点]|いつ",
        re.I,
    ),
    Intent.DONE: re.compile(
        r"\b(?:have|has|had|did) (?:we|you|I|it|this|that|the assistant|someone|anyone)\b.{0,300}"
        r"\b(?:before|already|ever|earlier|last time|previously|yet)\b"
        r"|^\W*did\b.{0,300}\b(?:work|succeed|fail|pass|go through|run)\b"
        r"|\b(?:been|ever) (?:tried|done|called|run|executed)\b"
        r"|\bwhat (?:happened|came out|was the (?:result|outcome|error))\b|\blast time (?:we|you|I)\b"
        r"|(?:以前|之前|曾经?|已经).{0,100}[过了吗]|有没有.{0,100}过|成功了吗|失败了吗",
        re.I | re.S,
    ),
    Intent.ORDER: re.compile(
        r"\b(?:in (?:what|which|the right|the correct) order|the order (?:in which|of|that)|what order|"
        r"chronolog(?:y|ical|ically)|timeline|(?:came|happened|was|were|did) .{1,60}\b(?:first|before|after) or )\b"
        r"|顺序|先后|时间线|順番|時系列",
        re.I,
    ),
    # "This month" is "este mes" in Spanish, the US is a country, and a gold mine nobody's.
    Intent.OWN: re.compile(
        r"\bI\b|\bus\b|\b(?i:my|me|myself|we|our|ich|mir|mich|mein\w*|wir|uns|unser\w*|yo|mis?|nosotr[oa]s|nuestr[oa]s?|"
        r"je|mon|(?<!este )(?<!ese )(?<!el )(?<!al )(?<!un )(?<!del )mes|moi|nous|notre|nos)\b"
        r"|\b[Jj]['’]|[我咱]|[私僕俺]"
    ),
    Intent.ANSWERED: re.compile(
        rf"\b(?:did|had|have) you (?:\w+ )?{_ANSWERING}\w*\b|\byou (?:\w+ )?{_ANSWERED}\b"
        rf"|\b(?:did|had|has) the (?:assistant|bot|AI|model) (?:\w+ )?{_ANSWERING}\w*\b"
        rf"|\bthe (?:assistant|bot|AI) {_ANSWERED}\b"
        r"|\b(?:recommended|suggested|proposed|explained) to (?:me|us)\b"
        r"|\byour (?:\w+ )?(?:advice|recommendations?|suggestions?|explanations?|answers?|guidance|instructions|list|"
        r"draft)\b"
        rf"|\b(?:hast|hattest) du\b.{{0,80}}\b{_ANSWERED_GERMAN}|\b(?:haben|hatten) Sie\b.{{0,80}}\b{_ANSWERED_GERMAN}"
        r"|\b(?:sagtest|empfahlst|rietest) du\b|\bdeine? (?:Empfehlung|Antwort|Rat|Vorschlag|Liste)\w*"
        r"|\b(?:recomendaste|sugeriste|dijiste|explicaste|aconsejaste|propusiste)\b"
        r"|\bhabías (?:recomendado|sugerido|dicho|explicado|aconsejado|propuesto)\b"
        r"|\b(?:as|avais)-tu (?:\w+ )?(?:recommandé|conseillé|suggéré|proposé|dit|expliqué)"
        r"|\btu (?:m['’])?(?:as|avais) (?:\w+ )?(?:recommandé|conseillé|suggéré|proposé|dit|expliqué)"
        r"|\b(?:avez|aviez)-vous (?:\w+ )?(?:recommandé|conseillé|suggéré|proposé|dit|expliqué)"
        r"|[你您].{0,8}(?:说过|说了|建议|推荐|告诉|提到)|(?:勧めて|お?すすめして|教えて|提案して)くれた",
        re.I,
    ),
}
_OTHER_INTENTS = {
    Intent(name): re.compile("|".join(patterns), re.I) for name, patterns in wording_by_language.INTENTS.items()
}


@dataclass(frozen=True, slots=True)
class Question:
    """A parsed question, and the `claim` its words make.

    `is_request`: something is to be done or advised, so the asker's preferences matter.
    """

    text: str
    claim: Claim
    phrases: tuple[str, ...]
    names: tuple[str, ...]
    spans: tuple[Span, ...]
    intents: frozenset[Intent]
    is_request: bool
    merged: tuple[MergedName, ...] = ()
    of_then: bool = False
    """Whether it asks about a time that now is no part of: "in March", but not "this year"."""

    @property
    def terms_before(self) -> frozenset[str]:
        """Stems of the words after "before": "Ghent" in "Where did I live before Ghent?"."""
        found = _BEFORE_WHAT.search(" ".join(self.text.split())[:_BEFORE_CHARS])
        return frozenset() if found is None else frozenset(terms_of(found["value"] or found["han"]))

    @property
    def asks_order(self) -> bool:
        """Whether the answer is a sequence: the order is asked for, or what was before and what is now."""
        return Intent.ORDER in self.intents or {Intent.FORMER, Intent.LATEST} <= self.intents

    def names_speaker(self, speaker: str) -> bool:
        if mentions(self.text, speaker):
            return True
        return any(fold(speaker) in map(fold, each.others) for each in self.merged)

    def speakers_named(self, speakers: Collection[str]) -> set[str]:
        """Return those of these speakers who are named; of names in one place, the longest."""
        named = sorted(filter(self.names_speaker, speakers), key=len, reverse=True)
        left, found = self.text, set[str]()
        for speaker in named:
            pattern = _meant(speaker)
            if pattern is None or not pattern.search(self.text) or pattern.search(left):
                found.add(speaker)
                left = left if pattern is None else pattern.sub(" ", left)
        return found

    def surely_names(self, speaker: str) -> bool:
        """Return whether a speaker's name cannot be another word: capitalised, and not at the start if it is a word."""
        name = speaker.strip()
        if _UNSPACED.search(name):
            return mentions(self.text, speaker)
        found = re.search(rf"(?<!{_LETTER}){re.escape(name)}(?!{_LETTER})", self.text)
        if found is None or not name[:1].isupper():
            return False
        return bool(_INSIDE.search(self.text[: found.start()])) or name.casefold() not in _WORDS | _MONTHS

    def with_merged(self, merged: tuple[MergedName, ...]) -> Question:
        """Return the question with the other names of those in it: they are of whom it asks."""
        if not merged:
            return self
        claims = [self.claim, *map(read_claim, spelled_otherwise(self.text, merged, _MOST_CLAIMS))]
        people, names = (frozenset().union(*(getattr(each, part) for each in claims)) for part in ("people", "names"))
        return replace(self, claim=replace(self.claim, people=people, names=names), merged=merged)


_MOST_CLAIMS = 8
_INSIDE = re.compile(r"\w[^\w.!?]*$")  # what stands before a word inside a sentence
_BEFORE_CHARS = 300  # of a question, single-spaced
_BEFORE_WHAT = re.compile(
    r"\b(?:before|bevor|vor|antes de(?: que)?|avant) (?P<value>[^?!.,;]+?)\W*$"
    r"|在?(?P<han>[^，。？！\s]{1,12}?)(?:之前|以前)",
    re.IGNORECASE,
)


def without_speaker_names(text: str, speakers: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Replace the speakers' names in a question by "you"; return it with the names that were removed.

    The vector of "What does Ann paint?" lies near whatever is said to or about Ann; that Ann says it is a matter of the
    speaker field. "What does you paint?" lies near where she was asked (docs/development/log.md). Without spaces, names
    are only left out.
    """
    left = asked = text
    found = set[str]()
    for speaker in sorted(speakers, key=len, reverse=True):  # "Ann Lee" is not Ann
        named = _meant(speaker)
        if named is not None and named.search(left) is not None:
            left = named.sub(" ", left)
            asked = named.sub(_to_you, asked)
            found.add(speaker)
    if not found or len(_WORD.findall(left)) < _LEAST_WORDS:
        return text, ()
    put = left if _UNSPACED.search(text) else asked
    return " ".join(put.split()), tuple(speaker for speaker in speakers if speaker in found)


def mentions(text: str, speaker: str) -> bool:
    """Return whether a text has a speaker's name; one that is also a word or a month only as a name is written."""
    named = _meant(speaker)
    return named is not None and named.search(text) is not None


def _to_you(name: re.Match[str]) -> str:
    return " you " if name.group()[-1] not in "'’" and name.group()[-2:-1] not in ("'", "’") else " your "


@cached_by_text(maxsize=1024)
def _meant(speaker: str) -> re.Pattern[str] | None:
    """Return a pattern for names that are also words: "Will" as written, "May" only where it is not the month."""
    named, name = _named(speaker), speaker.strip()
    if named is None or name.casefold() not in _WORDS | _MONTHS:
        return named
    if name.islower():
        return None
    return re.compile((_NO_MONTH if name.casefold() in _MONTHS else "") + named.pattern)


def _named(speaker: str) -> re.Pattern[str] | None:
    name = speaker.strip()
    if len(name) < 2:
        return None
    if _UNSPACED.search(name):
        return re.compile(re.escape(name), re.I)
    return re.compile(rf"(?<!{_LETTER}){re.escape(name)}(?!{_LETTER})(?:['’]s\b|(?<=s)['’](?!\w))?", re.I)


# "Have I been there before?" asks whether it ever happened, "Where was I before?" what held then.
_EVER = re.compile(r"^\W*(?:have|has)(?:n['’]t)?\b.*\bbefore\W*$", re.I)


def read_question(text: str, asked_at: datetime, zone: ZoneInfo) -> Question:
    """Parse a question; relative dates count from `asked_at` (aware) in `zone`."""
    spans = asked_spans(text, time_expressions(text, asked_at, zone), asked_at)
    quoted = (double or single for double, single in _QUOTED.findall(text))
    return Question(
        text=text,
        claim=read_claim(text),
        phrases=tuple(dict.fromkeys(" ".join(phrase.casefold().split()) for phrase in quoted)),
        names=entities(text),
        spans=spans,
        intents=_intents_of(text),
        is_request=is_request(text),
        of_then=not all(span.holds(asked_at) for span in spans),
    )


def _intents_of(text: str) -> frozenset[Intent]:
    found = frozenset(
        intent
        for patterns in (_INTENTS, _OTHER_INTENTS)
        for intent, pattern in patterns.items()
        if pattern.search(text)
    )
    if Intent.ANSWERED in found:
        found -= {Intent.OWN, Intent.ADVICE}
    return found - {Intent.FORMER} if _EVER.search(text) else found


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search with a parsed `filter`; `as_of` is a record time, `reference_time` the time of asking, in `zone`.

    What has expired by `now` is not found, whatever the other times.
    """

    query: str
    scope: Scope
    now: datetime
    top_k: int
    filter: Node | None
    as_of: datetime | None
    reference_time: datetime
    zone: ZoneInfo
    token_budget: int | None
    explain: bool
    rerank: bool = False
    min_relevance: float = 0.0


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for the results of a search: the caller's filter, and exclusions unless the filter names them.

    By default only active and archived items and facts that have not ended; items that await review never. `wanted` is
    the whole condition, `pushed` the part the index evaluates besides `live`; `hold` checks the rest on a brief.
    """

    wanted: Node
    pushed: Node | None
    live: bool
    statuses: frozenset[Status]
    ended_by: int | None
    expired_by: int

    @classmethod
    def of(cls, request: SearchRequest) -> Rules:
        named = fields_of(request.filter)
        parts: list[Node] = [] if request.filter is None else [request.filter]
        statuses = frozenset(Status) - {Status.PENDING} if "status" in named else FOUND
        parts.append(Condition("status", Op.IN, tuple(str(status) for status in sorted(statuses))))
        ended_by = None if named & {"valid_to", "status"} else to_micros(request.reference_time)
        if ended_by is not None:
            fact = Condition("type", Op.NIN, tuple(str(kind) for kind in TOLD))
            parts.append(Not(And((fact, Condition("valid_to", Op.LTE, ended_by)))))
        wanted = And(tuple(parts))
        live = "status" not in named and request.as_of is None
        return cls(wanted, request.filter if live else wanted, live, statuses, ended_by, to_micros(request.now))

    def narrowed(self, node: Node) -> Rules:
        pushed = node if self.pushed is None else And((self.pushed, node))
        return replace(self, wanted=And((self.wanted, node)), pushed=pushed)

    def hold(self, brief: items.Brief) -> bool:
        if brief.status not in self.statuses or not brief.searchable:
            return False
        if brief.expires_at is not None and brief.expires_at <= self.expired_by:
            return False
        if self.ended_by is None or brief.valid_to is None or brief.type in TOLD:
            return True
        return brief.valid_to > self.ended_by
