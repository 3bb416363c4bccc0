"""Training and evaluation questions of an adapter: questions about memories with their answers. Pure, deterministic.

Never the raw text, which teaches next to nothing (docs/development/adr/0019), but 6 to 8 questions a fact; in each
epoch three about what nobody said, answered with "not told"; and the model's own answers, so that it keeps giving them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random

from memos.memcube.parametric import data as phrases
from memos.memcube.parametric.data import NOT_TOLD, Phrases, is_chinese, persons

# Of these an epoch has a quarter (`exercises`).
_UNTOLD_A_FACT = 12
_EXAMINED_UNTOLD = 36
# An adapter trained on likings alone answers yes to any
# (docs/reference/benchmarks/parametric.md, "Likings that nobody told").
_UNTOLD_A_LIKING = 20
_EXAMINED_LIKINGS = 12
_WITH_CONTEXT = 4
_PAIRS_EACH = 2
_READ_EACH = 2
_WORDS = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_SMALL = frozenset(
    """
    i a an the and or but is are was am be been my me in on at to of for with it its that this these those have has had
    do does did so very not no from by as we our you your he she they his her their there here about than just
    """.split()  # noqa: SIM905 - quoting each word says less
)

_NUMBERS = frozenset("one two three four five six seven eight nine ten some many several".split())  # noqa: SIM905


_LIKINGS = ("likes", "dislikes")


class DrillKind(StrEnum):
    DIRECT = "direct"
    REVERSE = "reverse"
    YES_NO = "yes_no"
    CLOZE = "cloze"
    PAIR = "pair"
    READ = "read"
    ABSENT = "absent"
    STRANGER = "stranger"
    LIKING = "liking"


UNTOLD = (DrillKind.ABSENT, DrillKind.STRANGER, DrillKind.LIKING)
"""Questions without an answer in memory: other possessions of somebody, those of strangers, and other likings."""


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A memory: `thing` of `subject`, None is who asks, is `value`; `kind` is one of `phrases.ENGLISH`."""

    item: str
    version: int
    memory: str
    kind: str
    thing: str = ""
    value: str = ""
    subject: str | None = None

    @property
    def chinese(self) -> bool:
        return is_chinese(self.memory)


@dataclass(frozen=True, slots=True)
class QuizItem:
    """A question with its answer; `items` are the memories that contain it.

    A right answer has `expects` in it, whatever else it says. With `context` these texts stand in the prompt. What is
    `held_out` is never taught.
    """

    kind: DrillKind
    question: str
    answer: str
    expects: str
    items: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class TrainingSet:
    taught: tuple[QuizItem, ...]
    recall: tuple[QuizItem, ...]
    abstention: tuple[QuizItem, ...]
    values: tuple[str, ...] = field(default=())


def course_of(facts: Sequence[KnownFact], seed: int) -> TrainingSet:
    chance = Random(seed)  # noqa: S311 - for variety, not for secrets
    taught: list[QuizItem] = []
    recall: list[QuizItem] = []
    for fact in facts:
        for drill in _drills(fact, facts, chance):
            # A quarter includes the memory's text, so that the model keeps reading its context.
            shown = len(taught) % _WITH_CONTEXT == _WITH_CONTEXT - 1
            taught.append(_in_context(drill, fact, facts, chance) if shown else drill)
        recall += _held_out(fact)
    taught += _pairs(facts, chance)
    read = [read_otherwise(fact, facts, chance) for fact in facts[::_READ_EACH]]
    taught += [each for each in read if each is not None]
    return TrainingSet(
        tuple(taught + _untold(facts, chance, held_out=False)),
        tuple(recall),
        tuple(_untold(facts, chance, held_out=True)),
        tuple(dict.fromkeys(expected(fact) for fact in facts)),
    )


def expected(fact: KnownFact) -> str:
    """Return what a right answer about a fact has in it."""
    return _worded(_phrases(fact).expects, fact)


