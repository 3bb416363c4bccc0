"""Working memory: the right parts in their order, under the cap, as fresh as the last exchange, of one cube only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from memos import MemOS
from memos.core.tokens import estimate_tokens
from memos.errors import InvalidInput, NotFound
from memos.memcube.ledger import segments as tiers
from tests.fakes import WordEmbedder
from tests.scheduler.test_long_tier import analysed, settings_of

SAID = (
    "From now on answer in French.",
    "I love coffee.",
    "I live in Paris.",
    "I work at Renault.",
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_GATHERING", timedelta(0))


@pytest.fixture
def memos(tmp_path: Path) -> Iterator[MemOS]:
    with MemOS.open(tmp_path / "home", settings=settings_of(short_capacity=2), embedder=WordEmbedder()) as opened:
        yield opened


def talk(memos: MemOS, *texts: str, conversation: str = "talk", cube: str = "default") -> None:
    memos.add([{"role": "user", "content": text} for text in texts], conversation=conversation, cube=cube)


def place(text: str, part: str) -> int:
    found = text.find(part)
    assert found >= 0, part
    return found


def test_the_parts_come_in_their_order(memos: MemOS) -> None:
    talk(memos, *SAID, "What about my work at Renault?", "Does Renault pay well?", "And Renault?")
    analysed(memos)
    note = memos.add("The spare key is under the blue pot.").item_ids[0]
    memos.tiers.pin(note)
    found = memos.tiers.working_memory("talk")
    order = [
        place(found.text, part)
        for part in ("spare key", "answer in French", "love coffee", "Topic: ", "work at Renault")
    ]
    assert order[:4] == sorted(order[:4])
    assert found.tokens == sum(estimate_tokens(line + "\n") for line in found.text.splitlines()) or found.tokens > 0
    assert found.topic
    assert note in {item.id for item in found.items}
    memos.tiers.pin(note, pinned=False)
    assert "spare key" not in memos.tiers.working_memory("talk").text


def test_what_was_said_last_chooses_the_facts(memos: MemOS) -> None:
    talk(memos, *SAID, "One more thing.", "And another.")
    analysed(memos)
    talk(memos, "Where do I live, in Paris?")
    facts = [item.memory for item in memos.tiers.working_memory("talk").items if item.type == "user"]
    assert facts[:1] == ["I live in Paris."]


def test_a_small_cap_keeps_what_comes_first(memos: MemOS) -> None:
    talk(memos, *SAID, "One more thing.", "And another.")
    analysed(memos)
    whole = memos.tiers.working_memory("talk")
    for cap in (1, 10, 25, 60):
        part = memos.tiers.working_memory("talk", max_tokens=cap)
        assert part.tokens <= cap
        assert estimate_tokens(part.text) <= cap
        assert part.left_out > 0
        assert set(part.text.splitlines()) <= set(whole.text.splitlines())
    assert memos.tiers.working_memory("talk", max_tokens=1).text == ""


def test_nothing_of_another_cube_and_nothing_that_waits_is_in_it(memos: MemOS) -> None:
    memos.cubes.create("other")
    talk(memos, *SAID, "One.", "Two.")
    talk(memos, "I work at Citroen.", "From now on answer in Dutch.", "One.", "Two.", cube="other")
    analysed(memos)
    memos.tiers.analyse(cube="other", everything=True)
    memos.tasks.wait(timeout_s=60)
    assert "Citroen" in memos.tiers.working_memory("talk", cube="other").text
    text = memos.tiers.working_memory("talk").text
    assert "Citroen" not in text
    assert "Dutch" not in text
    [order] = memos.memories.list(filter={"type": "instruction"})
    memos.update(order.id, status="pending")
    assert order.id not in {item.id for item in memos.tiers.working_memory("talk").items}


def test_what_is_over_and_what_was_said_twice_is_not_in_it(memos: MemOS) -> None:
    both = "My name is Maya and I live in Lyon and work at Acme."
    talk(memos, "I used to love pizza.", "I used to live in Oslo.", both, "One.", "Two.")
    analysed(memos)
    assert {"Oslo", "yes"} <= {item.value for item in memos.memories.list(filter={"valid_to": {"exists": True}})}
    for found in (memos.tiers.working_memory(), memos.tiers.working_memory("talk")):
        assert not [item for item in found.items if "Oslo" in item.memory or "pizza" in item.memory]
        lines = found.text.splitlines()
        assert len(set(lines)) == len(lines)


def test_whoever_speaks_comes_before_others_of_the_cube(memos: MemOS) -> None:
    for name, order in (("Ana", "From now on answer in French."), ("Bo", "From now on answer in Dutch.")):
        said = [{"role": "user", "name": name, "content": text} for text in (order, "I love tea.", "One.", "Two.")]
        memos.add(said, conversation=name)
    analysed(memos)
    for name, mine, theirs in (("Ana", "French", "Dutch"), ("Bo", "Dutch", "French")):
        text = memos.tiers.working_memory(name).text
        assert place(text, mine) < place(text, theirs)
        assert f"{name}: {name} - " not in text


def test_an_empty_cube_an_unknown_conversation_and_wrong_arguments(memos: MemOS) -> None:
    assert memos.tiers.working_memory().text == ""
    assert memos.tiers.working_memory("never held").text == ""
    with pytest.raises(NotFound):
        memos.tiers.working_memory(cube="nowhere")
    for wrong in (0, -1, 1.5, True, 10**9):
        with pytest.raises(InvalidInput, match="max_tokens"):
            memos.tiers.working_memory(max_tokens=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="conversation"):
        memos.tiers.working_memory("")


def test_what_was_replaced_is_left_out_or_marked(memos: MemOS) -> None:
    talk(memos, *SAID, "I live in Rouen.", "One.", "Two.")
    analysed(memos)
    paris, rouen = (memos.memories.list(filter={"memory": f"I live in {town}."})[0].id for town in ("Paris", "Rouen"))
    [order] = memos.memories.list(filter={"type": "instruction"})
    memos.tiers.pin(paris)
    memos.review.decide(rouen, paris, holds=False)
    assert "(no longer true)" not in memos.tiers.context().text
    memos.review.decide(rouen, paris, holds=True)
    found = memos.tiers.context()
    assert "(no longer true) user: I live in Paris." in found.text
    assert found.standings[paris] == "replaced"
    english = memos.add("From now on answer in English.").item_ids[0]
    said = memos.memories.list(filter={"memory": "From now on answer in French.", "type": "message"})[0].id
    memos.review.decide(english, said, holds=False)
    assert "answer in French" in memos.tiers.context().text
    memos.review.decide(english, said, holds=True)
    found = memos.tiers.context()
    assert "answer in French" not in found.text
    assert order.id not in found.standings
