"""Judge whether a newer statement replaces an older one, by words and vectors.

A small network, fitted by `scripts/judge/fit.py` to stories written for it (`scripts/judge/stories.jsonl.gz`). Its
vectors are those of the default embedder; with another one, words and the cosine alone decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from memos.core.ports import Vector
from memos.core.text.acknowledgements import asks_for_something, requests_a_task
from memos.core.text.attributes import gives_attribute_another_value, has_again, names_another_one, tells_of_death_in
from memos.core.text.caches import cached_by_text
from memos.core.text.claims import Claim, Owner, is_about_another, read_claim, share, terms_of
from memos.core.text.contrasts import (
    Contrast,
    adds,
    change_other_clauses,
    changes_a_clause,
    clauses,
    completes,
    contrast_of,
    happened_beside,
    happened_once,
    is_about_another_thing,
    leaves_behind,
    names_place_again,
    shares_a_noun,
    tells_it_of_others,
    tells_of_new_part,
    tells_of_something_new,
)
from memos.core.text.frames import verb_at
from memos.core.text.languages import language_of, script_of
from memos.core.text.repetition import Repetition, repetition_of
from memos.core.types import Fingerprint

_FITTED = "minilm"  # part of the name of the embedder whose vectors the network knows


def pair_features(older: Claim, newer: Claim, cosine: float) -> list[float]:
    """Return what the words of two statements and their cosine tell of the pair; the order is that of the weights."""
    # A person's name in both statements does not count as a shared word.
    person = _words_of_people(older.people & newer.people)
    old_terms, new_terms = older.terms - person, newer.terms - person
    terms, names = share(old_terms, new_terms), share(older.names - older.people, newer.names - older.people)
    changes, ends, sure = float(newer.changes), float(newer.ends), float(newer.sure)
    unreal = float(newer.unreal)
    relative, named = conflicts(older, newer)
    head = newer.head - person
    same_head = float(bool(head & old_terms))
    other_head = float(bool(head)) - same_head
    numbers = float(bool(older.numbers) and bool(newer.numbers))
    return [
        cosine,
        cosine * changes,
        cosine * sure,
        cosine * ends,
        terms,
        terms * changes,
        names,
        relative,
        named,
        changes,
        sure,
        ends,
        unreal,
        numbers,
        float(older.dated and newer.dated),
        cosine * numbers,
        float(older.owner is Owner.SPEAKER and newer.owner is Owner.SPEAKER),
        float(newer.owner is Owner.SPEAKER),
        float(bool(newer.names)),
        float(newer.asks),
        unreal * cosine,
        ends * terms,
        float(bool(older.numbers & newer.numbers)),
        cosine * cosine,
        float(not newer.numbers and not newer.names and not newer.dated),
        float(older.unreal),
        same_head,
        other_head * (1 - max(changes, sure, ends)),
        float(bool(newer.people)),
        float(older.ends),
        relative * cosine,
        relative * terms,
        named * terms,
        unreal * terms,
        changes * same_head,
    ]


@cached_by_text(maxsize=1024)
def _stems(words: str) -> frozenset[str]:
    return frozenset(terms_of(words))


def _words_of_people(people: frozenset[str]) -> frozenset[str]:
    return _stems(" ".join(sorted(people))) if people else people


def conflicts(older: Claim, newer: Claim) -> tuple[float, float]:
    """Return whether one is about a relative, or a named person, of whom the other says nothing."""
    relative = named = 0.0
    for one, other in ((newer, older), (older, newer)):
        if one.owner < Owner.NAMED or one.holder in other.people | other.names or one.people & other.people:
            continue
        if one.owner is Owner.RELATIVE:
            relative = 1.0
        else:
            named = 1.0
    return relative, named


def question_features(
    question: Claim, statement: Claim, score: float, cosine: float, best_cosine: float, by_terms: float
) -> list[float]:
    """Return what a question tells of a candidate; `score` is its share of the best candidate's score."""
    another = is_about_another(question, statement)
    same_head = not statement.head.isdisjoint(question.terms)
    return [
        score,
        cosine - best_cosine,
        cosine,
        float(another and statement.owner is Owner.RELATIVE),
        float(another and statement.owner is Owner.NAMED),
        len(question.names & (statement.names | statement.terms)) / len(question.names) if question.names else 0.0,
        len(question.people & statement.people) / len(question.people) if question.people else 0.0,
        float(statement.asks),
        float(statement.unreal),
        len(question.terms & statement.terms) / max(1, len(question.terms)),
        by_terms / 10,
        float(same_head),
        float(bool(statement.head) and not same_head),
    ]


def lost_features(question: Claim, older: Claim, newer: Claim) -> list[float]:
    """Return which parts of a question's names, words and people the older statement has and the newer one lacks."""
    return [
        _lost(question.names, older.names | older.terms, newer.names | newer.terms),
        _lost(question.terms, older.terms, newer.terms),
        _lost(question.people, older.people, newer.people),
    ]


