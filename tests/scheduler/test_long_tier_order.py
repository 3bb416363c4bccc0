"""Facts of one key make one line of values, in whatever order they were said, read and repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memos import MemOS
from memos.core.identities import Right
from memos.core.settings import Settings
from memos.core.types import Fact, Item, ItemType, Scope, Span, Status
from memos.memcube.ledger import segments as tiers
from memos.scheduler import consolidation as consolidate
from tests.fakes import WordEmbedder
from tests.scheduler.test_long_tier import analysed, facts

DAY = datetime(2025, 1, 1, 9, tzinfo=UTC)
KEY = "ana|residence"


@pytest.fixture
def memos(tmp_path: Path, settings: Settings) -> Iterator[MemOS]:
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as opened:
        yield opened


def said(memos: MemOS, text: str, at: datetime | str, cube: str = "default") -> Item:
    moment = at if isinstance(at, str) else at.isoformat()
    told = {"role": "user", "name": "Ana", "content": text, "chat_time": moment}
    return memos.get(memos.add(told, cube=cube).item_ids[0])


def read(memos: MemOS, message: Item, value: str) -> None:
    """Store that the message says where its speaker lives."""
    assert message.said_at is not None
    whole = (Span(message.id, 0, len(message.memory)),)
    fact = Fact(
        ItemType.USER, message.memory, whole, "Ana", "test/1", message.said_at, KEY, value, valid_from=message.said_at
    )
    with memos._context.change(Scope("test", (message.cube,), right=Right.WRITE)) as change:
        consolidate.consolidate(change, [fact])


def line(memos: MemOS, cube: str) -> list[tuple[str | None, int, int | None]]:
    """Values with the days from and to which they were so, in order."""
    status = {"status": {"in": ["active", "superseded"]}}
    found = memos.memories.list(filter={"and": [{"type": "user"}, status]}, cube=cube)
    days = [
        (item.value, ((item.valid_from or item.said_at or DAY) - DAY).days,
         None if item.valid_to is None else (item.valid_to - DAY).days, item.status)
        for item in found
    ]  # fmt: skip
    assert [each[0] for each in days if each[3] is Status.ACTIVE] == [each[0] for each in days if each[2] is None]
    return sorted((value, begun, over) for value, begun, over, _ in days)


@pytest.mark.heavy
@pytest.mark.parametrize("values", ["PLP", "PPLP", "PLPL", "PLRP", "PPLL"])
def test_every_order_of_reading_gives_the_same_line(memos: MemOS, values: str) -> None:
    runs: list[list[str | int]] = []
    for day, value in enumerate(values):
        if not runs or runs[-1][0] != value:
            runs.append([value, day])
    ends = [begun for _, begun in runs[1:]] + [None]
    wanted = sorted((value, begun, over) for (value, begun), over in zip(runs, ends, strict=True))
    for number, order in enumerate(itertools.permutations(range(len(values)))):
        cube = f"order-{number}"
        memos.cubes.create(cube)
        told = [said(memos, f"I live in {value}.", DAY + timedelta(days=day), cube) for day, value in enumerate(values)]
        for day in order:
            read(memos, told[day], values[day])
            read(memos, told[day], values[day])
        assert line(memos, cube) == wanted, order
    assert memos.maintenance.verify().clean


@pytest.fixture
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gathered for two seconds before it is done."""
    monkeypatch.setattr(tiers, "_GATHERING", timedelta(0))


def homes(memos: MemOS, *statuses: str) -> list[str | None]:
    return sorted(item.value or "" for item in facts(memos, *statuses) if item.key == KEY)


@pytest.mark.usefixtures("read_at_once")
@pytest.mark.parametrize(
    ("told", "now"),
    [
        ("I moved to Lyon today.", "Lyon"),
        ("I moved to Lyon this week.", "Lyon"),
        ("No, I moved to Lyon in May.", "Lyon"),
        ("In 2019 I moved to Lyon.", "Paris"),
        ("I live in Lyon since 2019-02-03.", "Paris"),
    ],
)
def test_what_was_said_last_about_now_is_current(memos: MemOS, told: str, now: str) -> None:
    said(memos, "I live in Paris.", "2025-06-04T10:00")
    said(memos, told, "2025-06-04T11:00")
    analysed(memos)
    assert homes(memos) == [now]


