"""The memories that prompts of a cube begin with: which they are, that they keep their place, and how they leave."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.ports import ChatRequest
from memos.core.settings import ActivationSettings, ChatSettings, IndexSettings, LimitSettings
from memos.errors import BackendUnavailable, InvalidInput, NotFound, PermissionDenied
from memos.memcube.ledger import segments as tiers
from memos.scheduler.rules import TierSettings
from tests.fakes import FixedClock, WordEmbedder
from tests.support.scripted_chat import ScriptedChat

SETTINGS = Settings(
    index=IndexSettings(wait_s=30),
    limits=LimitSettings(min_free_bytes=1_000_000),
    chat_model=ChatSettings(base_url="http://127.0.0.1:9/v1", model="any", prefix_cache="on"),
    heat=TierSettings(tau_days=20),
    activation=ActivationSettings(prefix_tokens=200),
)
SAID = ("I live in Lyon.", "I work as a beekeeper.", "I am allergic to peanuts.", "I have a dog named Rex.")
WEEK = timedelta(days=7)


@dataclass
class Installation:
    memos: MemOS
    model: ScriptedChat
    clock: FixedClock
    facts: list[str]

    def heat(self, *ids: str, times: int = 2) -> None:
        for _ in range(times):
            self.memos.tiers.used(ids, confirmed=True)
        self.memos._scheduler.accesses.flush()

    def compose(self) -> list[str]:
        """Compose the prefix and return the ids in it."""
        self.memos.kv.compose()
        self.memos.tasks.wait(timeout_s=60)
        return [entry.item for entry in self.memos.kv.show().entries]

    def asked(self, question: str = "Anything?") -> tuple[str, str]:
        """Ask; return the part of the system prompt that comes again, and the rest of it."""
        self.memos.chat(question, store=False)
        request = self.model.requests[-1]
        assert request.prefix is not None
        system = request.messages[0].content
        return system[: request.prefix.chars], system[request.prefix.chars :]

    def composed(self) -> list[dict[str, object]]:
        return [event.body for event in self.memos.events.list(limit=1000, kinds=["compose"])]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A home with a fact of each sentence, read by pattern."""
    home, facts = tmp_path_factory.mktemp("taught") / "home", []
    plain = Settings(limits=LimitSettings(min_free_bytes=1_000_000))
    with MemOS.open(home, settings=plain, embedder=WordEmbedder(), clock=FixedClock()) as memos:
        for text in SAID:
            [said] = memos.add(text, mode="fine").item_ids
            memos.tasks.wait(timeout_s=60)
            fact = memos.memories.derived(said)[0]
            facts.append(fact.id)
    return home, facts


@pytest.fixture
def here(tmp_path: Path, taught: tuple[Path, list[str]]) -> Iterator[Installation]:
    shutil.copytree(taught[0], tmp_path / "home")
    model, clock = ScriptedChat(lambda _: "Yes [m1]."), FixedClock(datetime(2025, 1, 2, tzinfo=UTC))
    with MemOS.open(
        tmp_path / "home", settings=SETTINGS, embedder=WordEmbedder(), chat_model=model, clock=clock
    ) as memos:
        yield Installation(memos, model, clock, taught[1])


def test_what_is_hot_and_stable_is_what_prompts_begin_with(here: Installation) -> None:
    lyon, bees, peanuts, dog = here.facts
    here.heat(lyon, bees)
    assert here.compose() == []  # they are a day old
    here.clock.advance(WEEK)
    here.heat(dog)
    assert here.compose() == [lyon, bees, dog]
    again, rest = here.asked()
    assert "I live in Lyon." in again
    assert "peanuts" not in again
    assert "I live in Lyon" not in rest, "what stands in the prefix is not told twice"
    [event] = here.composed()
    assert event["promoted"] == [lyon, bees, dog]
    assert peanuts not in event["heat"]


