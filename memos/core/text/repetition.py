"""Recognise a statement that says again what an older one says, alone or with more detail.

Compares the words in their order, without fillers. Word lists in English, German, Spanish and Chinese.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from memos.core.text.caches import cached_by_text
from memos.core.text.claims import Claim, Owner, read_claim, words_of


class Repetition(Enum):
    """How much of an older statement a newer one repeats."""

    SAME = "same"
    """The same words up to fillers."""
    EXTENDED = "extended"
    """Each clause as it was, and more clauses, without another number or date."""
    WITHIN = "within"
    """Its words in their order, with others between them, or with another number or date in a further clause."""


def repetition_of(older: str, newer: str) -> Repetition | None:
    """Return what `newer` repeats of `older`, None if that is less than everything `older` says.

    Questions, statements about different people, and those with a word of change, of an end or of doubt that the older
    one lacks, repeat nothing.
    """
    old, new = _read(older), _read(newer)
    said = old.words - _POSSESSION
    if not said or not said <= new.words:
        return None
    was, now = read_claim(older), read_claim(newer)
    if not _same_ground(was, now):
        return None
    if _is_rotation(old.in_order, new.in_order):
        return Repetition.SAME
    corrected = any(clause[0] in _CORRECTIONS for clause in new.clauses)
    if corrected or now.changes or now.ends:
        return None
    numbered = not now.numbers <= was.numbers
    rest = iter(new.clauses)
    if len(old.words) >= _LEAST and all(clause in rest for clause in old.clauses):
        return Repetition.WITHIN if numbered or now.dated > was.dated else Repetition.EXTENDED
    within = len(said) >= _LEAST and all(any(_holds(wide, clause) for wide in new.clauses) for clause in old.clauses)
    return Repetition.WITHIN if within and not numbered else None


_CHARS = 600

_LEAST = 2
"""Minimum words, or Han characters, of a statement that another one may extend."""

_BETWEEN = 2
"""Words that may stand between those of the older clause."""

_TOKEN = re.compile(
    r"\d+(?:[.,:]\d+)*|[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff][^\W_\u3400-\u9fff]*(?:['-][^\W_\u3400-\u9fff]+)*"
)
_BREAK = re.compile(r"[;!?—–()。、\n]|(?<!\d)[.,:]|[.,:](?!\d)| - ")
_CONTRACTIONS = (
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"'(?:s|m|re)\b|(?<=s)'(?!\w)"), ""),
    (re.compile(r"'ve\b"), " have"),
    (re.compile(r"'ll\b"), " will"),
    (re.compile(r"'d\b"), " would"),
)
_FILLERS = re.compile(
    r"\b(?:by the way|btw|as you know|you know|still|also|too|really|indeed|of course|well|oh|yes|yeah|yep|anyway|"
    r"(?:as|like) (?:i|we) (?:(?:have|already) )*(?:said|mentioned|told you)(?: (?:before|already))?|"
    r"as (?:ever|always)|after all|in fact|honestly|to be honest|fyi|just so you know|(?:just )?to confirm|i mean|"
    r"immer noch|noch immer|noch(?! ein)|weiterhin|nach wie vor|übrigens|wie gesagt|bekanntlich|auch|ja|halt|eben|"
    r"wirklich|tatsächlich|"
    r"todavía|aún|también|por cierto|como (?:ya )?(?:te )?(?:dije|he dicho|sabes)|la verdad|pues|bueno|sí|de verdad)\b"
    r"|还是|还(?![有要没钱清款不])|仍[然旧]?|依[然旧]|一直|顺便(?:说一下|提一下|说一句|一提)?|对了|其实|说实话|反正|就是|也",
)
_SILENT = words_of(
    "i me my mine a an the am is are be been "
    "ich mich mir mein meine meinen meinem meiner meines der die das den dem des ein eine einen einem einer eines bin "
    "ist sind "
    "yo me mi mis el la los las un una unos unas es son soy está estoy están "
    "我 的 啊 呀 呢 吧 哦 嘛 啦 是"
)


def _stem(word: str) -> str:
    """Return a word without "-ing" and a last "e": "I'm living in Lyon" is "I live in Lyon", "she lives" is neither."""
    if len(word) > 5 and word.endswith("ing"):
        word = word[:-3]
    return word.rstrip("e") if len(word) > 3 else word


def _stems_of(text: str) -> frozenset[str]:
    return frozenset(map(_stem, text.split()))


_POSSESSION = _stems_of(
    "have has got of habe hat haben von tengo tiene tienen tenemos de 有 一 个 只 条 位 名 套 辆 家"
)
"""Words of possession, which more detail may drop: "My sister has a dog", "My sister's dog is called Rex"."""

_JOINS = words_of("and or but who which because where und oder aber weil wo y e o pero porque donde 和 但")
_CORRECTIONS = _stems_of("no nope wrong correction sorry rather nein quatsch falsch sondern sino perdón 不 错")
_LIMITS = _stems_of(
    "not no never hardly barely rarely seldom only except without again nicht kein keine keinen nie niemals kaum "
    "selten nur wieder nunca jamás apenas raramente solo sólo excepto ni otra 再 不 没 别 无 非 少"
)


@dataclass(frozen=True, slots=True)
class _Said:
    clauses: tuple[tuple[str, ...], ...]
    in_order: tuple[str, ...]
    words: frozenset[str]


@cached_by_text(maxsize=4096)
def _read(text: str) -> _Said:
    text = unicodedata.normalize("NFKC", text[:_CHARS]).casefold().replace("’", "'")
    for pattern, whole in _CONTRACTIONS:
        text = pattern.sub(whole, text)
    text = _FILLERS.sub(" ", text)
    clauses = tuple(clause for part in _BREAK.split(text) for clause in _clauses(part))
    in_order = tuple(word for clause in clauses for word in clause)
    return _Said(clauses, in_order, frozenset(in_order))


def _clauses(part: str) -> Iterator[tuple[str, ...]]:
    clause: list[str] = []
    for word in _TOKEN.findall(part):
        if word in _JOINS:
            if clause:
                yield tuple(clause)
            clause = []
        elif word not in _SILENT:
            clause.append(_stem(word))
    if clause:
        yield tuple(clause)


def _same_ground(older: Claim, newer: Claim) -> bool:
    says = newer.owner is not Owner.UNKNOWN or newer.numbers or newer.names
    return bool(
        says
        and (older.owner, older.holder) == (newer.owner, newer.holder)
        and not (older.asks or newer.asks)
        and newer.changes <= older.changes
        and newer.ends <= older.ends
        and newer.unreal == older.unreal
    )


def _is_rotation(older: tuple[str, ...], newer: tuple[str, ...]) -> bool:
    """Return True for the same words in the same order, or with the last ones first: "in Lyon I live"."""
    if len(older) != len(newer):
        return False
    return any((*newer[start:], *newer[:start]) == older for start in range(len(newer)))


def _holds(wide: Sequence[str], clause: Sequence[str]) -> bool:
    """Return True if a wider clause has all words of another in order, or rotated, and no word that limits them."""
    wanted = [word for word in clause if word not in _POSSESSION]
    there = [word for word in wide if word not in _POSSESSION]
    if not _LIMITS.isdisjoint(set(there).difference(wanted)) or not set(wanted) <= set(there):
        return False
    return any(_in_order(there, [*wanted[start:], *wanted[:start]]) for start in range(len(wanted)))


def _in_order(wide: Sequence[str], wanted: Sequence[str]) -> bool:
    first = wide.index(wanted[0])
    place = first
    for number, word in enumerate(wanted):
        try:
            place = wide.index(word, place) + 1
        except ValueError:
            return False
        if place - first - (number + 1) > _BETWEEN:
            return False
    return True
