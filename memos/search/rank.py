"""Fuse the arms of a search and rank the candidates: fused score, session, neighbours and bounded boosts.

Pure. Every weight was chosen by cross-validation over the conversations of LoCoMo, and kept only if BEAM and PrefEval
did not lose (docs/development/log.md). What raises a score is at most 20 % of it; nothing removes a candidate.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from memos.core.ports import ScoredPoint
from memos.core.text.acknowledgements import acknowledges
from memos.core.text.attributes import asked_attribute, asks_of_now, is_of_long_ago, tells_attribute
from memos.core.text.instructions import instructs
from memos.core.text.preferences import states_preference
from memos.core.types import Arm, ArmScore, Boost, ItemType, Role
from memos.memcube.ledger.items import Brief
from memos.search.question import Intent, Question, mentions

FLOOR_RANK = 50  # a vector arm's score at this rank counts as nothing: cosines say how much better, not how good
_LEAST = 0.05  # what the last of a vector arm's list still counts, so that a small cube's only memory is found
_LEAST_WIDTH = 0.2  # cosines between the best and the floor, at least
# BM25 a term from which the words say all they can: a usual LoCoMo question's best has 2.8, a PrefEval one's 1.4.
_FULL_TERM_SCORE = 2.0
_LEAST_TERM_WEIGHT = 0.3

# Arms with a score of zero for items that share no word with the question.
TERM_ARMS = frozenset({"turn_bm25", "window_bm25", "unindexed_terms"})

# What one arm said of a candidate: arm, 1-based rank, its own score, what that gave of the fused score.
Vote = tuple[str, int, float, float]


class Fused(NamedTuple):
    version_key: str
    score: float
    votes: tuple[Vote, ...]


def fuse(arms: Mapping[str, Sequence[ScoredPoint]], terms: int = 1, vector_weight: float = 1.0) -> list[Fused]:
    """Return candidates by the mean of their scaled scores over the arms that found anything, best first.

    Each arm is scaled so that its best is 1 and its floor 0: the floor of a term arm is 0, of a vector arm its score at
    `FLOOR_RANK`. If even the best matches few of the question's `terms`, term arms weigh less. Arms are sorted best
    first; an arm votes only with positive scores and once per candidate.
    Source: relative score fusion, as in Bruch et al., "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS
    2023, whose convex combination beats reciprocal ranks; measured in docs/development/log.md.
    """
    voting = [name for name, candidates in arms.items() if candidates and candidates[0].score > 0]
    say = _term_arm_weight(arms, terms)
    votes: dict[str, list[Vote]] = {}
    totals: dict[str, float] = {}
    for name in voting:
        found = _distinct(arms[name])
        scaled = _scaled(name, found, (say if name in TERM_ARMS else vector_weight) / len(voting))
        rank, previous = 0, float("inf")
        for place, ((key, score), gave) in enumerate(zip(found, scaled, strict=True), start=1):
            if score < previous:
                rank, previous = place, score
            if key in totals:
                totals[key] += gave
                votes[key].append((name, rank, score, gave))
            else:
                totals[key] = gave
                votes[key] = [(name, rank, score, gave)]
    order = sorted([(-score, key) for key, score in totals.items()])
    return [Fused(key, -score, tuple(votes[key])) for score, key in order]


def _scaled(name: str, found: Sequence[ScoredPoint], weight: float) -> list[float]:
    """Return what an arm gives its candidates, from nothing at a score of 0 to `weight` for the best."""
    best = found[0].score
    if name in TERM_ARMS:
        return [weight * (score / best) for _, score in found]
    floor = found[min(len(found), FLOOR_RANK) - 1].score
    if len(found) < FLOOR_RANK:  # of a few, the last may be almost as near as the best
        floor = min(floor, best - _LEAST_WIDTH)
    width, least, rest = best - floor, _LEAST * weight, weight * (1 - _LEAST)
    # Divided first: the scores may be the smallest numbers there are.
    return [
        least * (score / floor) if score < floor else least + rest * ((score - floor) / width if width else 1.0)
        for _, score in found
    ]


def _term_arm_weight(arms: Mapping[str, Sequence[ScoredPoint]], terms: int) -> float:
    by_words = arms.get("turn_bm25")
    if not by_words:
        return 1.0
    return min(1.0, max(_LEAST_TERM_WEIGHT, by_words[0].score / max(1, terms) / _FULL_TERM_SCORE))


def _distinct(candidates: Sequence[ScoredPoint]) -> Sequence[ScoredPoint]:
    """Return the positive candidates, each version once with its best chunk; candidates come best first."""
    if candidates[-1].score > 0 and len({point.key for point in candidates}) == len(candidates):
        return candidates
    best: dict[str, ScoredPoint] = {}
    for point in candidates:
        if point.score > 0:
            best.setdefault(point.key, point)
    return list(best.values())


SESSION = 0.25  # weight of the session's score among the arms: a fifth voter in addition to four
_SESSION_TOP = 5
GRAPH = 0.02
NEXT = 0.15
PREVIOUS = 0.05
# Of what stands just before, as far as somebody else asks there: "For three years now" has no other words.
ANSWERS = 0.20
SPEAKER = 0.15
TIMED = 0.10
# Weight of what was said, or is so, at the time a question names: as much as all that its words have to say. Half of it
# for being of that time, half for what its words say among the others that are.
DATED = 1.0
NAMED = 0.15
_NAMED_HALF_RANK = 20
# A second look by the question's vector with its names, as a share of the best score; at this rank half of it.
_SECOND_LOOK_TOP = 50
_TIE = 1e-6

PHRASE = 0.20
CALLED = 0.20  # a call with its outcome, when the question is whether something was done, or worked, before
NEWEST = 0.10
OLDEST = 0.10
ADVICE = 0.20
ASKING = -0.20
ASSISTANT = -0.15
AT_LENGTH = -0.5  # what the assistant says at length where users ask about themselves: it repeats what they said
ANSWERED = 0.20  # what the assistant said, where that is asked for
TELLS_NOTHING = -0.8  # acknowledges, thanks or greets, or instructs the assistant in a system message
TELLS_ASKED = 0.15  # tells the attribute that is asked for: an age, an employer
LONG_AGO = -0.20  # was so in another time of life, where the question is about now
OUTDATED = -0.20  # says what was replaced since; what replaced it stands before it
_BEFORE = 1.001

# Instructions, and others that stand, that a request gets among its first hits, with what users told of themselves
# twice as many in all: each second place from the second.
_PROMOTED = 2
# Cosine below which nothing is lifted: half of what has nothing to do with a request is nearer
# (docs/development/log.md).
_RELATED = 0.05
_MOST_STATED = 10
# Of what may be lifted, those nearest to a question that are looked at; of the second at most four have a place.
_MOST_OF_SELF = 6
_INSTRUCTED = 0.35  # cosine from which an instruction is about a question that asks for nothing to be done
SPREAD = -0.05
# A share of the best score, for each better hit of the same session up to so many, where a question wants several.
_SPREAD_UP_TO = 2
ABSENT = -0.8  # said where nobody speaks whom the question names, and does not name them
COLD = -0.10  # of an archived segment: found, after what is as good and in use

_SHORT_CHARS = 200
_AT_LENGTH_CHARS = 600
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


class Recalled(NamedTuple):
    item: Brief
    fused: Fused


class PreferenceCandidates(NamedTuple):
    """Candidates for promotion, nearest first: lasting statements, and users' statements about themselves."""

    stated: tuple[ScoredPoint, ...]
    of_self: tuple[ScoredPoint, ...]

    def items(self) -> Iterator[str]:
        return (point.item for points in self for point in points)


