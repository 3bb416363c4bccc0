"""MemoryOS folders: every page once and in order, knowledge with its tag, bad records told, nothing stored twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from memos import MemOS
from memos.compat.importing import import_memoryos
from memos.compat.memoryos import Memoryos
from memos.errors import InvalidInput, MemosError, NotFound
from memos.kernel.importing import ImportSummary, OnBad
from memos.reader.importers.memoryos import owners, records

ALICE = "memoryos-user-alice"


def page(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "user_input": f"Question {number} about the garden.",
        "agent_response": f"Answer {number}.",
        "timestamp": f"2025-01-{number:02} 10:00:00",
        **fields,
    }


def stored_page(number: int, **fields: Any) -> dict[str, Any]:
    return page(
        number, page_id=f"page_{number}", preloaded=False, analyzed=False, pre_page=None, next_page=None,
        meta_info="The user asks about the garden.", page_embedding=[0.1] * 384, page_keywords=["garden"], **fields,
    )  # fmt: skip


def session(*pages: Any) -> dict[str, Any]:
    return {
        "id": "session_1", "summary": "About the garden.", "summary_keywords": ["garden"],
        "summary_embedding": [0.1] * 384, "details": list(pages), "L_interaction": len(pages), "R_recency": 1.0,
        "N_visit": 0, "H_segment": 2.0, "timestamp": "2025-01-09 10:00:00", "last_visit_time": "2025-01-09 10:00:00",
        "access_count_lfu": 0,
    }  # fmt: skip


def knowledge(text: Any, at: str = "2025-01-05 10:00:00") -> dict[str, Any]:
    return {"knowledge": text, "timestamp": at, "knowledge_embedding": [0.1] * 384}


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2), "utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two users and an assistant, as the original writes it."""
    root = tmp_path / "data"
    alice = root / "users/alice"
    sessions = {
        "session_1": session(stored_page(3), stored_page(1)),
        "session_2": session(stored_page(1), stored_page(2)),
    }
    write(alice / "mid_term.json", {"sessions": sessions, "access_frequency": {"session_1": 2, "session_2": 0}})
    write(alice / "short_term.json", [page(4), page(5)])
    write(
        alice / "long_term_user.json",
        {
            "user_profiles": {"alice": {"data": "Gardens a lot.\nLikes basil.", "last_updated": "2025-01-06 10:00:00"}},
            "knowledge_base": [knowledge("Alice is allergic to peanuts."), knowledge("- None")],
            "assistant_knowledge": [],
        },
    )
    write(root / "users/bob/short_term.json", [page(7, user_input="The wombat is mine.")])
    write(
        root / "assistants/helper/long_term_assistant.json",
        {"user_profiles": {}, "knowledge_base": [], "assistant_knowledge": [knowledge("I know recipes.")]},
    )
    return root


def imported(memos: MemOS, folder: Path, on_bad: OnBad = "stop", **options: Any) -> ImportSummary:
    return import_memoryos(memos, folder, on_bad=on_bad, **options)


def test_pages_come_once_and_in_order_of_time(memos: MemOS, folder: Path) -> None:
    summary = imported(memos, folder)
    assert (summary.added, summary.known, summary.bad) == (10 + 2 + 2 + 1, 0, ())
    assert summary.left_out == 2 + 1  # a page that two sessions have, and a line that says nothing
    assert "embeddings" in summary.note
    said = memos.memories.list(cube=ALICE, filter={"conversation": "with-helper"})
    wanted = [text for number in range(1, 6) for text in (f"Question {number} about the garden.", f"Answer {number}.")]
    assert [item.memory for item in said] == wanted
    assert [item.page for item in said] == [number for number in range(5) for _ in "ab"]
    assert f"{said[0].said_at:%F %T}" == "2025-01-01 10:00:00"
    assert "wombat" not in str(memos.memories.list(cube=ALICE))
    assert "wombat" in str(memos.memories.list(cube="memoryos-user-bob"))
    assert memos.maintenance.verify().clean


def test_knowledge_and_profile_are_nobodys_words_and_carry_their_tag(memos: MemOS, folder: Path) -> None:
    imported(memos, folder)
    [fact] = memos.memories.list(cube=ALICE, filter={"tags": {"contains": "memoryos:user_knowledge"}})
    assert (fact.memory, fact.role, fact.speaker) == ("Alice is allergic to peanuts.", "system", "imported knowledge")
    assert fact.info == {"timestamp": "2025-01-05 10:00:00"}
    assert f"{fact.said_at:%F}" == "2025-01-05"
    [profile] = memos.memories.list(cube=ALICE, filter={"tags": {"contains": "memoryos:profile"}})
    assert profile.memory == "Gardens a lot.\nLikes basil."
    with Memoryos("alice", None, "unused", assistant_id="helper", memos=memos) as memory:
        assert memory.get_user_profile_summary() == "Gardens a lot.\nLikes basil."
        [known] = memory.get_assistant_knowledge_summary()
        assert known == {"knowledge": "I know recipes.", "timestamp": "2025-01-05 10:00:00+00:00"}
        assert memory.get_memory_stats()["short_term_count"] == 5
    with Memoryos("alice", None, "unused", assistant_id="other", memos=memos) as memory:
        assert memory.get_assistant_knowledge_summary() == []


