"""`Memoryos` and `MemoryOS` over a real installation: what goes in comes back, to its own user and after a restart."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.compat import importing as names
from memos.compat.memoryos import MemoryOS, Memoryos
from memos.compat.opening import INSTALLATIONS
from memos.errors import BackendUnavailable, Conflict, InvalidInput, ModelError
from memos.memcube.ledger import segments as tiers
from memos.scheduler.rules import TierSettings
from tests.fakes import WordEmbedder
from tests.support.scripted_chat import Script, ScriptedChat

KEY = "sk-a-key-nobody-may-see"
SAID = [
    ("I planted tomato seeds in the garden.", "Good luck with the tomato plants."),
    ("My motorcycle lost oil.", "Look under its gasket."),
    ("The tomato plants in the garden grow.", "Give the tomato plants water."),
]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages leave the short tier without the pause in which they are gathered."""
    monkeypatch.setattr(tiers, "_GATHERING", timedelta(0))


def made(memos: MemOS, user: str = "alice", **options: Any) -> Memoryos:
    return Memoryos(user, KEY, "unused", memos=memos, **options)


@pytest.fixture
def talking(tmp_path: Path, settings: Settings) -> Iterator[Any]:
    """Return a function that opens an installation whose model answers from a script."""
    opened: list[MemOS] = []

    def open_(script: Script, **changed: Any) -> tuple[MemOS, ScriptedChat]:
        model = ScriptedChat(script)
        own = settings.model_copy(update=changed)
        opened.append(MemOS.open(tmp_path / "home", settings=own, embedder=WordEmbedder(), chat_model=model))
        return opened[-1], model

    yield open_
    for memos in opened:
        memos.close()


def test_an_exchange_is_one_page_with_its_time_and_metadata(memos: MemOS) -> None:
    memory = made(memos)
    memory.add_memory("I live in Paris.", "A fine city.", "2025-01-02 10:00:00", {"mood": "good", "nested": {"a": 1}})
    memory.add_memory("And I like it.", "I see.")
    stored = memos.memories.list(cube=names.cube_of_user("alice"))
    assert [item.memory for item in stored] == ["I live in Paris.", "A fine city.", "And I like it.", "I see."]
    assert [item.page for item in stored] == [0, 0, 1, 1]
    assert f"{stored[0].said_at:%F %T}" == "2025-01-02 10:00:00"
    assert stored[0].info == {"mood": "good", "nested": '{"a": 1}'}
    assert memory.get_memory_stats() == {
        "user_id": "alice",
        "short_term_count": 2,
        "mid_term_sessions_count": 0,
        "has_user_profile": False,
        "assistant_knowledge_count": 0,
    }
    assert memory.get_user_profile_summary() == "None"
    assert memory.get_assistant_knowledge_summary() == []


def test_two_users_never_see_each_others_pages(talking: Any) -> None:
    memos, model = talking(lambda request: "An answer.")
    alice, bob = made(memos, "alice"), made(memos, "bob")
    alice.add_memory("The secret word is zanzibar.", "Noted.")
    bob.add_memory("The secret word is wombat.", "Noted.")
    bob.get_response("What is the secret word?")
    asked = "".join(message.content for message in model.requests[-1].messages)
    assert "wombat" in asked
    assert "zanzibar" not in asked
    assert (alice.get_memory_stats()["short_term_count"], bob.get_memory_stats()["short_term_count"]) == (1, 2)


@pytest.mark.parametrize("user", ["用户/é\u0301", "../../etc", "x" * 300, "a\0b", "\ud800lone"])
def test_any_user_id_has_a_memory_of_its_own(memos: MemOS, user: str) -> None:
    made(memos, user).add_memory("I live in Paris.", "A fine city.")
    made(memos, user + "2").add_memory("I live in Lyon.", "Fine too.")
    assert [item.memory for item in memos.memories.list(cube=names.cube_of_user(user))] == [
        "I live in Paris.",
        "A fine city.",
    ]
    assert made(memos, user).get_memory_stats()["short_term_count"] == 1