@pytest.mark.usefixtures("read_at_once")
def test_feedback_about_an_earlier_day_is_current(memos: MemOS) -> None:
    said(memos, "I live in Paris.", "2025-06-04T10:00")
    analysed(memos)
    memos.feedback("I moved to Lyon in May.", speaker="Ana", chat_time="2025-06-05T10:00")
    analysed(memos)
    assert homes(memos) == ["Lyon"]
    assert "Lyon" in memos.profiles.render("default", "Ana")
    assert "Paris" not in memos.profiles.render("default", "Ana")


@pytest.mark.usefixtures("read_at_once")
def test_what_is_over_ends_what_is_read_later(memos: MemOS) -> None:
    said(memos, "I used to live in Paris.", "2025-06-01")
    analysed(memos)
    said(memos, "I live in Paris.", "2025-03-01")
    analysed(memos)
    [home] = [item for item in facts(memos) if item.key == KEY]
    assert home.valid_from is not None
    assert home.valid_to is not None
    assert [home.valid_from.month, home.valid_to.month, len(home.sources)] == [3, 6, 2]


@pytest.mark.usefixtures("read_at_once")
def test_a_time_gone_by_does_not_end_what_is_so_again(memos: MemOS) -> None:
    said(memos, "I live in Paris.", "2025-03-01")
    said(memos, "I lived in Paris in 2015.", "2025-06-01")
    analysed(memos)
    times = {(item.valid_from or DAY).year: item.valid_to for item in facts(memos, "active", "superseded")}
    assert times == {2015: datetime(2016, 1, 1, tzinfo=UTC), 2025: None}


def test_an_archived_fact_is_still_superseded_and_shown_in_a_profile(memos: MemOS) -> None:
    one = said(memos, "I live in Paris.", DAY)
    read(memos, one, "Paris")
    memos.retention.add(action="archive", types=["user"])
    memos.retention.run()
    read(memos, said(memos, "Yes, I live in Paris.", DAY + timedelta(days=1)), "Paris")
    [home] = memos.memories.list(filter={"key": KEY, "type": "user", "status": "archived"})
    assert len(memos.get(home.id).sources) == 2
    read(memos, said(memos, "I moved to Lyon.", DAY + timedelta(days=2)), "Lyon")
    assert memos.get(home.id).status is Status.SUPERSEDED


def test_what_waits_for_review_takes_in_nothing(memos: MemOS) -> None:
    message = said(memos, "I used to live in Paris.", DAY)
    whole = (Span(message.id, 0, 5),)
    doubtful = Fact(ItemType.USER, "Paris, once?", whole, "Ana", "test/1", DAY, KEY, "Paris", 0.3, valid_to=DAY)
    sure = replace(doubtful, memory=message.memory, confidence=0.9)
    with memos._context.change(Scope("test", ("default",), right=Right.WRITE)) as change:
        consolidate.consolidate(change, [doubtful])
        consolidate.consolidate(change, [sure])
    assert [(item.memory, item.status) for item in facts(memos, "active", "pending")] == [
        ("Paris, once?", Status.PENDING), (message.memory, Status.ACTIVE),
    ]  # fmt: skip


@pytest.mark.usefixtures("read_at_once")
@pytest.mark.parametrize("told", ["My email is ana@evil.example.", "I live in Rome.", "I no longer live in Paris."])
def test_an_untrusted_source_puts_no_end_to_what_a_trusted_one_said(memos: MemOS, told: str) -> None:
    said(memos, "I live in Paris. My email is ana@x.org.", "2025-06-01")
    analysed(memos)
    memos.add({"role": "user", "name": "Ana", "content": told, "chat_time": "2025-06-02", "trust": "untrusted"})
    analysed(memos)
    assert {(item.value, item.valid_to) for item in facts(memos)} == {("Paris", None), ("ana@x.org", None)}
    [waiting] = facts(memos, "pending")
    assert waiting.info["pending"] == "an untrusted source says otherwise"
    assert "Paris" in memos.profiles.render("default", "Ana")


@pytest.mark.usefixtures("read_at_once")
def test_what_is_over_is_in_no_working_memory(memos: MemOS) -> None:
    said(memos, "I live in Paris. I work at Acme.", "2025-03-01")
    said(memos, "I used to live in Paris.", "2025-06-01")
    analysed(memos)
    text = memos.tiers.working_memory().text
    assert "Residence" not in text
    assert "Acme" in text
