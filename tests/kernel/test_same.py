"""What a newer statement repeats or extends still holds, and is linked with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from memos import MemOS
from memos.core.types import LinkKind, Relation, Standing
from tests.support.telling import BEGAN, tell

SAME, EXTENDS = LinkKind.SAME, LinkKind.EXTENDS


@pytest.fixture
def memos(tmp_path: Path) -> Iterator[MemOS]:
    """An installation with the default embedder: what replaces what is judged by its vectors."""
    with MemOS.open(tmp_path) as opened:
        yield opened


PAIRS = [
    ("I live in Lyon.", "I still live in Lyon, by the way.", SAME),
    ("I live in Lyon.", "I live in Lyon, near the station.", EXTENDS),
    ("My sister has a dog.", "My sister's dog is called Rex.", EXTENDS),
    ("Ich wohne in Bremen.", "Ich wohne übrigens immer noch in Bremen.", SAME),
    ("Ich wohne in Bremen.", "Ich wohne in Bremen, gleich am Fluss.", EXTENDS),
    ("Vivo en Sevilla.", "Todavía vivo en Sevilla, por cierto.", SAME),
    ("Vivo en Sevilla.", "Vivo en Sevilla, cerca del río.", EXTENDS),
    ("我住在里昂。", "我还住在里昂。", SAME),
    ("我住在里昂。", "我住在里昂，离车站很近。", EXTENDS),
    ("I live in Lyon.", "I don't live in Lyon.", LinkKind.ENDS),
    ("I live in Paris.", "I moved to Lyon.", LinkKind.UPDATES),
    ("The dentist appointment is tomorrow.", "The dentist appointment is tomorrow.", LinkKind.UPDATES),
    ("I live in Lyon.", "My brother lives in Lyon.", None),
]


def test_each_pair_has_the_relation_that_its_words_tell(memos: MemOS) -> None:
    found = []
    for number, (older, newer, _) in enumerate(PAIRS):
        cube = memos.cubes.create(f"pair-{number}").id
        related = memos.memories.relations(tell(memos, older, newer, cube=cube)[1], cube=cube)
        found.append((older, newer, related[0].kind if related else None))
    assert found == PAIRS


def test_what_is_repeated_or_extended_holds_and_what_says_the_same_is_found_newest_first(memos: MemOS) -> None:
    old, noise, new = tell(
        memos, "I live in Lyon.", "The printer is out of toner.", "I still live in Lyon, by the way."
    )
    result = memos.search("Where does she live?", explain=True, reference_time=BEGAN + timedelta(days=60))
    hits = [hit for hit in result if hit.item.id != noise]
    assert [hit.item.id for hit in hits] == [new, old]
    assert {(hit.standing, hit.replaced_by) for hit in hits} == {(Standing.CURRENT, None)}
    [found] = memos.memories.relations(old)
    assert found == Relation(new, old, SAME, found.confidence, "rules", BEGAN + timedelta(days=6))
    assert 0.5 <= found.confidence <= 1
    assert hits[0].relations == (found,)
    assert memos.memories.history(old)[-1].relations == (found,)


def test_a_relation_that_replaces_nothing_can_be_taken_back_and_goes_with_an_edit(memos: MemOS) -> None:
    old, new = tell(memos, "I live in Lyon.", "I live in Lyon, near the station.")
    memos.update(new, "I don't live in Lyon.")
    [changed] = memos.memories.relations(old)
    assert changed.kind is LinkKind.ENDS
    memos.update(new, "I live in Lyon, near the station.")
    [found] = memos.memories.relations(old)
    assert (found.kind, found.decided_by) == (EXTENDS, "rules")
    [decided] = memos.review.decide(new, old, holds=False)
    assert (decided.kind, decided.confidence, decided.decided_by) == (EXTENDS, 0.0, "owner")
    memos.maintenance.reindex()
    assert memos.memories.relations(old) == (decided,)
    [replaced] = memos.review.decide(new, old, holds=True)
    assert (replaced.kind, replaced.confidence) == (LinkKind.UPDATES, 1.0)


def test_what_another_speaker_says_repeats_nothing(memos: MemOS) -> None:
    tell(memos, "The rent is 900 euros.")
    [other] = tell(memos, "The rent is 900 euros.", speaker="Kim")
    assert not any(found.kind in (SAME, EXTENDS) for found in memos.memories.relations(other))


def test_relations_that_replace_nothing_go_with_a_dump(memos: MemOS, tmp_path: Path) -> None:
    [_, new] = tell(memos, "I live in Lyon.", "I live in Lyon, near the station.")
    file = tmp_path / "cube.memcube"
    memos.transfer.dump("default", file)
    with MemOS.open(tmp_path / "other") as other:
        other.transfer.load(file, cube="copy")
        [found] = other.memories.relations(new, cube="copy")
        assert found.kind is EXTENDS
