"""Order candidates by what holds now: a statement passes its share of relevance on to what probably replaced it.

Pure. Each candidate's share is the softmax of its score; an older statement keeps the part of its share that nothing
replaces, and the rest goes to the newer ones, in the order of time. A question about before asks the other way round.
What says the same exchanges places, so that the newest comes first; of long messages, see `long_messages`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from memos.core.ports import Vector
from memos.core.text.claims import Claim, Owner, read_claim
from memos.core.text.contrasts import concerns_another_clause
from memos.core.types import Arm, Role
from memos.memcube.judge import Judge, confidence_of, log_odds, lost_features, question_features
from memos.memcube.ledger.timeline import LIKELY
from memos.memcube.relations import MOST_WORDS
from memos.memcube.standing import Replacement
from memos.search.long_messages import newest_of_long
from memos.search.question import Intent, Question
from memos.search.rank import Ranked

CONSIDERED = 20
"""Best candidates among which the order changes."""

_TURN = Arm.TURN.value
_TURN_WORDS = Arm.TURN_BM25.value
_DATED = Arm.DATED.value

_MOST_LOWERED = 0.35  # of the best score, for what is about another person
_MOST_LOWERED_OF_NOBODY = 0.6  # where the question names nobody, so that it is about the speaker
_KEPT = 0.3  # of its own share, so that what was replaced is found after what replaced it
_LEAST_PART = 0.02
_AS_SURE = 0.6  # of the surest, from which the latest of what was before is taken
_FEW = 1.0  # by how much, in log odds for each e-fold
_NAMED = 0.6  # of the words after "before" that a statement has if it is meant
_LEAST = 0.25  # confidence below which nothing passes its share on


def by_succession(
    scored: Sequence[Ranked],
    question: Question,
    replacements: Sequence[Replacement],
    judge: Judge,
    repeated: Sequence[tuple[str, str]] = (),
) -> list[Ranked]:
    """Return the candidates, best first, with replaced statements after what replaced them.

    `repeated` are the ids of older and newer items that say the same: the newest comes first unless the question is
    about before, or about a time.
    """
    order = sorted(scored, key=lambda entry: (-entry.score, entry.item.id))
    best = _by_what_holds(order, question, replacements, judge)
    if any(map(_has_no_relations, order[:CONSIDERED])):
        best = newest_of_long(best, question, CONSIDERED)
    if repeated and not (Intent.FORMER in question.intents or question.of_then):
        best = _newest_first(best, repeated)
    return _rescored(best, [entry.score for entry in order])


def _newest_first(order: list[Ranked], repeated: Sequence[tuple[str, str]]) -> list[Ranked]:
    """Return the candidates with those that say the same sorted newest first among their places."""
    places = {entry.item.id: place for place, entry in enumerate(order)}
    group: dict[str, set[str]] = {}
    for pair in repeated:
        if places.keys() >= set(pair):
            together = set(pair).union(*(group.get(id_, ()) for id_ in pair))
            group.update(dict.fromkeys(together, together))
    best = list(order)
    for together in {id(each): each for each in group.values()}.values():
        taken = sorted(places[id_] for id_ in together)
        newest = sorted((order[place] for place in taken), key=_said_at, reverse=True)
        for place, entry in zip(taken, newest, strict=True):
            best[place] = entry
    return best


def _has_no_relations(entry: Ranked) -> bool:
    """Return True for what a user told in more words than relations are judged of."""
    return entry.item.role == Role.USER and read_claim(entry.item.memory).count > MOST_WORDS


def _said_at(entry: Ranked) -> tuple[int, str]:
    return entry.item.said_at or 0, entry.item.id


def _by_what_holds(
    order: list[Ranked], question: Question, replacements: Sequence[Replacement], judge: Judge
) -> list[Ranked]:
    """Return the candidates reordered by what holds now, with unchanged scores."""
    first, rest = _considered(order, replacements)
    known = {entry.item.id for entry in first}
    # A question about a day or a month wants what was said then, whatever came later.
    wanted = () if question.of_then else replacements
    texts = {entry.item.id: entry.item.memory for entry in first}
    links = [
        each
        for each in wanted
        if each.older in known
        and each.newer in known
        and not concerns_another_clause(question.text, texts[each.older], texts[each.newer])
    ]
    asked = question.claim
    # "What did Ann's family do?" is answered by "My kids swam"; "Where does she live?" not by "My son lives in Rome".
    named = any(map(question.names_speaker, {entry.item.speaker for entry in first}))
    by_score = named or not _some_about(asked, first)
    if not first or not first[0].score > 0 or (by_score and not links):
        return order
    claims = list(map(_claim_of, first))
    lowered = [0.0 if by_score else judge.lowered(asked, claim) for claim in claims]
    if not links and not any(lowered):
        return order
    moved = parts = _parts(first, lowered, asked, judge)
    if links:
        moved = _moved(first, parts, _odds(links, first, claims, asked, judge), question)
    best = sorted(first, key=lambda entry: (-moved[entry.item.id], -entry.score, entry.item.id))
    return [*best, *rest]


def _considered(order: Sequence[Ranked], replacements: Sequence[Replacement]) -> tuple[list[Ranked], list[Ranked]]:
    """Return the best candidates, with what probably replaced them or was replaced by them, and the rest."""
    known = {entry.item.id for entry in order[:CONSIDERED]}
    likely = [{each.older, each.newer} for each in replacements if each.confidence >= LIKELY]
    linked = set().union(*(pair for pair in likely if pair & known)) - known
    linked |= set().union(*(pair for pair in likely if pair & linked)) - known
    first = [*order[:CONSIDERED], *(entry for entry in order[CONSIDERED:] if entry.item.id in linked)]
    return first, [entry for entry in order[CONSIDERED:] if entry.item.id not in linked]


def _claim_of(entry: Ranked) -> Claim:
    """Return the claim of a candidate, in which a speaker who says their own name speaks of themselves."""
    claim = read_claim(entry.item.memory)
    return replace(claim, owner=Owner.SPEAKER) if claim.holder == entry.item.speaker.casefold() else claim


def _some_about(asked: Claim, first: Sequence[Ranked]) -> bool:
    """Return False if a question names people of whom no candidate speaks: the name may be the speaker's."""
    claims = (read_claim(entry.item.memory) for entry in first)
    return not asked.people or any(asked.people & (claim.people | claim.names) for claim in claims)


