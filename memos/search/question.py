"""Reads a question without a model: what it quotes, names and dates, and what kind of answer it wants. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from memos.core.text.entities import entities
from memos.core.text.requests import is_request
from memos.core.text.times import time_expressions
from memos.search.spans import Span, asked_spans

_QUOTED = re.compile(r"[\"“「『《]([^\"”」』》\n]{2,100})[\"”」』》]|(?<!\w)'([^'\n]{2,100})'(?!\w)")


_WORD = re.compile(r"[\u3400-\u9fff]|\w+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
"""Scripts that put no space between words."""

_LETTER = r"[^\W\u3040-\u30ff\u3400-\u9fff]"
"""Of the words that have a space between them: Ann stands alone in "Ann喜欢什么", and not in "Anna"."""

_LEAST_WORDS = 3
"""Words that have to be left of a question without names: "Who is" asks for nothing."""


_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an i me my you your he she they we it is are was do does did has have had will can may must the this that "
        "and or of in on at to for from with what who which when where why how user assistant system tool agent bot "
        "mark bill rob grant chase drew hope faith grace joy rose art sue pat guy",
    )
)
"""Words that are names as well, of people or of roles: they are meant only as they are written, with a capital."""

_MONTHS = frozenset(
    re.findall(r"\w+", "january february march april may june july august september october november december")
)
_NO_MONTH = "".join(
    f"(?<!\\b{before} )" for before in ("in", "of", "on", "by", "this", "last", "next", "since", "until")
)


class Intent(StrEnum):
    """What kind of answer a question wants."""

    COUNT = "count"
    LIST = "list"
    LATEST = "latest"
    FIRST = "first"
    FORMER = "former"
    ADVICE = "advice"
    WHEN = "when"
    DONE = "done"
    ORDER = "order"


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
    Intent.FORMER: re.compile(
        # "Is he used to it?" asks how it is, "which tool was used to" and "what did she use to clean" by what means.
        r"(?<!\bis )(?<!\bare )(?<!\bam )(?<!\bwas )(?<!\bwere )(?<!\bbe )(?<!\bbeen )(?<!\bbeing )(?<!['’]s )"
        r"(?<!\bget )(?<!\bgot )(?<!\bgetting )\bused to\b"
        r"|\b(?:where|whom?|why)\b.{0,40}\bdid\b.{1,80}\buse to\b|^\W*did\b.{1,80}\buse to\b"
        r"|\b(?:formerly|former|previous(?:ly)?|originally)\b"
        r"|\bin the past\b(?! (?:few|couple|\w+ )?(?:second|minute|hour|day|week|month|quarter|year|decade)s?\b)"
        r"|\bbefore (?:that|then|now)\b"
        # 走过去 goes somewhere, 过去一年 is the year until now, 原来如此 is surprise.
        r"|以前|从前|(?<![走跑飞开搬送拿赶])过去(?![了吗?？一二两三几这那\d])|曾经|原来(?!如此|是这样|是你)|かつて|昔",
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
}


@dataclass(frozen=True, slots=True)
class Question:
    """One question as read: quoted phrases in lower case, names as written, the time it asks about, intents.

    `is_request`: something is to be done or advised, so that how its asker wants it matters.
    """

    text: str
    phrases: tuple[str, ...]
    names: tuple[str, ...]
    spans: tuple[Span, ...]
    intents: frozenset[Intent]
    is_request: bool

    @property
    def asks_order(self) -> bool:
        """Whether a context for an answer tells things in the order they were said in."""
        return Intent.ORDER in self.intents

    def names_speaker(self, speaker: str) -> bool:
        """Say whether the question names this speaker, as a whole word or, in Chinese and Japanese, anywhere."""
        named = _meant(speaker)
        return named is not None and named.search(self.text) is not None


def put_to(text: str, speakers: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return a question as those who speak would be asked it, and whom it names; as it is when nothing else is asked.

    A vector of "What does Ann paint?" lies near whatever is said to Ann or of her; that Ann says it, speakers tell.
    "What does you paint?" lies near where she was asked (docs/log.md); without spaces, names are only left out.
    """
    left, asked, found = text, text, set[str]()
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


def _to_you(name: re.Match[str]) -> str:
    return " you " if name.group()[-1] not in "'’" and name.group()[-2:-1] not in ("'", "’") else " your "


def _meant(speaker: str) -> re.Pattern[str] | None:
    """Return what finds a name that is not a word of the question: Will as it is written, May where it is no month."""
    named, name = _named(speaker), speaker.strip()
    if named is None or name.casefold() not in _WORDS | _MONTHS:
        return named
    if name.islower():
        return None
    return re.compile((_NO_MONTH if name.casefold() in _MONTHS else "") + named.pattern)


def _named(speaker: str) -> re.Pattern[str] | None:
    """Return what finds a speaker's name, with what makes it a possessive; None for one of a single letter."""
    name = speaker.strip()
    if len(name) < 2:
        return None
    if _UNSPACED.search(name):
        return re.compile(re.escape(name), re.I)
    return re.compile(rf"(?<!{_LETTER}){re.escape(name)}(?!{_LETTER})(?:['’]s\b|(?<=s)['’](?!\w))?", re.I)


def read_question(text: str, asked_at: datetime, zone: ZoneInfo) -> Question:
    """Return what a question says of itself; relative dates are counted from `asked_at` (aware) in `zone`."""
    quoted = (double or single for double, single in _QUOTED.findall(text))
    return Question(
        text=text,
        phrases=tuple(dict.fromkeys(" ".join(phrase.casefold().split()) for phrase in quoted)),
        names=entities(text),
        spans=asked_spans(text, time_expressions(text, asked_at, zone), asked_at),
        intents=frozenset(intent for intent, pattern in _INTENTS.items() if pattern.search(text)),
        is_request=is_request(text),
    )
