"""Which memories an adapter may learn: each reason against it by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memos.core.types import Item, ItemType, Role, Source, Status, Tier, Trust
from memos.memcube.parametric.quiz import KnownFact
from memos.memcube.parametric.selection import LeftOut, Selected, Stable, select

NOW = datetime(2026, 11, 23, tzinfo=UTC)
WANTED = Stable(heat=3.0, unchanged=timedelta(days=3), most=64)
SAID = Source("message", 0, 15, "user", NOW - timedelta(days=9), "I live in Lyon.")
LYON = Item(
    id="lyon", cube="ann", version=2, version_id="v", memory="I live in Lyon.", type=ItemType.USER, tier=Tier.LONG,
    status=Status.ACTIVE, speaker="user", role=Role.USER, key="user|residence", value="Lyon", tags=(), info={},
    confidence=0.9, entities=("Lyon",), keywords=("lyon",), conversation=None, position=None, page=None, session=None,
    said_at=None, valid_from=None, valid_to=None, created_at=NOW - timedelta(days=9),
    updated_at=NOW - timedelta(days=9), sources=(SAID,),
)  # fmt: skip


def chosen(item: Item, heat: float | None = 5.0) -> Selected:
    return select([(item, heat)], WANTED, NOW)


def test_a_fact_is_known_by_its_key_and_value() -> None:
    assert chosen(LYON) == Selected((KnownFact("lyon", 2, "I live in Lyon.", "residence", "", "Lyon"),), {})


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({"key": "user|my:phone", "value": "a Pixel 9"}, ("my", "phone", "a Pixel 9", None)),
        ({"key": "user|likes:tea", "value": "yes"}, ("likes", "tea", "yes", None)),
        ({"key": "user|likes:tea", "value": "no"}, ("dislikes", "tea", "no", None)),
        ({"key": "Ann|employer", "value": "Telko", "speaker": "Ann"}, ("employer", "", "Telko", "Ann")),
        ({"key": None, "value": None}, ("said", "", "", None)),
    ],
)
def test_how_a_fact_is_asked_for_comes_from_its_key(changed: dict[str, Any], fact: tuple[object, ...]) -> None:
    [found] = chosen(replace(LYON, **changed)).facts
    assert (found.kind, found.thing, found.value, found.subject) == fact


@pytest.mark.parametrize(
    ("changed", "heat", "reason"),
    [
        ({"type": ItemType.MESSAGE}, 5.0, LeftOut.KIND),
        ({"type": ItemType.INSTRUCTION}, 5.0, LeftOut.KIND),
        ({"status": Status.PENDING}, 5.0, LeftOut.STATUS),
        ({"status": Status.SUPERSEDED}, 5.0, LeftOut.STATUS),
        ({"valid_to": NOW + timedelta(days=400)}, 5.0, LeftOut.OVER),
        ({"sources": (replace(SAID, trust=Trust.UNTRUSTED),)}, 5.0, LeftOut.UNTRUSTED),
        ({"sources": (replace(SAID, speaker="assistant"),)}, 5.0, LeftOut.UNTRUSTED),
        ({"memory": "My key is sk-proj-abcdefghij0123456789ABCDEFGHIJ0123456789abcd."}, 5.0, LeftOut.SECRET),
        ({"memory": "My mood is 🦄.", "key": "user|my:mood", "value": "🦄"}, 5.0, LeftOut.SHAPE),
        ({"confidence": 0.6}, 5.0, LeftOut.UNSURE),
        ({"updated_at": NOW - timedelta(days=2)}, 5.0, LeftOut.NEW),
        ({}, 2.9, LeftOut.COLD),
        ({"key": None, "memory": "Yes."}, 5.0, LeftOut.SHAPE),
        ({"memory": "I live in Lyon. " * 30}, 5.0, LeftOut.SHAPE),
    ],
)
def test_what_is_not_learned_is_counted_by_its_reason(changed: dict[str, Any], heat: float, reason: LeftOut) -> None:
    assert chosen(replace(LYON, **changed), heat) == Selected((), {reason: 1})


def test_what_is_pinned_needs_no_heat_and_what_was_said_twice_no_certainty() -> None:
    assert chosen(LYON, None).facts
    twice = (SAID, replace(SAID, message_id="another"))
    assert chosen(replace(LYON, confidence=0.6, sources=twice)).facts


def test_of_two_that_contradict_each_other_neither_is_learned() -> None:
    oslo = replace(LYON, id="oslo", memory="I live in Oslo.", value="Oslo")
    assert select([(LYON, 5.0), (oslo, 5.0)], WANTED, NOW) == Selected((), {LeftOut.CONTRADICTED: 2})


def test_what_waits_for_a_review_contradicts_and_is_not_learned() -> None:
    oslo = replace(LYON, id="oslo", memory="I live in Oslo.", value="Oslo", status=Status.PENDING)
    found = select([(LYON, 5.0), (oslo, None)], WANTED, NOW)
    assert found == Selected((), {LeftOut.STATUS: 1, LeftOut.CONTRADICTED: 1})


def test_a_thing_of_signs_alone_is_not_asked_for() -> None:
    odd = replace(LYON, id="odd", key="user|likes:\ufeff", value="yes", memory="I love \ufeff\u2066x\u2069 hiking.")
    assert select([(odd, 5.0)], WANTED, NOW) == Selected((), {LeftOut.SHAPE: 1})


def test_the_order_of_what_is_given_does_not_matter() -> None:
    tea = replace(LYON, id="tea", key="user|likes:tea", value="yes", memory="I like tea.")
    assert select([(LYON, 5.0), (tea, 5.0)], WANTED, NOW) == select([(tea, 5.0), (LYON, 5.0)], WANTED, NOW)


def test_of_more_than_an_adapter_learns_the_hottest_are_and_what_is_pinned_first() -> None:
    heats = {"a": 4.0, "b": 9.0, "c": 5.0, "d": None}
    many = [(replace(LYON, id=id_, key=f"user|my:{id_}", memory=f"My {id_} is odd."), heats[id_]) for id_ in heats]
    found = select(many, replace(WANTED, most=3), NOW)
    assert [fact.item for fact in found.facts] == ["b", "c", "d"]
    assert found.left_out == {LeftOut.BEYOND: 1}


def test_what_is_excluded_is_left_out_and_contradicts_all_the_same() -> None:
    paris = replace(LYON, id="paris", value="Paris", memory="I live in Paris.")
    tea = replace(LYON, id="tea", key="user|likes:tea", value="yes", memory="I like tea.")
    found = select([(LYON, 5.0), (paris, 5.0), (tea, 5.0)], WANTED, NOW, {"paris"})
    assert [fact.item for fact in found.facts] == ["tea"]
    assert found.left_out == {LeftOut.EXCLUDED: 1, LeftOut.CONTRADICTED: 1}


def test_what_an_assistant_said_as_well_is_learned() -> None:
    assert len(chosen(replace(LYON, sources=(replace(SAID, speaker="assistant"), SAID))).facts) == 1