def test_a_restart_keeps_everything(tmp_path: Path, settings: Settings) -> None:
    for restart in (False, True):
        with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
            memory = made(memos)
            if not restart:
                memory.add_memory(*SAID[0])
                memory.add_memory(*SAID[1])
            assert memory.get_memory_stats()["short_term_count"] == 2
            memory.close()
            with pytest.raises(BackendUnavailable, match="closed"):
                memory.get_memory_stats()
            assert memos.memories.list(cube=names.cube_of_user("alice"))  # what was given stays open


def test_an_answer_is_made_from_memory_and_remembered(talking: Any) -> None:
    memos, model = talking(["Water them."])
    memory = made(memos)
    memory.add_memory(*SAID[0])
    answer = memory.get_response("What do my tomato plants need?", "gardener", "terse", {"channel": "phone"})
    assert answer == "Water them."
    [request] = model.requests
    system, user = (message.content for message in request.messages)
    assert "relationship is: gardener. Answer in this style: terse." in system
    assert '{"channel": "phone"}' in system
    assert "[The conversation so far]" in user
    assert "Earlier conversations" not in user  # what was just shown is not shown twice
    assert user.endswith("What do my tomato plants need?")
    stored = memos.memories.list(cube=names.cube_of_user("alice"))
    assert [item.memory for item in stored][-2:] == ["What do my tomato plants need?", "Water them."]


def test_older_pages_come_with_their_topic_and_the_page_before(talking: Any, at_once: None, settings: Settings) -> None:
    memos, model = talking(["Yes."], heat=TierSettings(short_capacity=1, similarity=0.9))
    memory = made(memos, short_term_capacity=1)
    for exchange in (*SAID, ("Good night.", "Sleep well.")):
        memory.add_memory(*exchange)
    memos.tasks.wait(timeout_s=120)
    assert memory.get_memory_stats()["mid_term_sessions_count"] == 2
    memory.get_response("How do the tomato plants in the garden grow?")
    shown = model.requests[-1].messages[1].content
    recent, earlier = shown.split("[Earlier conversations]")
    assert "Good night." in recent
    assert "User: The tomato plants in the garden grow.\nAssistant: Give the tomato plants water." in earlier
    [note] = [line for line in earlier.splitlines() if line.endswith("after: My motorcycle lost oil.")]
    assert note.startswith("part of: ")
    assert "tomato" in note


@pytest.mark.parametrize(
    "error",
    [ModelError("The model gave nothing."), BackendUnavailable("The model is away."), ModelError("", tokens=None)],
)
def test_an_error_of_the_model_is_raised_and_nothing_is_stored(talking: Any, error: Exception) -> None:
    memos, _ = talking([error])
    memory = made(memos)
    memory.add_memory(*SAID[0])
    with pytest.raises(type(error)):
        memory.get_response("What do I grow?")
    assert len(memos.memories.list(cube=names.cube_of_user("alice"))) == 2


def test_an_empty_answer_is_an_error_too(talking: Any) -> None:
    memos, _ = talking(["   "])
    with pytest.raises(ModelError):
        made(memos).get_response("What do I grow?")
    assert memos.memories.list(cube=names.cube_of_user("alice")) == []


def test_without_a_model_there_is_a_clear_error_and_memory_works(memos: MemOS) -> None:
    memory = Memoryos("alice", None, "unused", memos=memos)
    memory.add_memory(*SAID[0])
    with pytest.raises(BackendUnavailable, match=r"No language model.*openai_api_key") as caught:
        memory.get_response("What do I grow?")
    assert caught.value.permanent
    assert len(memos.memories.list(cube=names.cube_of_user("alice"))) == 2


