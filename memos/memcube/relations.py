"""Relations between statements: which older one a newer one updates, ends, repeats or extends, and how sure that is.

A relation is a link from the newer to the older item. Rules judge it when either is indexed, so a rebuild judges anew.
Where a model is configured, a task has it judge the pairs of which rules are unsure; its judgement replaces theirs
until either item changes. What a person decided stays. No relation changes or hides an item: searches put the newer one
first, except of a pair of which the newer one extends the older.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.ports import ArmQuery, Vector, VectorIndex, VectorSearch
from memos.core.text.acknowledgements import acknowledges
from memos.core.text.attributes import gives_attribute_another_value
from memos.core.text.claims import Claim, Owner, are_namesakes, read_claim, terms_of
from memos.core.text.contrasts import Contrast, contrast_of, leaves_behind, mentions
from memos.core.text.matching import normalized_value
from memos.core.text.repetition import Repetition, repetition_of
from memos.core.types import FOUND, REPLACING, Arm, Fingerprint, Item, ItemType, LinkKind, Relation, Role
from memos.memcube.judge import (
    LEAST_SURE,
    Cosines,
    bounded_odds,
    confidence_of,
    conflicts,
    is_told_in_other_words,
    judge_for,
    log_odds,
    may_be_versions,
    names_what_changes,
    pair_features,
)
from memos.memcube.ledger import items, queries, tasks
from memos.memcube.ledger import relations as rows
from memos.memcube.ledger.engine import Ledger, retry_aborted
from memos.memcube.ledger.tasks import NewTask

STORED = 0.15
"""Least confidence of a relation that is stored: below it, it changes no order."""

OPEN = (-3.5, 2.94)
"""Log odds between which rules leave a pair to a model; 4 in 100 of the changes in the judge's stories are below."""

JUDGE = "judge"
"""Kind of the task that has a model judge the pairs of new statements; its payload lists the statements."""

MOST_WORDS = 30
"""Maximum words of a statement with relations: a longer text says several things, and a newer one may replace any."""

_NEAREST = 24
_MOST_OPEN = 3  # pairs of a newer statement that a model judges


class Told(NamedTuple):
    """A statement with the vector of its turn."""

    item: Item
    vector: Vector


class Pair(NamedTuple):
    """Two near statements, and the log odds by rules that the newer one replaces the older."""

    older: Item
    newer: Item
    cosine: float
    odds: float = 0.0