def _score_by(arm: str, entry: Ranked) -> float:
    for voting, _, score, _ in entry.votes:
        if voting == arm:
            return score
    return 0.0


def _parts(first: Sequence[Ranked], lowered: Sequence[float], asked: Claim, judge: Judge) -> Mapping[str, float]:
    """Return each candidate's share of relevance; what is much nearer to a question stays before what is less near."""
    most = _MOST_LOWERED if asked.people or asked.names else _MOST_LOWERED_OF_NOBODY
    logits = []
    for entry, lost in zip(first, lowered, strict=True):
        # What is of the time that a question names answers it, whoever it is about.
        of_then = lost and any(arm == _DATED for arm, *_ in entry.votes)
        share = entry.score / first[0].score - (0.0 if of_then else min(lost / judge.by_score, most))
        logits.append(share * judge.by_score)
    parts = np.exp(np.array(logits) - max(logits))
    return dict(zip([entry.item.id for entry in first], (parts / parts.sum()).tolist(), strict=True))


def _odds(
    links: Sequence[Replacement], first: Sequence[Ranked], told: Sequence[Claim], asked: Claim, judge: Judge
) -> list[Replacement]:
    """Return the replacements with the confidence that they are of what is asked; decided ones stay decided."""
    claims = {entry.item.id: read_claim(entry.item.memory) for entry in first}
    newer = {each.newer for each in links}
    of_newer = [(entry, claim) for entry, claim in zip(first, told, strict=True) if entry.item.id in newer]
    features = _features(of_newer, first[0].score, max(_score_by(_TURN, entry) for entry in first), asked)
    more = dict(zip((entry.item.id for entry, _ in of_newer), (features @ judge.asked).tolist(), strict=True))
    # The fewer statements there are, the more likely two near ones are an old and a new one.
    few = _FEW * math.log(CONSIDERED / len(first))
    found = []
    for each in links:
        if _answers_alone(asked, claims[each.older], claims[each.newer]):
            continue
        lost = np.array(lost_features(asked, claims[each.older], claims[each.newer]), dtype=np.float32)
        odds = more[each.newer] + float(lost @ judge.lost) + few
        found.append(each._replace(confidence=_asked_odds(each.confidence, odds)))
    return [each for each in found if each.confidence >= _LEAST]


def _features(told: Sequence[tuple[Ranked, Claim]], best_score: float, best_cosine: float, asked: Claim) -> Vector:
    """Return what the question tells of candidates, (n, features)."""
    return np.array(
        [
            question_features(
                asked,
                claim,
                entry.score / best_score,
                _score_by(_TURN, entry),
                best_cosine,
                _score_by(_TURN_WORDS, entry),
            )
            for entry, claim in told
        ],
        dtype=np.float32,
    )