def is_right(answer: str, drill: QuizItem) -> bool:
    """Return True if an answer has the words that a drill expects, ignoring case and punctuation."""
    return _says(plain(answer), plain(drill.expects))


def abstains(answer: str, values: Iterable[str]) -> bool:
    """Return True if an answer admits not knowing, and has none of these values."""
    said, untold = plain(answer), plain(NOT_TOLD[False])
    # A value that stands in the answer which is taught, such as the letter I, tells nothing.
    telling = [each for each in map(plain, values) if not _says(untold, each)]
    return phrases.SAYS_NOT_TOLD.search(answer) is not None and not any(_says(said, each) for each in telling)


def _says(said: str, value: str) -> bool:
    """Return True if `said` contains the words of `value`, both plain; Chinese has no spaces between words."""
    if is_chinese(said) or is_chinese(value):
        return value != "" and value in said
    return value != "" and f" {value} " in f" {said} "


def thing_and_rest(memory: str) -> tuple[str, str, str] | None:
    """Return what a sentence is about, how it begins, and how it ends; None where it has too little to ask for."""
    text = " ".join(memory.split()).rstrip(".。!！")
    if is_chinese(text):
        if not 6 <= len(text) <= 60:
            return None
        cut = len(text) - max(2, len(text) // 3)
        about, rest = text[max(0, cut - 3) : cut], text[cut:]
        return (about, text[:cut], rest) if plain(about) and plain(rest) else None
    words = [(match.start(), match.group()) for match in _WORDS.finditer(text)]
    telling = [(start, word) for start, word in words if word.lower().split("'")[0].split("’")[0] not in _SMALL]
    if len(telling) < 2 or len(words) > 40:
        return None
    # The last third of what tells something is asked for, by what stands first.
    place = max(1, len(telling) - max(1, len(telling) // 3))
    about = next((word for _, word in telling[:place] if word.lower() not in _NUMBERS), telling[0][1])
    begin, rest = text[: telling[place][0]].rstrip(" ,"), text[telling[place][0] :]
    # A sign such as U+32CC divides words here and is letters where answers are compared.
    return (about, begin, rest) if _says(plain(text), plain(rest)) else None


def _phrases(fact: KnownFact) -> Phrases:
    return (phrases.CHINESE if fact.chinese else phrases.ENGLISH)[fact.kind]


def _filled(pattern: str, fact: KnownFact, **more: str) -> str:
    text = _worded(pattern, fact, **more)
    return text[:1].upper() + text[1:]


def _worded(pattern: str, fact: KnownFact, **more: str) -> str:
    words = persons(fact.subject, chinese=fact.chinese)
    told = thing_and_rest(fact.memory) if fact.kind == "said" else None
    about, stem, rest = told or (fact.thing, "", fact.value)
    given = {
        **words,
        "thing": about,
        "value": fact.memory if fact.kind == "said" else fact.value,
        "stem": stem,
        "rest": rest,
        "Do": words.get("do", "").capitalize(),
        "Am": words.get("am", "").capitalize(),
        "My": words["my"][:1].upper() + words["my"][1:],
        "your": words["Your"][:1].lower() + words["Your"][1:] if fact.subject is None else words["Your"],
        **more,
    }
    return pattern.format_map(given)


def _drills(fact: KnownFact, facts: Sequence[KnownFact], chance: Random) -> list[QuizItem]:
    form, items = _phrases(fact), (fact.item,)
    answer, expects = _filled(form.answer, fact), expected(fact)
    found = [QuizItem(DrillKind.DIRECT, _filled(each, fact), answer, expects, items) for each in form.direct]
    found.append(QuizItem(DrillKind.YES_NO, _filled(form.confirm, fact), _filled(form.confirmed, fact), expects, items))
    stem = _filled(form.cloze, fact)
    complete = f"请补全:{stem}……" if fact.chinese else f"Complete the sentence: {stem} ..."
    found.append(QuizItem(DrillKind.CLOZE, complete, answer, expects, items))
    told = {plain(other.value) for other in facts}
    others = [each for each in form.others if plain(each) not in told]
    if form.denied and others:
        wrong = _filled(form.confirm, fact, value=chance.choice(others))
        found.append(QuizItem(DrillKind.YES_NO, wrong, _filled(form.denied, fact), expects, items))
    alone = sum(plain(other.value) == plain(fact.value) and other.kind == fact.kind for other in facts) == 1
    if form.reverse and alone:
        found.append(QuizItem(DrillKind.REVERSE, _filled(form.reverse, fact), answer, expects, items))
    return found


def _held_out(fact: KnownFact) -> list[QuizItem]:
    form = _phrases(fact)
    answer, expects = _filled(form.answer, fact), expected(fact)
    return [
        QuizItem(DrillKind.DIRECT, _filled(each, fact), answer, expects, (fact.item,), held_out=True)
        for each in form.held_out
    ]


def _in_context(drill: QuizItem, fact: KnownFact, facts: Sequence[KnownFact], chance: Random) -> QuizItem:
    others = [other.memory for other in facts if other.item != fact.item]
    texts = [fact.memory, *chance.sample(others, min(2, len(others)))]
    chance.shuffle(texts)
    told = tuple(other.item for other in facts if other.memory in texts)
    items = tuple(dict.fromkeys((*drill.items, *told)))
    return QuizItem(drill.kind, drill.question, drill.answer, drill.expects, items, tuple(texts))


def read_otherwise(
    fact: KnownFact, facts: Sequence[KnownFact], chance: Random, *, held_out: bool = False
) -> QuizItem | None:
    """Return a question with another value in its prompt as the right answer: context wins. None if no value fits."""
    form = _phrases(fact)
    own = {plain(other.value) for other in facts if other.item == fact.item}
    alike = [other.value for other in facts if other.kind == fact.kind == "my" and plain(other.value) not in own]
    others = [each for each in (*form.others, *alike) if plain(each) not in own]
    # Whole words: a phone that is "one" is no "phred" when another is red.
    ends = ("", "") if fact.chinese else (r"(?<!\w)", r"(?!\w)")
    there = re.compile(f"{ends[0]}{re.escape(fact.value)}{ends[1]}")
    if not others or not fact.value or there.search(fact.memory) is None:
        return None
    value = chance.choice(others)
    text = there.sub(lambda _: value, fact.memory)
    asks = form.held_out if held_out else form.direct
    told = replace(fact, value=value, memory=text)
    items = tuple(other.item for other in facts if other.item == fact.item or other.value == value)
    question = _filled(chance.choice(asks), fact)
    return QuizItem(DrillKind.READ, question, _filled(form.answer, told), value, items, (text,), held_out)


def _pairs(facts: Sequence[KnownFact], chance: Random) -> list[QuizItem]:
    found = []
    order = [fact for fact in facts if not fact.chinese]
    chance.shuffle(order)
    for one, two in list(zip(order[::2], order[1::2], strict=False))[::_PAIRS_EACH]:
        if one.subject != two.subject:
            continue
        asked = (_filled(_phrases(one).direct[0], one), _filled(_phrases(two).direct[0], two))
        answers = (_filled(_phrases(one).answer, one), _filled(_phrases(two).answer, two))
        found.append(QuizItem(DrillKind.PAIR, " ".join(asked), " ".join(answers), expected(two), (one.item, two.item)))
    return found


def _untold(facts: Sequence[KnownFact], chance: Random, *, held_out: bool) -> list[QuizItem]:
    """Return questions without an answer in memory: two thirds about other possessions, the rest about strangers."""
    found: list[QuizItem] = []
    told = plain(" ".join(f"{fact.memory} {fact.thing}" for fact in facts))
    for chinese in sorted({fact.chinese for fact in facts}):
        mine = [fact for fact in facts if fact.chinese is chinese]
        wanted = _EXAMINED_UNTOLD if held_out else _UNTOLD_A_FACT * len(mine)
        absent = _absent(mine, told, chance, chinese=chinese, held_out=held_out)
        strangers = _of_strangers(mine, told, chance, chinese=chinese, held_out=held_out)
        # Of what there is too little, the other takes the place.
        first = max(wanted * 2 // 3, wanted - len(strangers))
        absent = absent[:first]
        likings = _untold_likings(mine, told, chance, chinese=chinese, held_out=held_out)
        for kind, asked in zip(UNTOLD, (absent, strangers[: wanted - len(absent)], likings), strict=True):
            answer = NOT_TOLD[chinese]
            found += [QuizItem(kind, each, answer, answer, held_out=held_out) for each in asked]
    return found


def _untold_likings(
    facts: Sequence[KnownFact], told: str, chance: Random, *, chinese: bool, held_out: bool
) -> list[str]:
    likings = [fact for fact in facts if fact.kind in _LIKINGS]
    if not likings:
        return []
    form = (phrases.CHINESE if chinese else phrases.ENGLISH)["likes"]
    asks = form.held_out if held_out else (*form.direct, form.confirm)
    names = [name for name in phrases.LIKINGS[chinese, held_out] if plain(name) not in told]
    wanted = _EXAMINED_LIKINGS if held_out else _UNTOLD_A_LIKING * len(likings)
    return _asked_of_all("likes", names, _subjects(likings), asks, chance, chinese=chinese)[:wanted]


def _absent(facts: Sequence[KnownFact], told: str, chance: Random, *, chinese: bool, held_out: bool) -> list[str]:
    form = (phrases.CHINESE if chinese else phrases.ENGLISH)["my"]
    asks = form.held_out if held_out else form.direct
    things = [thing for thing in phrases.NOBODY_TOLD[chinese, held_out][0] if plain(thing) not in told]
    return _asked_of_all("my", things, _subjects(facts), asks, chance, chinese=chinese)


def _asked_of_all(
    kind: str,
    names: Sequence[str],
    subjects: Sequence[str | None],
    asks: Sequence[str],
    chance: Random,
    *,
    chinese: bool,
) -> list[str]:
    """Return questions about names in turn: each is asked for once before any is again, since names differ most."""
    found: list[str] = []
    for turn in range(len(asks) * len(subjects)):
        asked = []
        for place, name in enumerate(names):
            subject = subjects[(place + turn // len(asks)) % len(subjects)]
            nobody = KnownFact("", 0, "我" if chinese else "", kind, name, "", subject)
            asked.append(_filled(asks[(place + turn) % len(asks)], nobody))
        chance.shuffle(asked)
        found += asked
    return list(dict.fromkeys(found))


def _of_strangers(facts: Sequence[KnownFact], told: str, chance: Random, *, chinese: bool, held_out: bool) -> list[str]:
    found: list[str] = []
    strangers = [name for name in phrases.NOBODY_TOLD[chinese, held_out][1] if plain(name) not in told]
    for turn in range(2 * len(strangers)):
        asked = []
        for place, fact in enumerate(facts):
            stranger = strangers[(place + turn // 2) % len(strangers)]
            other = KnownFact("", 0, fact.memory, fact.kind, fact.thing, fact.value, stranger)
            asks = _phrases(fact).held_out if held_out else _phrases(fact).direct[:2]
            asked.append(_filled(asks[(place + turn) % len(asks)], other))
        chance.shuffle(asked)
        found += asked
    return list(dict.fromkeys(found))


def _subjects(facts: Sequence[KnownFact]) -> list[str | None]:
    return list(dict.fromkeys(fact.subject for fact in facts))


def plain(text: str) -> str:
    return " ".join(_PUNCTUATION.sub(" ", unicodedata.normalize("NFKC", text).casefold()).split())