class RelationFinder:
    """Judges newly indexed statements against those near them. Thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        index: VectorIndex,
        embedder: Fingerprint,
        clock: Clock,
        has_model: Callable[[], bool] = lambda: False,
    ) -> None:
        self._has_model = has_model
        self._ledger = ledger
        self._index = index
        self._judge = judge_for(embedder)
        self._cosines = Cosines.of(embedder)
        self._clock = clock

    def find(self, told: Sequence[Told], again: Collection[str] = (), together: Sequence[str] = ()) -> None:
        """Judge statements, in their order, against the nearest ones of their cubes, and store what was found.

        `again` are those judged before: their former relations by rules are replaced. `together` are the items that
        were indexed at once, in their order: each is judged against those before it alone, so that a batch of
        statements gets the relations of single ones. A model gets the open pairs. Raises: BackendUnavailable.
        """
        by_cube: dict[str, list[Told]] = defaultdict(list)
        for each in told:
            if is_statement(each.item) and read_claim(each.item.memory).count <= MOST_WORDS:
                by_cube[each.item.cube].append(each)
        places = {id_: place for place, id_ in enumerate(together)}
        pairs = {cube: self._judged(cube, mine, places) for cube, mine in by_cube.items()}
        found = [
            (cube, relation)
            for cube, mine in pairs.items()
            for relation in map(relation_of, mine)
            if relation.confidence >= STORED
        ]
        if found or again:
            self._store(found, again)
        if self._has_model():
            self._queue(pairs)

    @retry_aborted
    def _store(self, found: Sequence[tuple[str, Relation]], again: Collection[str]) -> None:
        with self._ledger.write() as connection:
            rows.store(connection, found, self._clock.now(), again=again)

    def open_pairs(self, cube: str, ids: Sequence[str]) -> list[Pair]:
        """Return the pairs with these newer statements that rules leave open and nobody else has judged.

        Raises: BackendUnavailable.
        """
        with self._ledger.read() as connection:
            states = [state for state in items.current(connection, [cube], ids).values() if is_statement(state)]
        vectors = self._index.turns([state.version_id for state in states])
        told = [Told(state, vectors[state.version_id]) for state in states if state.version_id in vectors]
        found = self._open(self._judged(cube, told, {})) if told else []
        return [pair for pair in found if pair.newer.id in ids]

    def _open(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the open pairs among these, the likeliest of each newer statement."""
        mine = sorted((pair for pair in pairs if _is_open(pair)), key=lambda pair: -pair.odds)
        if not mine:
            return []
        with self._ledger.read() as connection:
            decided = rows.decided(connection, {pair.newer.id for pair in mine})
        taken: Counter[str] = Counter()
        found = []
        for pair in mine:
            if (pair.newer.id, pair.older.id) not in decided and taken[pair.newer.id] < _MOST_OPEN:
                taken[pair.newer.id] += 1
                found.append(pair)
        return found

    def _queue(self, pairs: Mapping[str, Sequence[Pair]]) -> None:
        """Queue open pairs, after the relations were saved: what locks items waits for no queue."""
        new = {cube: sorted({pair.newer.id for pair in self._open(mine)}) for cube, mine in pairs.items()}
        if any(new.values()):
            with self._ledger.write() as connection:
                for cube, ids in sorted(new.items()):
                    tasks.enqueue(connection, cube, [judge_task(ids)] if ids else [], self._clock.now())

    def _judged(self, cube: str, told: Sequence[Told], places: Mapping[str, int]) -> list[Pair]:
        """Return the pairs of each statement with those near it, of items in `places` with those before it alone."""
        arms = tuple(ArmQuery(Arm.TURN, each.vector) for each in told)
        # As many more as may have come later: those must not crowd out what came before.
        found = self._index.search(VectorSearch((cube,), arms, _NEAREST + len(places), live=True))
        near = []
        for each, points in zip(told, found, strict=True):
            last = places.get(each.item.id, len(places))
            near.append([point for point in points if places.get(point.item, -1) <= last][:_NEAREST])
        with self._ledger.read() as connection:
            states = {each.item.id: each.item for each in told}
            states |= items.current(connection, [cube], {point.item for points in near for point in points})
            adders = items.adders(connection, states)
            if len({state.speaker for state in states.values()}) > 1 or len(set(adders.values())) > 1:
                states = queries.with_persons(connection, cube, states, adders)
        groups = []
        for each, points in zip(told, near, strict=True):
            pairs: dict[tuple[str, str], Pair] = {}
            for point in points:
                other = states.get(point.item)
                if other is None or other.id == each.item.id or not is_statement(other):
                    continue
                older, newer = sorted((states[each.item.id], other), key=_told_at)
                if _may_be_related(older, newer):
                    pairs.setdefault((older.id, newer.id), Pair(older, newer, point.score))
            groups.append(list(pairs.values()))
        groups = self._said_to_the_same(groups)
        groups = self._with_odds(groups, {each.item.id: each.vector for each in told})
        return self._with_versions(cube, list(self._with_rivals(groups)))

    def _said_to_the_same(self, groups: Sequence[Sequence[Pair]]) -> list[list[Pair]]:
        """Return the groups without pairs in which "you" is somebody else, as one person talks with two."""
        asked = {
            item.id
            for pairs in groups
            for pair in pairs
            if _may_be_said_to_others(pair)
            for item in (pair.older, pair.newer)
        }
        if not asked:
            return [list(pairs) for pairs in groups]
        with self._ledger.read() as connection:
            names = queries.names_beside(connection, sorted(asked))
        return [
            [pair for pair in pairs if not (_may_be_said_to_others(pair) and _have_other_partners(pair, names))]
            for pairs in groups
        ]

    def _with_rivals(self, groups: Sequence[Sequence[Pair]]) -> Iterator[Pair]:
        """Yield the pairs, those of each statement with lower odds where it more likely replaces another older one.

        A statement replaces one thing: what holds of "I run 5 km now" and an earlier distance does not hold of every
        number. Earlier versions of what it replaces are no rivals of each other.
        """
        contested: list[dict[str, list[Pair]]] = []
        olders: set[str] = set()
        for group in groups:
            by_newer: dict[str, list[Pair]] = defaultdict(list)
            for pair in group:
                by_newer[pair.newer.id].append(pair)
            contested.append({id_: _of_what_is_mentioned(mine) for id_, mine in by_newer.items()})
            olders |= {p.older.id for mine in by_newer.values() if _is_contested(mine) for p in mine}
        versions_of: set[tuple[str, str]] = set()
        if olders:
            with self._ledger.read() as connection:
                stored = rows.replacements(connection, sorted(olders))
            versions_of = {(older, newer) for older, newer, confidence, *_ in stored if confidence >= _VERSIONS}
        for by_newer in contested:
            for id_ in sorted(by_newer, key=lambda newer: _told_at(by_newer[newer][0].newer)):
                mine = by_newer[id_]
                if _is_contested(mine):
                    mine = [pair._replace(odds=_contested_odds(pair, mine, versions_of)) for pair in mine]
                if id_ in olders:
                    versions_of |= {(pair.older.id, id_) for pair in mine if _is_version(pair)}
                yield from mine

    def _with_versions(self, cube: str, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the pairs, with those of a newer statement and other versions of what it replaces.

        "I watch Dark now." and "My evening series is Borgen." share no word. Both replaced "The series I watch in the
        evenings is Fleabag.", so the later one probably replaces the other.
        """
        found = {(pair.older.id, pair.newer.id): pair for pair in pairs}
        sure = [pair for pair in found.values() if _is_version(pair)]
        if not sure:
            return list(found.values())
        here: dict[str, dict[str, float]] = defaultdict(dict)
        of_newer: dict[str, list[Pair]] = defaultdict(list)
        for pair in sure:
            here[pair.older.id][pair.newer.id] = relation_of(pair).confidence
            of_newer[pair.newer.id].append(pair)
        with self._ledger.read() as connection:
            later = _later(connection, here)
            known = {item.id: item for pair in sure for item in (pair.older, pair.newer)}
            ids = {id_ for older, mine in later.items() for id_ in (older, *mine)} - known.keys()
            known |= items.current(connection, [cube], ids)
        versions = _Versions(later, known)
        for mine in sorted(of_newer.values(), key=lambda each: _told_at(each[0].newer)):
            newer = mine[0].newer
            for id_, (start, sureness) in versions.reached(mine).items():
                other = known[id_]
                before = found.get((id_, newer.id), Pair(other, newer, 0.0, -math.inf))
                odds = log_odds(sureness)
                if before.odds < odds and _may_be_version(known[start], other, newer):
                    better = found[id_, newer.id] = before._replace(odds=min(odds, LEAST_SURE))
                    later.setdefault(id_, {})[newer.id] = relation_of(better).confidence
        return list(found.values())

    def _with_odds(self, groups: Sequence[Sequence[Pair]], vectors: dict[str, Vector]) -> list[list[Pair]]:
        near = [Counter(pair.newer.id for pair in group) for group in groups]
        pairs = [
            (place, pair._replace(cosine=self._comparable(pair.cosine, pair.newer.memory, near[place][pair.newer.id])))
            for place, group in enumerate(groups)
            for pair in group
        ]
        judged: list[list[Pair]] = [[] for _ in groups]
        older = newer = None
        if self._judge.reads_vectors:
            ids = {i.version_id: i.id for _, pair in pairs for i in (pair.older, pair.newer) if i.id not in vectors}
            vectors |= {ids[point]: vector for point, vector in self._index.turns(list(ids)).items()}
            pairs = [(place, p) for place, p in pairs if p.older.id in vectors and p.newer.id in vectors]
            if pairs:
                older = np.stack([vectors[pair.older.id] for _, pair in pairs])
                newer = np.stack([vectors[pair.newer.id] for _, pair in pairs])
        if pairs:
            features = [
                pair_features(read_claim(p.older.memory), read_claim(p.newer.memory), p.cosine) for _, p in pairs
            ]
            odds = self._judge.log_odds(features, older, newer)
            for (place, pair), each in zip(pairs, odds, strict=True):
                lost = _LOST_APART * _crowded(near[place][pair.newer.id]) * _share_nothing(pair)
                judged[place].append(pair._replace(odds=bounded_odds(*_texts(pair), pair.cosine, float(each)) - lost))
        return judged

    def _comparable(self, cosine: float, text: str, neighbours: int) -> float:
        """Return a cosine as of English texts; where there are few neighbours, as the judge was fitted, as it is."""
        comparable = self._cosines.comparable(cosine, text)
        if not self._judge.reads_vectors:
            return comparable
        return cosine + _crowded(neighbours) * (comparable - cosine)


def _crowded(neighbours: int) -> float:
    return max(0.0, neighbours - _FEW) / (_NEAREST - _FEW)


_LOST_APART = 4.0  # log odds lost among many neighbours by a pair that shares no word
_WORDS_OF_TIME = frozenset(terms_of("before after minute hour day week month year today yesterday the th"))


def _texts(pair: Pair) -> tuple[str, str]:
    return pair.older.memory, pair.newer.memory


def _share_nothing(pair: Pair) -> bool:
    """Return True if no word and no known phrase of one statement is in the other.

    2 in 100 changes of the judge's stories and lives are told so; in a chat with many statements, most pairs that look
    like a change and are none.
    """
    older, newer = pair.older.memory, pair.newer.memory
    return (
        (read_claim(older).terms & read_claim(newer).terms) <= _WORDS_OF_TIME
        and contrast_of(older, newer) is None
        and not is_told_in_other_words(older, newer)
    )


_CONTESTED = -2.0  # log odds from which an older statement is a rival of others: below, no relation is stored
_VERSIONS = 0.5  # confidence from which two older statements are versions of one
_FEW = 8  # older statements near a newer one up to which rivals change nothing
_PER_LEAD, _MOST_LOST = 1.0, 4.0  # log odds lost for each by which a rival is likelier, and at most


def _of_what_is_mentioned(of_newer: list[Pair]) -> list[Pair]:
    """Return the pairs of a newer statement with lower odds of those about a thing that it does not mention.

    Only if it mentions the thing of another older one, or gives its attribute another value. Of 280 such pairs in the
    judge's stories and lives two are changes.
    """
    rivals = [pair for pair in of_newer if pair.odds > _CONTESTED]
    if len(rivals) < 2:
        return of_newer
    contrasts = {pair.older.id: contrast_of(pair.older.memory, pair.newer.memory) for pair in rivals}
    mentioned = {pair.older.id: mentions(pair.older.memory, pair.newer.memory) for pair in rivals}
    sure = {id_ for id_, contrast in contrasts.items() if contrast is Contrast.VALUE or mentioned[id_]}
    if not sure:
        return of_newer
    beside = {id_ for id_ in contrasts.keys() - sure if mentioned[id_] is False or contrasts[id_] is Contrast.OTHER}
    beside -= {pair.older.id for pair in rivals if leaves_behind(*_texts(pair)) and _are_of_one_holder(pair)}
    return [pair._replace(odds=min(pair.odds, _CONTESTED)) if pair.older.id in beside else pair for pair in of_newer]


def _are_of_one_holder(pair: Pair) -> bool:
    return read_claim(pair.older.memory).holder == read_claim(pair.newer.memory).holder


def _is_contested(of_newer: Sequence[Pair]) -> bool:
    return sum(pair.odds > _CONTESTED for pair in of_newer) > 1


def _is_version(pair: Pair) -> bool:
    """Return True if the relation of a pair makes it two versions of one statement, as a stored one would."""
    relation = relation_of(pair)
    return relation.confidence >= _VERSIONS and relation.kind in REPLACING | {LinkKind.SAME}


_LEAST_REACHED = 0.75  # product of confidences from which a statement is another version of what a newer one replaces
_MOST_STEPS = 4  # from a statement to the versions that replaced it, one after another
_MOST_NEWER = 8  # the latest of them at each step: of many versions the others are replaced already


def _later(connection: sa.Connection, here: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return what probably replaced or repeated these statements, and what replaced that, with its confidence.

    `here` are replacements that are not stored yet.
    """
    later: dict[str, dict[str, float]] = {older: dict(mine) for older, mine in here.items()}
    unread, read = set(here), set[str]()
    for _ in range(_MOST_STEPS + 1):  # the last are read for whether they are replaced
        stored = rows.replacements(connection, sorted(unread))
        if not read:  # what a statement repeats holds no longer than the statement
            repeated = rows.replacements(connection, sorted(unread), of_newer=True)
            stored += [
                (newer, older, sure, at, kind) for older, newer, sure, at, kind in repeated if kind == LinkKind.SAME
            ]
        read |= unread
        latest = Counter[str]()
        for older, newer, confidence, *_ in sorted(stored, key=lambda row: row[3] or 0, reverse=True):
            if confidence >= _VERSIONS and latest[older] < _MOST_NEWER:
                latest[older] += 1
                mine = later.setdefault(older, {})
                mine[newer] = max(confidence, mine.get(newer, 0.0))
        unread = {newer for older in unread for newer in later.get(older, ())} - read
        if not unread:
            break
    return later


class _Versions:
    """Finds what else a statement replaces: other versions of what it replaces that nothing has replaced yet."""

    def __init__(self, later: Mapping[str, Mapping[str, float]], known: Mapping[str, Item]) -> None:
        self._later, self._known = later, known
        self._named: dict[tuple[str, str], bool] = {}

    def reached(self, pairs: Sequence[Pair]) -> dict[str, tuple[str, float]]:
        """Return such versions by id: the statement through which each is reached, and the product of the confidences.

        `pairs` are those of one newer statement.
        """
        newer = pairs[0].newer
        starts = {pair.older.id: relation_of(pair).confidence for pair in pairs if self._names(pair.older, newer)}
        found = {start: (start, confidence) for start, confidence in starts.items()}
        steps = list(starts)
        for _ in range(_MOST_STEPS):
            further = []
            for older in steps:
                start, confidence = found[older]
                for id_ in self._before(older, newer)[:_MOST_NEWER]:
                    sureness = confidence * self._later[older][id_]
                    beaten = found.get(id_, ("", _LEAST_REACHED))[1]
                    if sureness > beaten and self._names(self._known[older], self._known[id_]):
                        found[id_] = start, sureness
                        further.append(id_)
            steps = further
        return {
            id_: (start, sureness)
            for id_, (start, sureness) in found.items()
            if start != id_ and not self._before(id_, newer)
        }

    def _before(self, older: str, newer: Item) -> list[str]:
        """Return what replaced a statement before a newer one was told, latest first."""
        at = _told_at(newer)
        mine = [id_ for id_ in self._later.get(older, ()) if id_ in self._known and _told_at(self._known[id_]) < at]
        return sorted(mine, key=lambda id_: _told_at(self._known[id_]), reverse=True)

    def _names(self, older: Item, newer: Item) -> bool:
        pair = older.id, newer.id
        if pair not in self._named:
            self._named[pair] = _names_what_changes(older, newer)
        return self._named[pair]


def _names_what_changes(one: Item, other: Item) -> bool:
    return names_what_changes(*(item.memory for item in sorted((one, other), key=_told_at)))


def _may_be_version(first: Item, older: Item, newer: Item) -> bool:
    return _may_be_related(older, newer) and may_be_versions(first.memory, older.memory, newer.memory)


def _contested_odds(pair: Pair, of_newer: Sequence[Pair], versions_of: Collection[tuple[str, str]]) -> float:
    """Return the log odds of a pair, lowered by the lead of the likeliest rival."""
    rivals = [
        other.odds
        for other in of_newer
        if other.odds > pair.odds
        and (pair.older.id, other.older.id) not in versions_of
        and (other.older.id, pair.older.id) not in versions_of
    ]
    if not rivals:
        return pair.odds
    return pair.odds - min(_crowded(len(of_newer)) * _PER_LEAD * (max(rivals) - pair.odds), _MOST_LOST)


def _may_be_related(older: Item, newer: Item) -> bool:
    """Return False for long texts, for wishes, dreams and near misses, and for statements about different people.

    That one names a person whom the other does not mention was a change in 8 of 1,000 pairs of the judge's stories, and
    that a relative's follows one's own in 35; wishes and the like tell of one in 90.
    """
    old, new = read_claim(older.memory), read_claim(newer.memory)
    wished = new.unreal and not (new.sure or new.ends)
    if max(old.count, new.count) > MOST_WORDS or min(old.count, new.count) < 2 or wished:
        return False  # "Yes" says nothing without its question
    if _about_others(old, new) and not gives_attribute_another_value(older.memory, newer.memory):
        return False
    apart = older.conversation != newer.conversation
    if apart and _OF_SOMEBODY.match(older.memory) and _OF_SOMEBODY.match(newer.memory):
        return False
    if normalized_value(older.speaker) == normalized_value(newer.speaker):
        return True
    return Owner.SPEAKER not in (old.owner, new.owner) and not _tell_of_others(older, newer)


# "She" in another conversation is another person.
_OF_SOMEBODY = re.compile(r"^\W*(?:(?:she|he|her|his|er|seine?|ihre?|ella|él|elle|il|sa|son)\b|[他她])", re.IGNORECASE)


_ADDRESSED = re.compile(
    r"^\W*(?:\w+\W+)?(?:(?:you|your|du|dein\w*|ihr|euer|eure\w*|tú|usted(?:es)?|vous|votre)\b|[你您])", re.IGNORECASE
)


def _may_be_said_to_others(pair: Pair) -> bool:
    apart = pair.older.conversation != pair.newer.conversation
    return apart and all(map(_ADDRESSED.match, (pair.older.memory, pair.newer.memory)))


def _have_other_partners(pair: Pair, names: Mapping[str, Collection[str | None]]) -> bool:
    """Return True if those who talk with the speaker are others in the two conversations; nobody is anybody."""
    speaker = normalized_value(pair.newer.speaker)
    one, other = (
        {normalized_value(name) for name in names.get(item.id, ()) if name} - {speaker}
        for item in (pair.older, pair.newer)
    )
    return bool(one and other and one.isdisjoint(other))


def _tell_of_others(older: Item, newer: Item) -> bool:
    """Return True if two speakers use the same words, or speak to others: "you" in two conversations."""
    addressed = any(map(_ADDRESSED.match, (older.memory, newer.memory))) and older.conversation != newer.conversation
    return addressed or normalized_value(older.memory) == normalized_value(newer.memory)


def _about_others(older: Claim, newer: Claim) -> bool:
    relative, named = conflicts(older, newer)
    own_first = older.owner is Owner.SPEAKER and newer.owner is Owner.RELATIVE
    two = min(older.owner, newer.owner) >= Owner.NAMED
    return bool(named or (relative and (own_first or two)) or are_namesakes(older, newer))


def _is_open(pair: Pair) -> bool:
    """Return True if a model is to judge a pair: the rules are unsure, and the newer statement makes a claim."""
    if _repetition(pair) in _CERTAIN:
        return False
    new = read_claim(pair.newer.memory)
    says = new.owner is not Owner.UNKNOWN or new.numbers or new.names or new.changes or new.ends
    return bool(says) and not new.asks and OPEN[0] <= pair.odds < OPEN[1]


_CERTAIN = {
    Repetition.SAME: (LinkKind.SAME, 0.95),
    Repetition.EXTENDED: (LinkKind.EXTENDS, 0.9),
}
"""Kind and confidence of literal repetitions, which the network would take for changes."""

_WITHIN = 0.8
"""Confidence that the older statement is extended if the network is sure that it is not replaced."""


def relation_of(pair: Pair, decided_by: str = rows.RULES) -> Relation:
    """Return the relation of a pair: SAME or EXTENDS for a repetition, else UPDATES or ENDS with its probability."""
    repeated = _repetition(pair)
    replaced = confidence_of(pair.odds)
    if repeated in _CERTAIN:
        kind, confidence = _CERTAIN[repeated]
    elif repeated is Repetition.WITHIN and pair.odds < 0:
        kind, confidence = LinkKind.EXTENDS, _WITHIN * (1 - replaced)
    else:
        claim = read_claim(pair.newer.memory)
        kind = LinkKind.ENDS if claim.ends and not claim.changes else LinkKind.UPDATES
        confidence = replaced
    return Relation(pair.newer.id, pair.older.id, kind, round(confidence, 3), decided_by, pair.newer.said_at)


def _repetition(pair: Pair) -> Repetition | None:
    """Return what the newer statement repeats, None if another speaker says it or it tells of another time."""
    older, newer = pair.older, pair.newer
    if normalized_value(older.speaker) != normalized_value(newer.speaker):
        return None
    repeated = repetition_of(older.memory, newer.memory)
    if repeated is None or _time_told(older) == _time_told(newer):
        return repeated
    return Repetition.WITHIN if repeated is not Repetition.SAME and _time_told(older) is None else None


def _time_told(item: Item) -> tuple[datetime | None, datetime | None] | None:
    """Return the time that a statement is about ("tomorrow"), None if it names none."""
    return None if item.valid_from == item.said_at else (item.valid_from, item.valid_to)


def judge_task(ids: Sequence[str], *, tries: int = 0, not_before: datetime | None = None) -> NewTask:
    """Return the task that has a model judge these statements, after `tries` attempts without a usable answer."""
    return NewTask(JUDGE, {"items": list(ids), "tries": tries}, not_before=not_before)


def is_statement(item: Item) -> bool:
    """Return True for what a user told and a search finds."""
    said = item.type is ItemType.MESSAGE and item.role is Role.USER and item.status in FOUND
    return said and not acknowledges(item.memory)


def _told_at(item: Item) -> tuple[datetime, datetime, str]:
    """Return when a statement was made; what was corrected is as new as its correction."""
    said = item.said_at or item.created_at
    return said if item.version == 1 else max(said, item.updated_at), item.created_at, item.id