NO_PREFERENCES = PreferenceCandidates((), ())


class Ranked(NamedTuple):
    """A candidate with its final score, the arms' votes and what else added to it, by name."""

    item: Brief
    score: float
    votes: tuple[Vote, ...]
    boosts: tuple[tuple[str, float], ...]

    @property
    def arm_scores(self) -> tuple[ArmScore, ...]:
        """Return the arms' votes as a hit shows them."""
        return tuple(ArmScore(*vote) for vote in self.votes)

    @property
    def all_boosts(self) -> tuple[Boost, ...]:
        """Return the boosts as a hit shows them."""
        return tuple(Boost(name, gave) for name, gave in self.boosts)


def score_candidates(
    pool: Sequence[Recalled],
    question: Question,
    near: Sequence[str] = (),
    newer: Mapping[str, str] = MappingProxyType({}),
    dated: Sequence[Fused] = (),
    whole: Sequence[ScoredPoint] = (),
    absent: Collection[str] = frozenset(),
) -> list[Ranked]:
    """Score the candidates, best first, keeping what contributed to each score.

    `near` are items the graph links to the best candidate, `newer` maps replaced items to what replaced them, `dated`
    are candidates of the time the question names, fused separately, `whole` are points near the question as asked,
    if speakers' names were removed from its vector, and `absent` are conversations without the speakers it names.
    """
    of_then: dict[str, Vote] = {
        entry.version_key: ("dated", place, entry.score, DATED * (1 + entry.score) / 2)
        for place, entry in enumerate(dated, start=1)
    }
    graph: dict[str, Vote] = {item: ("graph", place, 1.0, GRAPH) for place, item in enumerate(near, start=1)}
    sessions = _sessions(pool)
    base_of = {entry.item.id: entry.fused.score + SESSION * sessions.get(_session(entry.item), 0.0) for entry in pool}
    places = {_position(entry.item, 0): entry.item for entry in pool if entry.item.position is not None}
    named = named_speakers(pool, question)
    newest = _by_age(pool) if Intent.LATEST in question.intents else {}
    oldest = _by_age(pool, oldest=True) if Intent.FIRST in question.intents else {}
    factors = _Factors(question, named, newer, absent)
    ranked = []
    for item, fused in pool:
        base, votes = base_of[item.id], fused.votes
        boosts = [("session", base - fused.score)] if base != fused.score else []
        if item.position is not None:
            after, before = places.get(_position(item, 1)), places.get(_position(item, -1))
            boosts += [(name, weight * base_of[other]) for name, weight, other in _neighbours(item, after, before)]
        if base:  # of nothing every share is nothing
            boosts += [(name, weight * base) for name, weight in factors.of(item)]
        if item.id in newest:
            boosts.append(("newest", NEWEST * newest[item.id] * base))
        if item.id in oldest:
            boosts.append(("oldest", OLDEST * oldest[item.id] * base))
        if item.id in graph:
            votes = (*votes, graph[item.id])
        if of_then and (then := of_then.get(f"{item.id}:{item.version}")) is not None:
            votes = (*votes, then)
        score = sum([vote[3] for vote in votes]) + sum([gave for _, gave in boosts])
        ranked.append(Ranked(item, score, votes, tuple(boosts)))
    ranked = _second_look(ranked, whole)
    return _spread(ranked) if question.intents & {Intent.LIST, Intent.COUNT} else ranked


