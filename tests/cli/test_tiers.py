"""The commands about tiers: what they say, in JSON and for people, and how they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos import MemOS
from memos.errors import Conflict, InvalidInput, NotFound
from tests.cli.test_commands import Store
from tests.fakes import WordEmbedder

ODD = "odd [/red] \x1b[31m"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    home = tmp_path / "home"
    with MemOS.open(home, embedder=WordEmbedder()) as memos:
        home_item = memos.add({"role": "user", "name": f"Ana {ODD}", "content": "I live in Paris."}).item_ids[0]
        memos.add("From now on answer in French.")
        memos.tasks.wait(timeout_s=60)
    return Store(home, {"home": home_item})


def test_pages_are_read_and_what_they_say_is_kept_in_mind(store: Store) -> None:
    told = store.told("memory", "analyse", "--everything")
    assert told["cube"] == "default"
    assert set(told["tasks"]) <= {"done", "cancelled"}
    listed = store.told("list", "--filter", '{"tier": "long"}')
    assert {item["type"] for item in listed} >= {"user", "instruction"}
    text = store.said("memory", "context")
    assert "answer in French" in text.splitlines()[0]
    assert "\x1b" not in text
    assert store.told("memory", "context", "--max-tokens", "1")["text"] == ""
    assert store.said("memory", "consolidate").startswith("tasks of the cube: ")
    topics = store.told("memory", "topics")
    assert sum(segment["pages"] for segment in topics) == 2
    assert {segment["state"] for segment in topics} == {"open"}


def test_where_nothing_was_read_it_says_why(tmp_path: Path) -> None:
    with MemOS.open(tmp_path / "home", embedder=WordEmbedder()) as memos:
        memos.add("I live in Paris.", conversation="new")
    new = Store(tmp_path / "home", {})
    assert new.said("memory", "topics").startswith("no topics yet: the newest 10 exchanges of a conversation")
    assert "are not grouped into topics" in new.said("memory", "analyse").splitlines()[-1]


def test_what_is_listed_can_be_named_in_the_next_command(store: Store) -> None:
    [first, *_] = store.told("memory", "topics")
    assert store.said("memory", "topics").startswith(f"{first['id']}  open  heat ")
    assert store.told("memory", "pin", first["id"]) == {"id": first["id"], "pinned": True}
    assert store.said("memory", "topics").startswith(f"{first['id']}  open  pinned  heat ")
    assert store.told("memory", "unpin", first["id"])["pinned"] is False
    assert store.told("memory", "move", first["id"], "long")["tier"] == "long"
    store.said("memory", "analyse", "--everything")
    assert "  active  long  instruction  user\n" in store.said("list", "--filter", '{"tier": "long"}')


def test_topics_are_moved_and_pinned_by_hand(store: Store) -> None:
    segment = store.told("memory", "topics")[0]["id"]
    assert "without extracted facts" in store.failed(Conflict.exit_code, "memory", "move", segment, "archive")
    store.said("memory", "move", segment, "long")
    store.said("memory", "move", segment, "archive")
    assert segment in {topic["id"] for topic in store.told("memory", "topics") if topic["state"] == "archived"}
    store.said("memory", "pin", segment)
    assert segment in {topic["id"] for topic in store.told("memory", "topics") if topic["pinned"]}
    store.said("memory", "unpin", segment)
    store.said("memory", "pin", store.ids["home"])
    assert "I live in Paris." in store.said("memory", "context").splitlines()[0]


@pytest.mark.parametrize(
    ("code", "arguments", "names"),
    [
        (NotFound.exit_code, ("memory", "move", "nothing", "mid"), "segment"),
        (NotFound.exit_code, ("memory", "pin", "nothing"), "nothing"),
        (NotFound.exit_code, ("memory", "analyse", "--cube", "nowhere"), "nowhere"),
        (InvalidInput.exit_code, ("memory", "context", "--max-tokens", "0"), "max_tokens"),
        (InvalidInput.exit_code, ("memory", "reflect"), "MEMOS_CHAT_MODEL__BASE_URL"),
        (InvalidInput.exit_code, ("memory", "pin", ""), "id"),
    ],
)
def test_what_cannot_be_done_says_why(store: Store, code: int, arguments: tuple[str, ...], names: str) -> None:
    assert names in store.failed(code, *arguments)


def test_a_wrong_tier_is_named(store: Store) -> None:
    segment = store.told("memory", "topics")[0]["id"]
    assert "long, mid or archive" in store.failed(InvalidInput.exit_code, "memory", "move", segment, "short")
