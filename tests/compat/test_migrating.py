"""What the pages for users of other programs tell them to run does what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.api.serving import first_key
from memos.compat.mem0 import Memory
from tests.api.running import running
from tests.fakes import WordEmbedder

PAGES = Path(__file__).resolve().parents[2] / "docs/how-to/migrating"
BIN = Path(sys.executable).parent
# As mem0 2.2.1 answers `get_all`.
MEM0: dict[str, Any] = {
    "id": "0d9f1a5e-0000-4000-8000-000000000001", "memory": "Ana is allergic to nuts", "hash": "1", "metadata": None,
    "created_at": "2026-01-05T10:00:00+00:00", "updated_at": "2026-01-05T10:00:00+00:00", "user_id": "ana",
}  # fmt: skip
# As MemOS 2.0.33 dumps a cube.
CUBE = {
    "nodes": [
        {
            "id": "6d6a9ee1-0000-4000-8000-000000000001",
            "memory": "Ana keeps bees.",
            "metadata": {"memory_type": "LongTermMemory", "created_at": "2026-01-05T10:00:00.000000000+00:00"},
        }
    ],
    "edges": [],
}


def run(command: list[str] | str, folder: Path, **environment: str) -> str:
    around = {**os.environ, "PATH": f"{BIN}:/usr/bin:/bin", "MEMOS_HOME": str(folder / "home"), **environment}
    done = subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, env=around, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def follow(page: str, folder: Path, **environment: str) -> list[str]:
    """Run the blocks of a page in their order, but for what asks a server of another program."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    said = []
    for language, block in re.findall(r"^```(python|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            tried = {"MEMOS_HOME": str(folder / "tried"), **environment}
            said.append(run([sys.executable, "-W", "error", "-c", block], folder, **tried))
        else:
            commands = [line.removeprefix("$ ") for line in block.splitlines() if "://" not in line]
            said += [run(command, folder) for command in commands]
    assert said
    return said


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    home = tmp_path_factory.mktemp("served")
    with MemOS.open(home, embedder=WordEmbedder()) as memos, running(memos) as url:
        key = str(first_key(memos))
        memos.users.create("ana")
        stored = memos.add("I prefer night trains to planes.", cube="ana", actor="ana", mode="fine")
        memos.tasks.wait(stored.task)
        assert memos.memories.list(cube="ana", filter={"type": "preference"})
        yield {"MEMOS_BASE_URL": url, "MEMOS_API_KEY": key}


@pytest.mark.heavy
def test_a_program_of_mem0_moves_with_its_memories(tmp_path: Path, server: dict[str, str]) -> None:
    later = {**MEM0, "id": MEM0["id"][:-1] + "2", "memory": "Ana waits for a parcel", "expiration_date": "2999-01-01"}
    ben = {**MEM0, "id": MEM0["id"][:-1] + "3", "memory": "Ben plays chess", "user_id": "ben"}
    held = {"results": [{**MEM0, "metadata": {"category": "health"}}, {**later, "run_id": "monday"}, ben]}
    (tmp_path / "mem0.json").write_text(json.dumps(held))
    follow("mem0", tmp_path, **server)
    with Memory(path=tmp_path / "home") as memory:
        ana = {"user_id": "ana"}
        assert "Ben plays chess" not in {each["memory"] for each in memory.get_all(filters=ana)["results"]}
        [nuts] = memory.get_all(filters={**ana, "category": "health"})["results"]
        told = {name: nuts[name] for name in ("memory", "created_at", "metadata", "user_id")}
        assert told == {
            **{name: MEM0[name] for name in ("memory", "created_at", "user_id")},
            "metadata": {"category": "health"},
        }
        [parcel] = memory.get_all(filters={**ana, "run_id": "monday", "memory": {"contains": "parcel"}})["results"]
        assert parcel["expiration_date"] == "2999-01-01"
        memory.update(parcel["id"], expiration_date="2020-01-01")
        assert parcel["id"] not in {each["id"] for each in memory.get_all(filters=ana)["results"]}


@pytest.mark.heavy
def test_memories_of_memos_move(tmp_path: Path, server: dict[str, str]) -> None:
    (tmp_path / "cube").mkdir()
    (tmp_path / "cube" / "textual_memory.json").write_text(json.dumps(CUBE))
    follow("memos", tmp_path, **server)
    again = run("memos import memos.jsonl cube.jsonl --cube ana --json", tmp_path)
    assert json.loads(again)["added"] == 0
    with MemOS.open(tmp_path / "home", embedder=WordEmbedder()) as memos:
        moved = {item.memory: item for item in memos.memories.list(cube="ana")}
        assert {"Ana keeps bees.", "I prefer night trains to planes."} <= moved.keys()
        assert moved["Ana keeps bees."].said_at.isoformat() == "2026-01-05T10:00:00+00:00"  # type: ignore[union-attr]


@pytest.mark.heavy
def test_what_the_page_for_zep_shows_is_found(tmp_path: Path) -> None:
    lines = follow("zep", tmp_path)[0].splitlines()
    assert lines[:2] == ["I work at Globex now. current", "I work at Acme. replaced"]
    assert any("I work at Globex now." in line for line in lines[2:])