def named_speakers(pool: Sequence[Recalled], question: Question) -> set[str]:
    """Return the speakers of these candidates whom a question names, but not Ann where it names Ann Lee."""
    return question.speakers_named({entry.item.speaker for entry in pool})


def reorder(
    scored: Sequence[Ranked],
    question: Question,
    newer: Mapping[str, str] = MappingProxyType({}),
    preferences: PreferenceCandidates = NO_PREFERENCES,
) -> list[Ranked]:
    """Return the final order: by score, replacements before what they replaced, `preferences` promoted."""
    if Intent.LATEST in question.intents:
        newer = {**newer, **_replaced_in_pool(scored)}
    return _promote_preferences(_newer_first(scored, newer), question, preferences)


def _second_look(ranked: list[Ranked], whole: Sequence[ScoredPoint]) -> list[Ranked]:
    order = sorted(ranked, key=lambda entry: (-entry.score, entry.item.id))
    first = {f"{entry.item.id}:{entry.item.version}": place for place, entry in enumerate(order[:_SECOND_LOOK_TOP])}
    best = order[0].score if order else 0.0
    near: dict[str, float] = {}
    for point in whole:
        if point.key in first:
            near.setdefault(point.key, point.score)
    place, before = 0, float("inf")
    for number, (key, cosine) in enumerate(near.items()):
        # What is as near has one place: its order is the index's own, and another after a rebuild.
        if cosine < before - _TIE:
            place, before = number, cosine
        entry = order[first[key]]
        gave = NAMED * best / (1 + place / _NAMED_HALF_RANK)
        vote = ("named", place + 1, cosine, gave)
        order[first[key]] = entry._replace(score=entry.score + gave, votes=(*entry.votes, vote))
    return order


def _spread(ranked: list[Ranked]) -> list[Ranked]:
    """Lower what comes after others of its session: a question for several things wants several sessions.

    Maximal marginal relevance by sessions; the order within a session stays.
    Source: Carbonell and Goldstein, "The Use of MMR", SIGIR 1998.
    """
    order = sorted(ranked, key=lambda entry: (-entry.score, entry.item.id))
    best = order[0].score if order else 0.0
    seen: Counter[object] = Counter()
    for place, entry in enumerate(order):
        session = _session(entry.item)
        if session is None:
            continue
        if seen[session]:
            took = SPREAD * best * min(seen[session], _SPREAD_UP_TO)
            order[place] = entry._replace(score=entry.score + took, boosts=(*entry.boosts, ("spread", took)))
        seen[session] += 1
    return order