def _lost(asked: frozenset[str], older: frozenset[str], newer: frozenset[str]) -> float:
    return len((asked & older) - newer) / len(asked) if asked else 0.0


@dataclass(frozen=True, slots=True)
class Judge:
    """The fitted weights; `linked` gives log odds, float arrays throughout."""

    mean: Any
    scale: Any
    newer: Any
    both: Any
    first: Any
    first_bias: Any
    second: Any
    bias: float
    linear: Any
    asked: Any
    lost: Any
    ranked: Any

    @property
    def by_score(self) -> float:
        """The log odds that a candidate gains by its share of the best score."""
        return float(self.ranked[0])

    @property
    def reads_vectors(self) -> bool:
        return bool(self.newer.size)

    def lowered(self, question: Claim, statement: Claim) -> float:
        """Return by how much to lower the log odds of a statement about a person that the question does not ask about.

        Of `question_features`, the order of candidates uses this and the score alone.
        """
        if statement.owner < Owner.NAMED or not is_about_another(question, statement):
            return 0.0
        return -float(self.ranked[3 if statement.owner is Owner.RELATIVE else 4])

    def log_odds(self, pairs: Any, older: Vector | None = None, newer: Vector | None = None) -> Any:
        """Return the log odds of pairs, (n, features); `older` and `newer` are their vectors, (n, dimension)."""
        features = (np.asarray(pairs, dtype=np.float32) - self.mean) / self.scale
        inputs = [features]
        if older is not None and newer is not None and self.reads_vectors:
            inputs += [newer @ self.newer, (older * newer) @ self.both]
        hidden = np.maximum(np.concatenate(inputs, axis=1) @ self.first + self.first_bias, 0.0)
        return hidden @ self.second + features @ self.linear + self.bias


# Mean cosines of unrelated texts of one language: texts look more alike to a model the less it reads of them.
_ENGLISH = "english"
_UNRELATED = {
    _FITTED: {
        _ENGLISH: 0.15,
        "latin": 0.44,
        "han": 0.60,
        "kana": 0.56,
        "arabic": 0.70,
        "devanagari": 0.76,
        "other": 0.65,
    },
    "e5": {
        _ENGLISH: 0.20,
        "latin": 0.21,
        "han": 0.39,
        "kana": 0.37,
        "arabic": 0.29,
        "devanagari": 0.28,
        "other": 0.30,
    },
}


@dataclass(frozen=True, slots=True)
class Cosines:
    """Puts cosines of texts in other languages on the scale of English ones of the default embedder."""

    unrelated: Mapping[str, float]

    @classmethod
    def of(cls, embedder: Fingerprint) -> Cosines:
        name = embedder.name.casefold()
        found = (means for part, means in _UNRELATED.items() if part in name)
        return cls(next(found, {}))

    def comparable(self, cosine: float, text: str) -> float:
        return cosine + self.shift(text)

    def shift(self, text: str) -> float:
        """Return what is added to cosines of a text."""
        script = script_of(text)
        language = _ENGLISH if script == "latin" and language_of(text) == _ENGLISH else script
        return _UNRELATED[_FITTED][_ENGLISH] * bool(self.unrelated) - self.unrelated.get(language, 0.0)


def reads_other_scripts(embedder: Fingerprint) -> bool:
    """Return False for the default embedder, whose vocabulary is English."""
    return _FITTED not in embedder.name.casefold()


def judge_for(embedder: Fingerprint) -> Judge:
    """Return the judge for an embedder: with its vectors if the network knows them, else by words and cosines."""
    return _fitted("vectors" if _FITTED in embedder.name.casefold() else "words")


@cache
def _fitted(part: str) -> Judge:
    with resources.files("memos.memcube").joinpath("judge.npz").open("rb") as file, np.load(file) as weights:
        arrays = {name: weights[f"{part}.{name}"] for name in Judge.__slots__ if name != "bias"}
        return Judge(**arrays, bias=float(weights[f"{part}.bias"]))


LEAST_SURE = 2.9
"""Most log odds where no word says that anything changed: below those of `replaced`."""

_OF_NOW = frozenset({"now", "these days", "nowadays", "jetzt", "ahora", "现在"})
_NEW = frozenset({"new", "neu", "neue", "neuen", "neuer", "neues", "nuevo", "nueva"})
_SAID_SO = 3.0  # least log odds where the same attribute is given another value
_LIKELY = 1.5  # and where it is given something else, which is so now and like it
_ALIKE = 0.42  # least cosine of two statements with values of one kind: a car and a car, no desk and a language
_FEW_CLAUSES = 2
_LEAST_LIKELY = -0.5  # most where no clause of more than these has a new value, and no word tells of a change
_NO_CHANGE = -4.0  # most log odds of another attribute
_APART = 4.0  # log odds lost where nothing of the older statement is mentioned
_OTHER_BUT_CHANGED = 2.0  # and by another attribute where the newer statement has words of change