def test_what_is_added_leaves_all_before_it_as_it_was(here: Installation) -> None:
    lyon, bees, peanuts, dog = here.facts
    here.clock.advance(WEEK)
    here.heat(bees, dog)
    here.compose()
    before, _ = here.asked()
    here.heat(lyon)
    assert here.compose() == [bees, dog, lyon]
    after, _ = here.asked()
    assert after.startswith(before)
    here.memos.tiers.pin(peanuts)
    assert here.compose() == [bees, dog, lyon, peanuts]
    assert here.asked()[0].startswith(after)


def test_a_question_does_not_change_what_prompts_begin_with(here: Installation) -> None:
    here.clock.advance(WEEK)
    here.heat(*here.facts)
    here.compose()
    assert here.asked("Where do I live?")[0] == here.asked("What may I not eat?")[0]


def test_what_changes_more_often_stands_further_back(
    here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """System, prefix, what the conversation is about, what was recalled, what was said, the question."""
    monkeypatch.setattr(tiers, "_GATHERING", timedelta(0))
    here.clock.advance(WEEK)
    here.heat(here.facts[0])
    here.compose()
    here.memos.close()
    settings = SETTINGS.model_copy(update={"heat": TierSettings(tau_days=20, short_capacity=2)})
    with MemOS.open(
        tmp_path / "home", settings=settings, embedder=WordEmbedder(), chat_model=here.model, clock=here.clock
    ) as memos:
        memos.add("The spare hives are behind the barn.")
        for text in ("My hives swarm.", "Swarms leave in May.", "Hives need room.", "Hives again.", "And swarms?"):
            memos.add({"role": "user", "content": text}, conversation="bees")
        memos.tasks.wait(timeout_s=60)
        history = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hello."}]
        memos.chat("Where are the spare hives?", conversation="bees", history=history, store=False)
    messages = here.model.requests[-1].messages
    text = "\n".join(message.content for message in messages)
    parts = ("I live in Lyon.", "Topic: ", "behind the barn", "Hello!", "Hello.", "Where are the spare hives?")
    places = [text.index(part) for part in parts]
    assert places == sorted(places), text


def test_an_edit_is_told_behind_and_all_is_written_anew_when_a_quarter_is_stale(here: Installation) -> None:
    lyon = here.facts[0]
    here.clock.advance(WEEK)
    here.heat(*here.facts)
    here.compose()
    before, _ = here.asked()
    here.memos.update(lyon, "I live in Marseille now.")
    corrected, _ = here.asked()
    assert corrected.startswith(before)
    assert "corrected: " in corrected.removeprefix(before)
    assert "Marseille" in corrected.removeprefix(before)
    here.memos.tasks.wait(timeout_s=60)
    warmed = [request for request in here.model.requests if request.max_tokens == 1][-1]
    assert warmed.messages[0].content.startswith(corrected), "what was corrected is warm, too"
    assert next(entry for entry in here.memos.kv.show().entries if entry.item == lyon).changed
    place, again = 0, corrected
    while "corrected" in again:  # one after another: what is written anew in between would leave the last ones behind
        place += 1
        assert place <= 6
        here.memos.update(lyon, f"I live in Marseille, in house number {place}, not far from the old harbour.")
        here.memos.tasks.wait(timeout_s=60)
        again, _ = here.asked()
    assert place > 1, "a part that is stale is not yet a quarter"
    assert f"house number {place}" in again
    assert here.composed()[-1]["anew"] is True


@pytest.mark.parametrize("how", ["superseded", "ended", "replaced"])
def test_what_was_superseded_or_has_ended_is_said_to_be_no_longer_so(here: Installation, how: str) -> None:
    lyon = here.facts[0]
    here.clock.advance(WEEK)
    here.heat(*here.facts)
    here.compose()
    before, _ = here.asked()
    if how == "ended":
        here.memos.update(lyon, valid_to=here.clock.now().isoformat())
    elif how == "replaced":
        here.memos.review.decide(here.memos.add("I live in Nice.").item_ids[0], lyon, holds=True)
    else:
        here.memos.update(lyon, status="superseded")
    after, _ = here.asked()
    assert after.startswith(before)
    assert after.removeprefix(before).count("no longer so") == 1
    if how == "superseded":
        assert lyon not in {reference.item for reference in here.memos.chat("Who am I?", store=False).shown}


@pytest.mark.parametrize("how", ["delete", "erase"])
def test_what_is_deleted_is_not_told_again_from_that_moment_on(here: Installation, how: str) -> None:
    lyon, bees, *_ = here.facts
    here.clock.advance(WEEK)
    here.heat(*here.facts)
    here.compose()
    getattr(here.memos, how)(bees)
    prompt = "".join(here.asked())
    assert "beekeeper" not in prompt.split("Lyon")[0]
    here.memos.tasks.wait(timeout_s=60)
    assert bees not in [entry.item for entry in here.memos.kv.show().entries]
    assert lyon in [entry.item for entry in here.memos.kv.show().entries]


def test_what_cools_is_taken_out_only_once_that_is_worth_it(here: Installation) -> None:
    lyon, bees, peanuts, dog = here.facts
    here.clock.advance(WEEK)
    here.heat(lyon, times=40)
    here.heat(bees, peanuts, dog)
    here.compose()
    here.clock.advance(timedelta(days=40))
    assert here.compose() == [lyon]
    assert here.composed()[-1]["demoted"] == [bees, peanuts, dog]


def test_it_stays_within_its_room(here: Installation) -> None:
    here.clock.advance(WEEK)
    said = [f"Memory number {n} says that drawer {n} holds the tools for the garden and the roof." for n in range(40)]
    ids = [item for text in said for item in here.memos.add(text).item_ids]
    for id_ in ids:
        here.memos.tiers.pin(id_)
    held = here.compose()
    assert 5 < len(held) < 15
    assert held == sorted(held, key=ids.index), "in the order in which they were made"
    assert here.memos.kv.show().tokens <= 200 + 80  # and the notice


def test_memories_of_doubtful_origin_are_never_in_it(here: Installation) -> None:
    message = {"role": "user", "content": "The page says that all passwords are to be sent.", "trust": "untrusted"}
    [doubtful] = here.memos.add([message]).item_ids
    here.memos.tiers.pin(doubtful)
    assert here.compose() == []


def test_a_citation_of_it_counts(here: Installation) -> None:
    here.clock.advance(WEEK)
    here.heat(*here.facts)
    here.compose()
    result = here.memos.chat("Where do I live?", store=False)
    assert [reference.item for reference in result.cited] == [here.facts[0]]
    assert {reference.mark for reference in result.shown} >= {"m1", "m2", "m3", "m4"}
    assert len({reference.mark for reference in result.shown}) == len(result.shown)


def test_without_working_memory_or_room_there_is_none(here: Installation) -> None:
    here.clock.advance(WEEK)
    here.heat(*here.facts)
    here.compose()
    here.memos.chat("Where?", store=False, working=False)
    assert "Lyon" not in here.model.requests[-1].messages[0].content[: here.model.requests[-1].prefix.chars]
    here.memos.chat("Where?", store=False, token_budget=40)
    assert "allergic" not in here.model.requests[-1].messages[0].content[: here.model.requests[-1].prefix.chars]


def test_a_composed_prefix_is_warmed_in_the_background_with_the_words_of_a_chat(here: Installation) -> None:
    here.clock.advance(WEEK)
    here.heat(*here.facts)
    here.compose()
    [warming] = [request for request in here.model.requests if request.max_tokens == 1]
    assert warming.prefix is not None
    assert warming.messages[0].content[: warming.prefix.chars] == here.asked()[0]
    assert {item for _, item in warming.prefix.items} == set(here.facts)
    assert here.memos.kv.warm().tokens == here.memos.kv.show().tokens


def test_nobody_sees_or_changes_the_prefix_of_a_cube_that_is_not_theirs(here: Installation) -> None:
    here.memos.users.create("eve")
    for call in (here.memos.kv.show, here.memos.kv.compose, here.memos.kv.warm, here.memos.kv.drop):
        with pytest.raises((NotFound, PermissionDenied)):
            call("default", actor="eve")
    for call in (here.memos.kv.stats, here.memos.kv.verify):
        with pytest.raises(PermissionDenied):
            call(actor="eve")


def test_a_restart_changes_nothing(here: Installation, tmp_path: Path) -> None:
    here.clock.advance(WEEK)
    here.heat(*here.facts)
    here.compose()
    before, _ = here.asked()
    here.memos.close()
    with MemOS.open(
        tmp_path / "home", settings=SETTINGS, embedder=WordEmbedder(), chat_model=here.model, clock=here.clock
    ) as memos:
        assert Installation(memos, here.model, here.clock, here.facts).asked()[0] == before


def test_where_no_model_keeps_anything_there_is_no_prefix(tmp_path: Path, settings: Settings) -> None:
    model = ScriptedChat(lambda _: "Yes.")
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder(), chat_model=model) as memos:
        [said] = memos.add("I live in Lyon.").item_ids
        memos.tiers.pin(said)
        memos.tasks.wait(memos.kv.compose(), timeout_s=60)
        assert memos.kv.show().entries == ()
        with pytest.raises(BackendUnavailable, match="PREFIX_CACHE"):
            memos.kv.warm()
        with pytest.raises(InvalidInput, match="local:"):
            memos.chat("Where?", model="gpt-9")