def select_preferences(
    question: Question, standing: Sequence[ScoredPoint], of_self: Sequence[ScoredPoint]
) -> PreferenceCandidates:
    if question.is_request:
        return PreferenceCandidates(_nearest(standing, _RELATED), _nearest(of_self, _RELATED, _MOST_OF_SELF))
    return PreferenceCandidates(_nearest(standing, _INSTRUCTED), ())


def _nearest(points: Sequence[ScoredPoint], least: float, most: int = _MOST_STATED) -> tuple[ScoredPoint, ...]:
    nearest: dict[str, ScoredPoint] = {}
    for point in points:
        if point.score < least or len(nearest) == most:
            break
        nearest.setdefault(point.item, point)
    return tuple(nearest.values())


def _promote_preferences(ranked: list[Ranked], question: Question, preferences: PreferenceCandidates) -> list[Ranked]:
    """Promote lasting statements: who asks for a hotel does not mention the crowds that they avoid.

    A request gets the nearest instructions and other lasting statements, then what users told about themselves; any
    other question only an instruction that is about it.
    """
    there = {entry.item.id: entry for entry in ranked}
    found = _without_repeats(preferences.stated, there)
    told = [point for point in found if instructs(there[point.item].item.memory)]
    if question.is_request:
        stated = [*told[:_PROMOTED], *[point for point in found if point not in told][:_PROMOTED]]
    else:
        stated = told[:1]
    stated.sort(key=lambda point: -point.score)
    wanted = [(Arm.STANDING, point) for point in stated]
    wanted += [(Arm.OF_SELF, point) for point in _without_repeats(preferences.of_self, there)]
    ranked, order = list(ranked), [entry.item.id for entry in ranked]
    lifted, room = 0, 2 * _PROMOTED - len(stated)
    for arm, point in wanted:
        if arm is Arm.OF_SELF and not room:
            break
        place, at = 1 + 2 * lifted, order.index(point.item)
        if at <= place:  # what is as high by itself takes no place from others
            continue
        entry = ranked.pop(at)
        order.insert(place, order.pop(at))
        score = min(ranked[place].score * _BEFORE, ranked[place - 1].score)
        rank = (preferences.stated if arm is Arm.STANDING else preferences.of_self).index(point) + 1
        vote = (arm.value, rank, point.score, score - entry.score)
        ranked.insert(place, entry._replace(score=score, votes=(*entry.votes, vote)))
        lifted += 1
        room -= arm is Arm.OF_SELF
    return ranked


def _without_repeats(points: Sequence[ScoredPoint], there: Mapping[str, Ranked]) -> list[ScoredPoint]:
    said: dict[tuple[str, str], ScoredPoint] = {}
    for point in points:
        if point.item in there and not (item := there[point.item].item).outdated:
            said.setdefault((item.cube, " ".join(item.memory.casefold().split())), point)
    return list(said.values())


def _newer_first(ranked: Sequence[Ranked], newer: Mapping[str, str]) -> list[Ranked]:
    """Sort by score, with a replacement just before what it replaced: "where does she live" means now."""
    by_id = {entry.item.id: entry for entry in ranked}
    before: dict[str, float] = {}
    for old, new in newer.items():
        if old in by_id and new in by_id:
            before[new] = max(before.get(new, 0.0), by_id[old].score * _BEFORE)
    for new, score in before.items():
        entry = by_id[new]
        if score > entry.score:
            boosts = (*entry.boosts, ("successor", score - entry.score))
            by_id[new] = entry._replace(score=score, boosts=boosts)
    return sorted(by_id.values(), key=lambda entry: (-entry.score, entry.item.id))


_NO_CONVERSATION = ""


def _session(item: Brief) -> tuple[str, int | str] | None:
    if item.conversation is not None and item.session is not None:
        return item.conversation, item.session
    return (_NO_CONVERSATION, item.id) if item.type == ItemType.MESSAGE and item.role == Role.USER else None


def _sessions(pool: Sequence[Recalled]) -> Mapping[object, float]:
    """Return each session's score, the best 1: the sum of its five best candidates' scores.

    Where there are sessions, what a user said outside of a conversation is one of its own.
    """
    votes: dict[object, list[float]] = defaultdict(list)
    alone: dict[object, list[float]] = defaultdict(list)
    for item, fused in pool:
        session = _session(item)
        if session is not None:
            (alone if session[0] == _NO_CONVERSATION else votes)[session].append(fused.score)
    if votes:
        votes |= alone
    sums = {session: sum(sorted(given, reverse=True)[:_SESSION_TOP]) for session, given in votes.items()}
    best = max(sums.values(), default=0.0)
    return {session: total / best for session, total in sums.items()} if best else {}