def test_the_short_class_has_its_own_cap(talking: Any) -> None:
    memos, model = talking(lambda request: "Yes.")
    with MemoryOS("alice", "helper", KEY, "unused", "gpt-4o-mini", max_context_tokens=300, memos=memos) as memory:
        for number in range(10):
            memory.add_interaction(f"Exchange {number} about " + "gardening and tomato plants " * 10, "I see.")
        assert memory.chat("What about tomato plants?") == "Yes."
        assert KEY not in repr(memory)
        assert repr(memory).startswith("<MemoryOS ")
    shown = "".join(message.content for message in model.requests[-1].messages)
    assert len(shown) <= 300 * 4
    assert "Exchange 9 about" in shown


def test_the_key_is_nowhere_to_be_seen(memos: MemOS) -> None:
    memory = made(memos)
    assert KEY not in repr(memory)
    assert KEY not in str(vars(memory))
    with pytest.raises(InvalidInput) as caught:
        Memoryos("alice", KEY + "\u20ac", "unused", memos=memos)
    assert caught.value.field == "openai_api_key"
    assert KEY not in str(caught.value)


WRONG: list[tuple[str, Any]] = [
    ("user_id", ""), ("user_id", None), ("assistant_id", " "), ("openai_api_key", ""), ("data_storage_path", ""),
    ("data_storage_path", 5), ("data_storage_path", "a\0b"), ("openai_base_url", "ftp://models"), ("llm_model", ""),
    ("short_term_capacity", 0), ("short_term_capacity", -1), ("short_term_capacity", 2.5),
    ("short_term_capacity", True), ("short_term_capacity", 10**30), ("mid_term_capacity", -5),
    ("mid_term_capacity", "10"),
    ("long_term_knowledge_capacity", 0), ("retrieval_queue_capacity", -7), ("mid_term_heat_threshold", math.nan),
    ("mid_term_heat_threshold", -1), ("mid_term_heat_threshold", math.inf), ("mid_term_heat_threshold", "5"),
    ("mid_term_similarity_threshold", -0.1), ("mid_term_similarity_threshold", math.nan),
    ("mid_term_similarity_threshold", 3), ("embedding_model_name", ""), ("embedding_model_name", "no-such-model"),
    ("embedding_model_name", None), ("embedding_model_kwargs", "fp16"), ("max_context_tokens", 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_parameter_is_named_before_anything_is_made(tmp_path: Path, name: str, value: Any) -> None:
    folder = tmp_path / "new"
    given = {"user_id": "alice", "openai_api_key": KEY, "data_storage_path": folder, name: value}
    with pytest.raises(InvalidInput) as caught:
        Memoryos(**given)
    assert caught.value.field == name
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("storage_path", ""), ("long_term_heat_threshold", math.nan), ("long_term_heat_threshold", -1),
     ("short_term_capacity", 0), ("mid_term_heat_threshold", -5), ("max_context_tokens", -1), ("assistant_id", "")],
)  # fmt: skip
def test_a_wrong_parameter_of_the_short_class_is_named(tmp_path: Path, name: str, value: Any) -> None:
    given: dict[str, Any] = {
        "user_id": "alice", "assistant_id": "helper", "openai_api_key": KEY, "storage_path": tmp_path,
        "llm_model": "gpt-4o-mini", name: value,
    }  # fmt: skip
    with pytest.raises(InvalidInput) as caught:
        MemoryOS(**given)
    assert caught.value.field == name
    assert not list(tmp_path.iterdir())


WRONG_EXCHANGES: list[tuple[str, Any]] = [
    ("user_input", ""), ("user_input", None), ("agent_response", " \n"), ("agent_response", "a\0b"),
    ("user_input", "\ud800"), ("timestamp", "yesterday"), ("timestamp", math.nan), ("timestamp", [1]),
    ("meta_data", "x"), ("meta_data", {"a": math.nan}), ("meta_data", {"": "x"}), ("meta_data", {"a": "b\0"}),
]  # fmt: skip