def bounded_odds(older: str, newer: str, cosine: float, odds: float) -> float:
    """Return the log odds of a pair within what the frames of both statements allow.

    Of 3,900 changes in the judge's stories and lives, 7 are told as another attribute without a word of change.
    """
    old, new = read_claim(older), read_claim(newer)
    if not new.unreal and is_told_in_other_words(older, newer):
        same_words = contrast_of(older, newer) is Contrast.VALUE
        return max(odds, _SAID_SO if same_words else LEAST_SURE)
    if leaves_alone(older, newer):
        return min(odds, _NO_CHANGE)
    contrast = contrast_of(older, newer)
    # "the new website" in both tells of no change, "I go by bus now" does.
    changed = new.change_words - (old.change_words - _OF_NOW)
    if contrast is Contrast.VALUE:  # of "Lives in Lyon." the subject could be somebody else
        return LEAST_SURE if verb_at(newer) == 0 else max(odds, _SAID_SO)
    likely = contrast is Contrast.LIKELY and cosine >= _ALIKE
    if likely or (not new.unreal and changes_a_clause(older, newer)):
        odds, contrast = max(odds, _LIKELY), Contrast.LIKELY
    if contrast in (None, Contrast.APART) and not new.unreal and leaves_behind(older, newer):
        return max(odds, _LIKELY)
    if changed and not new.ends:
        # "I work for Equinor now" says since when one works there, not that one lives elsewhere.
        of_itself = contrast is Contrast.OTHER and changed <= _OF_NOW
        of_new = changed <= _NEW and (contrast is Contrast.OTHER or tells_of_something_new(older, newer))
        if (
            of_itself
            or of_new
            or names_place_again(older, newer)
            or tells_of_new_part(older, newer)
            or tells_it_of_others(older, newer)
        ):
            return min(odds, _NO_CHANGE)
    if changed or new.ends:
        return odds - _OTHER_BUT_CHANGED if contrast is Contrast.OTHER else odds
    if happened_once(newer) and not happened_once(older):
        return min(odds, _NO_CHANGE)  # "I wake up at 6." … "Yesterday I woke up at 9."
    if asks_for_something(newer) and not asks_for_something(older):
        return min(odds, _NO_CHANGE)  # "My address is …" … "Send the parcel to …"
    if contrast is None and len(clauses(older)) > _FEW_CLAUSES:
        return min(odds, _LEAST_LIKELY)
    if contrast is Contrast.APART:
        return min(odds, LEAST_SURE) - (0 if old.ends else _APART)
    return min(odds, LEAST_SURE if contrast in (None, Contrast.LIKELY) else _NO_CHANGE)


def leaves_alone(older: str, newer: str) -> bool:
    """Return True if the newer statement is of another thing, happened beside, adds something or answers a request."""
    if is_about_another_thing(older, newer) or happened_beside(older, newer):
        return True
    new = read_claim(newer)
    if requests_a_task(older):
        return not (requests_a_task(newer) or new.changes or new.ends)
    return adds(newer) and not new.ends


def is_told_in_other_words(older: str, newer: str) -> bool:
    """Return True if `newer` gives an attribute another value, or ends what goes on, in other words than `older`."""
    told = gives_attribute_another_value(older, newer) or tells_of_death_in(older, newer)
    return told or completes(older, newer) or has_again(older, newer) or names_another_one(older, newer)


def names_what_changes(older: str, newer: str) -> bool:
    """Return True if the newer of two statements gives a new value to what the words of both name."""
    if is_told_in_other_words(older, newer) or contrast_of(older, newer) in (Contrast.VALUE, Contrast.LIKELY):
        return True
    new = read_claim(newer)
    if not (new.changes or new.ends) or new.unreal or happened_once(newer):
        return repetition_of(older, newer) is Repetition.SAME
    return leaves_behind(older, newer) or shares_a_noun(older, newer)


def may_be_versions(first: str, older: str, newer: str) -> bool:
    """Return False if two statements that replace `first` do not replace each other, as they change two clauses."""
    old, new = read_claim(older), read_claim(newer)
    if old.holder != new.holder and max(old.owner, new.owner) >= Owner.NAMED:
        return False
    if leaves_alone(older, newer) or contrast_of(older, newer) in (Contrast.OTHER, Contrast.TOGETHER):
        return False
    return not change_other_clauses(first, older, newer)


def confidence_of(odds: float) -> float:
    """Return the confidence for log odds."""
    return 1 / (1 + math.exp(-odds))


def log_odds(confidence: float) -> float:
    """Return the log odds of a confidence."""
    return math.log(confidence / (1 - confidence)) if confidence < 1 else math.inf