def _position(item: Brief, step: int) -> tuple[str | None, int | None, int]:
    return item.conversation, item.session, (item.position or 0) + step


def _neighbours(item: Brief, after: Brief | None, before: Brief | None) -> list[tuple[str, float, str]]:
    found = [("next", NEXT, after.id)] if after is not None else []
    if before is not None:
        found.append(("previous", PREVIOUS, before.id))
        if before.speaker != item.speaker and (asking := asks(before)):
            found.append(("answers", ANSWERS * asking, before.id))
    return found


def tells_nothing(item: Brief) -> bool:
    """Return True for system messages, acknowledgements, thanks and greetings."""
    return item.role == Role.SYSTEM or acknowledges(item.memory)


def asks(item: Brief) -> float:
    """Return the share of a short text that is questions, 0 for a long one."""
    return asking_share(item.memory) if item.length < _SHORT_CHARS else 0.0


class _Factors:
    def __init__(
        self, question: Question, named: Collection[str], newer: Container[str], absent: Collection[str]
    ) -> None:
        self._named, self._newer, self._absent = named, newer, absent
        self._phrases = question.phrases
        self._when, self._done, self._advice, self._former = (
            intent in question.intents for intent in (Intent.WHEN, Intent.DONE, Intent.ADVICE, Intent.FORMER)
        )
        self._asked = asked_attribute(question.text)
        self._of_now = asks_of_now(question.text) and not (self._former or question.of_then)
        self._own, self._answered = Intent.OWN in question.intents, Intent.ANSWERED in question.intents

    def of(self, item: Brief) -> list[tuple[str, float]]:
        found = [("speaker", SPEAKER)] if item.speaker in self._named else []
        if item.conversation in self._absent and not any(mentions(item.memory, name) for name in self._named):
            found.append(("absent", ABSENT))
        if self._when and item.valid_to is not None:
            found.append(("timed", TIMED))
        if self._phrases:
            said = " ".join(item.memory.casefold().split())
            share = sum(phrase in said for phrase in self._phrases) / len(self._phrases)
            if share:
                found.append(("phrase", PHRASE * share))
        if self._done and item.type == ItemType.TOOL_TRAJECTORY:
            found.append(("called", CALLED))
        if self._advice and item.role == Role.USER and states_preference(item.memory):
            found.append(("preference", ADVICE))
        # Who asks for a call and who makes it tell of it, when that is what the question is about.
        if not (self._done and item.id in self._newer):
            if asking := asks(item):
                found.append(("asking", ASKING * asking))
            if item.role == Role.ASSISTANT:
                found.append(self._of_assistant(item))
        if tells_nothing(item):
            found.append(("tells_nothing", TELLS_NOTHING))
        return [*found, *self._of_what_holds(item)]

    def _of_what_holds(self, item: Brief) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        if item.outdated and not self._former:
            found.append(("outdated", OUTDATED))
        if self._of_now and is_of_long_ago(item.memory):
            found.append(("long_ago", LONG_AGO))
        if self._asked is not None and item.role == Role.USER and tells_attribute(item.memory, self._asked):
            found.append(("tells_asked", TELLS_ASKED))
        if item.cold:
            found.append(("cold", COLD))
        return found

    def _of_assistant(self, item: Brief) -> tuple[str, float]:
        if self._answered:
            return ("answered", ANSWERED)
        return ("assistant", AT_LENGTH if self._own and item.length > _AT_LENGTH_CHARS else ASSISTANT)


def asking_share(text: str) -> float:
    if "?" not in text and "？" not in text:
        return 0.0
    asked = told = 0
    for sentence in _SENTENCE.findall(text):
        length = len(sentence.strip())
        told += length
        if sentence.rstrip().endswith(("?", "？")):
            asked += length
    return asked / told if told else 0.0


def _replaced_in_pool(scored: Sequence[Ranked]) -> Mapping[str, str]:
    by_key: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for item, *_ in scored:
        if item.key is not None and item.valid_from is not None:
            by_key[item.cube, item.key].append((item.valid_from, item.id))
    found: dict[str, str] = {}
    for told in by_key.values():
        at, last = max(told)
        found |= {id_: last for then, id_ in told if then < at}
    return found


def _by_age(pool: Sequence[Recalled], *, oldest: bool = False) -> Mapping[str, float]:
    dated = sorted((entry.item.valid_from, entry.item.id) for entry in pool if entry.item.valid_from is not None)
    if oldest:
        dated.reverse()
    return {item_id: place / (len(dated) - 1) for place, (_, item_id) in enumerate(dated) if place}