def test_a_wrong_exchange_is_refused_whole(memos: MemOS) -> None:
    memory = made(memos)
    for name, value in WRONG_EXCHANGES:
        given: dict[str, Any] = {"user_input": "Hello.", "agent_response": "Hi.", name: value}
        with pytest.raises(InvalidInput) as caught:
            memory.add_memory(**given)
        assert caught.value.field.split(".")[0] == name
    assert memos.memories.list(cube=names.cube_of_user("alice")) == []


def test_metadata_that_refers_to_itself_is_refused(memos: MemOS) -> None:
    round_: dict[str, Any] = {}
    round_["a"] = round_
    with pytest.raises(InvalidInput, match=r"^meta_data: "):
        made(memos).add_memory("Hello.", "Hi.", meta_data={"round": round_})


WRONG_QUESTIONS: list[tuple[str, Any]] = [
    ("query", ""), ("query", None), ("query", "word " * 30_000), ("relationship_with_user", ""), ("style_hint", None),
    ("user_conversation_meta_data", "x"), ("user_conversation_meta_data", {(1, 2): 3}),
]  # fmt: skip


def test_a_wrong_question_reaches_no_model(talking: Any) -> None:
    memos, model = talking([])
    for name, value in WRONG_QUESTIONS:
        with pytest.raises(InvalidInput) as caught:
            made(memos).get_response(**{"query": "Hello?", name: value})
        assert caught.value.field == name
    assert model.requests == []


def test_other_embedders_names_are_taken_with_a_warning(memos: MemOS, caplog: pytest.LogCaptureFixture) -> None:
    made(memos, embedding_model_name="all-MiniLM-L6-v2")
    assert not caplog.records
    made(memos, embedding_model_name="BAAI/bge-m3", embedding_model_kwargs={"use_fp16": True})
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "BAAI/bge-m3 is replaced" in caplog.text


def test_several_objects_of_one_program_share_a_folder(tmp_path: Path) -> None:
    model = ScriptedChat([])
    alice = Memoryos("alice", KEY, tmp_path, chat_model=model)
    bob = MemoryOS("bob", "helper", KEY, str(tmp_path), "gpt-4o-mini", chat_model=model)
    with pytest.raises(Conflict, match="another short_term_capacity") as caught:
        Memoryos("carol", KEY, tmp_path, short_term_capacity=7, chat_model=model)
    assert KEY not in str(caught.value)
    threads = [threading.Thread(target=alice.add_memory, args=exchange) for exchange in SAID]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alice.close()
    alice.close()
    bob.add_interaction("I live in Lyon.", "A fine city.")
    bob.close()
    assert INSTALLATIONS._open == {}
    with Memoryos("alice", KEY, tmp_path, short_term_capacity=7, chat_model=model) as again:
        assert again.get_memory_stats()["short_term_count"] == 3


def test_a_program_that_never_closes_ends_and_keeps_what_it_was_told(tmp_path: Path) -> None:
    program = f"""
from memos.compat.memoryos import Memoryos
memory = Memoryos("alice", None, {str(tmp_path)!r})
memory.add_memory("I live in Paris.", "A fine city.")
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with MemOS.open(tmp_path) as memos:
        assert len(memos.memories.list(cube="memoryos-user-alice")) == 2
        assert memos.maintenance.verify().clean


def test_a_forced_analysis_reads_the_mid_tier(memos: MemOS, at_once: None) -> None:
    memory = made(memos)
    memory.add_memory("I'm allergic to peanuts and I live in Paris.", "Noted.")
    memory.add_memory("I prefer tea to coffee.", "Noted.")
    for number in range(10):
        memory.add_memory(f"Exchange {number} about nothing.", "I see.")
    memory.force_mid_term_analysis()
    derived = memos.memories.list(cube=names.cube_of_user("alice"), filter={"tier": "long"})
    assert any("peanuts" in item.memory or "Paris" in item.memory for item in derived)
    assert "tea" in memory.get_user_profile_summary()
    assert memory.get_memory_stats()["has_user_profile"]
    memory.force_mid_term_analysis()
    assert memos.memories.list(cube=names.cube_of_user("alice"), filter={"tier": "long"}) == derived