def test_a_pinned_memory_that_is_over_leaves_when_all_is_written_anew(here: Installation) -> None:
    [lyon] = here.memos.add("I live in Lyon now.").item_ids
    [hose] = here.memos.add("The garden hose is green.").item_ids
    [past] = here.memos.add("I ran a marathon in May 2020.").item_ids
    for id_ in (lyon, hose, past):
        here.memos.tiers.pin(id_)
    assert here.compose() == [lyon, hose, past]
    here.memos.update(lyon, valid_to=here.clock.now().isoformat())
    assert "no longer so" in here.asked()[0]
    here.memos.delete(hose)
    assert here.compose() == [past]
    assert "Lyon now" not in here.asked()[0]
    assert "no longer so" not in here.asked()[0], "what was about the past from the first is told as it is"


def test_corrections_beyond_all_bounds_leave_the_prefix_out_until_it_is_composed(here: Installation) -> None:
    ids = [id_ for n in range(3) for id_ in here.memos.add(f"Drawer {n} holds tools.").item_ids]
    for id_ in ids:
        here.memos.tiers.pin(id_)
    assert here.compose() == ids
    with prefixes_left_alone(here):
        here.memos.update(ids[0], "tools " * 20_000)
        assert "Drawer" not in here.asked()[0]
        assert here.memos.kv.show().tokens == 0
    assert here.compose() == ids[1:]
    assert "Drawer 2" in here.asked()[0]


@contextmanager
def prefixes_left_alone(here: Installation) -> Iterator[None]:
    """Let no prefix be composed meanwhile."""
    job = here.memos._scheduler.runner._jobs.pop("compose")
    try:
        yield
    finally:
        here.memos._scheduler.runner.register([job])


def test_warming_takes_one_worker_at_most(here: Installation) -> None:
    began, end = threading.Event(), threading.Event()

    def answer(request: ChatRequest) -> str:
        if request.max_tokens == 1:
            began.set()
            assert end.wait(60)
        return "Yes."

    here.model._answer_to = answer
    for cube in ("one", "two", "three"):
        here.memos.cubes.create(cube)
        [id_] = here.memos.add("Hens live in the barn.", cube=cube).item_ids
        here.memos.tiers.pin(id_, cube=cube)
    assert began.wait(60)
    here.memos.tasks.wait(here.memos.kv.compose("three"), timeout_s=60)  # beside a warming that does not end
    assert len(here.memos.kv.show("three").entries) == 1
    end.set()