def test_importing_again_adds_only_what_is_new_also_when_pages_moved(memos: MemOS, folder: Path) -> None:
    first = imported(memos, folder)
    again = imported(memos, folder)
    assert (again.added, again.known) == (0, first.added)
    alice = folder / "users/alice"
    sessions = {"session_1": session(*(stored_page(number) for number in range(1, 5)))}
    write(alice / "mid_term.json", {"sessions": sessions, "access_frequency": {}})
    write(alice / "short_term.json", [page(5), page(6)])
    later = imported(memos, folder)
    assert (later.added, later.known) == (2, first.added)
    assert len(memos.memories.list(cube=ALICE, filter={"conversation": "with-helper"})) == 12


def test_one_cube_takes_one_user(memos: MemOS, folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^cube: would mix 2 users"):
        imported(memos, folder, cube="default")
    (folder / "users/bob/short_term.json").unlink()
    with pytest.raises(NotFound):
        imported(memos, folder, cube="nowhere")
    summary = imported(memos, folder, cube="default", conversation="mine")
    assert (summary.added, summary.conversations) == (13, 3)
    assert len(memos.memories.list(filter={"conversation": "mine"})) == 10
    assert [cube.id for cube in memos.cubes.list()] == ["default"]


def test_an_error_that_the_original_kept_as_an_answer_is_none(memos: MemOS, folder: Path) -> None:
    error = "Error: Could not get response from LLM."
    write(folder / "users/bob/short_term.json", [page(7, agent_response=error), page(8, user_input=" ")])
    write(folder / "users/bob/long_term_user.json", {"user_profiles": {"bob": {"data": error}}, "knowledge_base": []})
    assert imported(memos, folder).left_out == 3 + 3
    said = [item.memory for item in memos.memories.list(cube="memoryos-user-bob")]
    assert said == ["Question 7 about the garden.", "Answer 8."]


BAD: list[tuple[str, Any, str]] = [
    ("users/alice/short_term.json", [page(4), 5, page(5)], "short_term.json, entry 2 is int, not a page"),
    ("users/alice/short_term.json", [page(4), {}, page(5)], "entry 2 has neither user_input nor agent_response"),
    ("users/alice/short_term.json", [page(4), page(9, user_input=[1]), page(5)], "has a user_input that is list"),
    ("users/alice/short_term.json", [page(4), page(9, timestamp="soon"), page(5)], "user_input is refused: chat_time"),
    ("users/alice/short_term.json", [page(4), page(9, timestamp=float("nan")), page(5)], "chat_time"),
    ("users/alice/short_term.json", '[{"user_input": "\\ud800", "agent_response": "x"}]', "lone surrogate"),
    ("users/alice/short_term.json", "", "is empty"),
    ("users/alice/short_term.json", '{"a": ' * 100_000, "nested too deeply"),
    ("users/alice/mid_term.json", {"sessions": {"s": {"details": 5}}}, "mid_term.json, session s has no list of pages"),
    ("users/alice/mid_term.json", {"sessions": {"s": session("x", stored_page(1))}}, "session s, page 1 is str"),
    ("users/alice/mid_term.json", {"sessions": 5}, "has no sessions"),
    ("users/alice/mid_term.json", {"access_frequency": {}, "sessions": {"s": 5}}, "session s has no list of pages"),
    ("users/alice/mid_term.json", '{"sessions": {"s": {"details": [[[}}}}', "is not JSON"),
    ("users/alice/long_term_user.json", {"knowledge_base": [knowledge(5)]}, "knowledge_base 1 has no text"),
    ("users/alice/long_term_user.json", {"knowledge_base": {"a": 1}}, "knowledge_base is dict, not a list"),
    ("users/alice/long_term_user.json", {"user_profiles": {"alice": {"data": {}}}}, "profile of alice has no text"),
    ("users/alice/long_term_user.json", {"user_profiles": []}, ""),
    ("users/alice/long_term_user.json", {"user_profiles": [1]}, "user_profiles is list, not an object"),
    ("users/alice/long_term_user.json", [1], "is not an object with knowledge or profiles"),
    ("users/alice/long_term_user.json", '{"knowledge_base": [', "the download may be incomplete"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "value", "told"), BAD)
def test_a_bad_record_is_told_with_its_place_and_stops_everything_or_is_left_out(
    memos: MemOS, folder: Path, file: str, value: Any, told: str
) -> None:
    write(folder / file, value)
    if not told:
        assert imported(memos, folder).bad == ()
        return
    with pytest.raises(InvalidInput) as caught:
        imported(memos, folder)
    assert told in str(caught.value)
    assert len(memos.cubes.list()) == 1  # nothing of anybody was stored
    summary = imported(memos, folder, "skip")
    assert told in f"{summary.bad[0].place} {summary.bad[0].problem}"
    assert summary.bad[0].place.startswith(file)
    assert "wombat" in str(memos.memories.list(cube="memoryos-user-bob"))
    again = imported(memos, folder, "skip")
    assert (again.added, len(again.bad)) == (0, len(summary.bad))


def test_of_a_file_cut_off_in_the_middle_the_sessions_before_are_kept(memos: MemOS, folder: Path) -> None:
    path = folder / "users/alice/mid_term.json"
    whole = path.read_text("utf-8")
    write(path, whole[: whole.index('"session_2"') + 500])
    with pytest.raises(InvalidInput, match=r"mid_term.json, member 2 is not JSON: the file ends there, in line"):
        imported(memos, folder)
    summary = imported(memos, folder, "skip")
    assert [record.place for record in summary.bad] == ["users/alice/mid_term.json, member 2"]
    kept = [item.memory for item in memos.memories.list(cube=ALICE, filter={"role": "user"})]
    assert kept == [f"Question {number} about the garden." for number in (1, 3, 4, 5)]


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_a_file_cut_off_anywhere_is_told(folder: Path, cut: int) -> None:
    for name in ("mid_term.json", "short_term.json", "long_term_user.json"):
        path = folder / "users/alice" / name
        whole = path.read_bytes().rstrip()
        end = whole.index(b'"access_frequency"') if name == "mid_term.json" else len(whole)
        path.write_bytes(whole[: min(end - 5, 1 + end * cut // 100)])
        [alice] = [owner for owner in owners(folder) if owner.id == "alice"]
        bad = [record for record in records(alice, folder, "c", "k") if record.problem is not None]
        assert name in bad[0].place
        path.write_bytes(whole)


def test_a_folder_without_memory_is_refused(memos: MemOS, tmp_path: Path, folder: Path) -> None:
    for wrong in (
        tmp_path / "nowhere",
        tmp_path / "home",
        folder / "users/alice",
        folder / "users/alice/mid_term.json",
    ):
        with pytest.raises(InvalidInput, match="data_storage_path"):
            imported(memos, wrong)


def test_ids_with_slashes_and_odd_names_are_users(memos: MemOS, folder: Path) -> None:
    write(folder / "users/team/ä/short_term.json", [page(1)])
    (folder / "users/link").symlink_to(folder / "users/alice")
    assert [owner.id for owner in owners(folder)] == ["helper", "alice", "bob", "team/ä"]
    imported(memos, folder)
    with Memoryos("team/ä", None, "unused", assistant_id="helper", memos=memos) as memory:
        assert memory.get_memory_stats()["short_term_count"] == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["sessions", "details", "user_input", "agent_response", "timestamp", "knowledge", "data"])
            | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    short=JSON | st.lists(JSON, max_size=3),
    mid=JSON | st.fixed_dictionaries({"sessions": JSON}),
    long=st.fixed_dictionaries({"user_profiles": JSON, "knowledge_base": JSON, "assistant_knowledge": JSON}),
)
def test_whatever_the_files_hold_is_read_or_told(tmp_path: Path, short: Any, mid: Any, long: Any) -> None:
    alice = tmp_path / "users/alice"
    for name, value in (("short_term", short), ("mid_term", mid), ("long_term_user", long)):
        alice.mkdir(parents=True, exist_ok=True)
        (alice / f"{name}.json").write_text(json.dumps(value), "utf-8")
    [owner] = owners(tmp_path)
    for record in records(owner, tmp_path, "c", "k"):
        assert record.place.startswith("users/alice/")
        assert record.problem or record.message or record.left_out


def test_a_hostile_folder_never_crashes_an_import(memos: MemOS, tmp_path: Path) -> None:
    root = tmp_path / "hostile"
    for number, (file, value, _) in enumerate(BAD):
        write(root / file.replace("alice", f"user-{number}"), value)
    summary = imported(memos, root, "skip")
    assert len(summary.bad) >= len(BAD) - 2
    assert not isinstance(summary, MemosError)
    assert memos.maintenance.verify().clean


@pytest.mark.heavy
def test_the_command_imports_a_folder_and_tells_what_it_left(folder: Path, tmp_path: Path) -> None:
    write(folder / "users/bob/short_term.json", [page(7), 5])
    command = [sys.executable, "-m", "memos.cli.app", "import", str(folder), "--format", "memoryos"]
    command += ["--on-bad", "stop"]
    environment = {**os.environ, "MEMOS_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 2
    assert "users/bob/short_term.json, entry 2 is int, not a page" in done.stderr
    command = command[:-2]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, cubes, note, *left, bad = done.stdout.splitlines()
    assert first == "15 added, 0 known, 1 bad, 3 left out (memoryos, 4 conversations)"
    assert note.startswith("embeddings, heat")
    assert cubes.startswith("in 3 cubes: ")
    assert sum(int(line.split()[2]) for line in left) == 3
    assert bad == "users/bob/short_term.json, entry 2 is int, not a page"