def _answers_alone(asked: Claim, older: Claim, newer: Claim) -> bool:
    """Return True if the older statement alone has a number of the question, or all words of a search by words."""
    by_words = not asked.asks and asked.terms <= older.terms and not asked.terms <= newer.terms
    return by_words or bool(_numbered(asked) & _numbered(older) - _numbered(newer))


def _numbered(claim: Claim) -> frozenset[str]:
    return frozenset(filter(_DIGIT.search, claim.terms))


_DIGIT = re.compile(r"\d")


def _asked_odds(confidence: float, more: float) -> float:
    if not 0 < confidence < 1:
        return confidence
    return confidence_of(log_odds(confidence) + more)


def _moved(
    first: Sequence[Ranked], parts: Mapping[str, float], links: Sequence[Replacement], question: Question
) -> Mapping[str, float]:
    """Return each candidate's share of relevance after replaced statements passed theirs to what replaced them.

    A question about before passes them the other way, from the newer to the older statement. "Where did she live before
    Lyon?" wants the home just before Lyon, so there a statement passes on its own share alone; for "originally" it
    passes on what it was given as well, and the oldest statement comes first: so for "my first teacher".
    """
    former = not question.intents.isdisjoint({Intent.FORMER, Intent.FIRST})
    one_step = Intent.FIRST not in question.intents and former
    ways: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for older, newer, confidence, _ in links:
        start, end = (newer, older) if former else (older, newer)
        ways[start].append((end, confidence))
    gained: dict[str, float] = defaultdict(float)
    moved = dict(parts)
    in_time = sorted(first, key=_said_at, reverse=former)
    order = {entry.item.id: place for place, entry in enumerate(in_time)}
    for entry in in_time:
        own, ends = parts[entry.item.id] + gained[entry.item.id], ways.get(entry.item.id, [])
        moved[entry.item.id] = own
        if one_step:
            own, ends = parts[entry.item.id], _latest(ends, order)
        if not ends or own < _LEAST_PART:
            continue
        # One of them replaces it, so that many that hardly do take no more than one that does.
        goes = own * max(confidence for _, confidence in ends)
        total = sum(confidence**2 for _, confidence in ends)
        for end, confidence in ends:
            # And what replaces many takes the place of the best of them: the last of a list is not the whole list.
            gained[end] = max(gained[end], goes * confidence**2 / total)
        moved[entry.item.id] = max(moved[entry.item.id] - goes, _KEPT * parts[entry.item.id])
    if one_step and (before := _just_before(first, ways, order, question)) is not None:
        moved[before] = max(moved.values()) + _LEAST_PART
    return moved


def _just_before(
    first: Sequence[Ranked],
    ways: Mapping[str, Sequence[tuple[str, float]]],
    order: Mapping[str, int],
    question: Question,
) -> str | None:
    """Return the id of the statement replaced by the one that gives the value after "before"."""
    named = question.terms_before
    if not named:
        return None
    shares = {entry.item.id: len(named & read_claim(entry.item.memory).terms) / len(named) for entry in first}
    sure = {id_: [end for end in ends if end[1] >= LIKELY] for id_, ends in ways.items()}
    naming = [id_ for id_, share in shares.items() if share >= _NAMED and sure.get(id_)]
    if not naming:
        return None
    # The first that names it tells of its beginning: "from 6 km to 7 km" and, later, "from 7 km to 8 km".
    began = max(naming, key=lambda id_: (shares[id_], order[id_]))
    return next((end for end, _ in _latest(sure[began], order)), None)


def _latest(ends: Sequence[tuple[str, float]], order: Mapping[str, int]) -> list[tuple[str, float]]:
    """Return the one that comes first in `order`, of those about as likely as the likeliest."""
    surest = max((confidence for _, confidence in ends), default=0.0)
    sure = [end for end in ends if end[1] >= _AS_SURE * surest]
    return sorted(sure, key=lambda end: order[end[0]])[:1]


def _rescored(best: Sequence[Ranked], scores: Sequence[float]) -> list[Ranked]:
    """Return the candidates with the scores of the places they have now."""
    return [
        entry
        if entry.score == score
        else Ranked(entry.item, score, entry.votes, (*entry.boosts, ("succession", score - entry.score)))
        for entry, score in zip(best, scores, strict=True)
    ]
