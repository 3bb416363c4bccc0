"""`memos adapters forget`, `allow`, `export` and `train`, as a person and as a program use them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app
from memos.cli.shared import progress_bar
from memos.core.settings import Settings
from memos.errors import BackendUnavailable, Conflict, NotFound
from memos.memcube.parametric.forgetting import FOLDER
from tests.fakes import WordEmbedder
from tests.support.adapters import active, begun, with_card, with_files

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """What runs a command of `memos model adapter` on a folder, and returns what it says."""
    opening = MemOS.open

    def with_words(path: Path | None = None, *, settings: Settings | None = None) -> MemOS:
        return opening(path, settings=settings, embedder=WordEmbedder())

    monkeypatch.setattr(MemOS, "open", with_words)

    def run_(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["model", "adapter", *words, "--data-dir", str(tmp_path / "home")])
        assert done.exit_code == code, done.output
        return done.output

    return run_


@pytest.fixture
def learned(run: Run, tmp_path: Path) -> tuple[list[str], list[str]]:
    """Memories, and two adapters: the first saw both, the second one of them."""
    with MemOS.open(tmp_path / "home") as memos:
        memos.adapters.allow()
        ids = [memos.add(text).item_ids[0] for text in ("I live in Lyon.", "I keep \x1b[31mbees.")]
        made = [active(memos.ledger, ids), active(memos.ledger, ids[1:])]
        for id_ in made:
            with_card(with_files(tmp_path / "home" / FOLDER, id_))
    return ids, made


def told(run: Run, *words: str) -> Any:
    return json.loads(run(*words, "--json"))


def test_memories_are_forgotten_and_learned_again(
    run: Run, learned: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    ids, (first, second) = learned
    done = told(run, "forget", ids[0])
    assert (done["items"], done["adapters"], done["files"]) == (ids[:1], [first], 4)
    said = run("forget", ids[1])
    assert "1 memories are excluded from training" in said
    assert "removed: 1 adapters, 4 files" in said
    assert list((tmp_path / "home" / FOLDER).iterdir()) == []
    assert told(run, "allow", *ids) == {"cube": "default", "allowed": True}
    assert run("list").strip() == "0 adapters"
    run("forget", second, code=NotFound.exit_code)


def test_a_training_that_was_ended_says_how_it_goes_on(
    run: Run, learned: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    assert "interrupted training" not in run("list")
    with MemOS.open(tmp_path / "home") as memos:
        begun(memos.ledger, learned[0])
    assert "to continue an interrupted training: memos model adapter train --cube default" in " ".join(
        run("list").split()
    )


def test_what_takes_minutes_says_how_far_it_is_in_a_file_too(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet, lines in ((False, True), (False, False), (True, True)):
        with progress_bar("steps", quiet, lines=lines) as tell:
            for done in range(0, 46, 2):
                assert (tell is None) is quiet
                if tell is not None:
                    tell(done, 45)
        said = capsys.readouterr()
        assert said.out == ""
        told = said.err.splitlines()
        first = ["steps: 0 of 45", "steps: 6 of 45, about 0.0 min left"]
        assert (told[:2], len(told)) == ((first, 10) if lines > quiet else ([], 0))


def test_a_file_is_told_how_much_time_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter((100.0, 160.0))
    # The module's own name, not the function of `time`, which threads of other tests call as well.
    monkeypatch.setattr("memos.cli.shared.time", SimpleNamespace(monotonic=lambda: next(now)))
    with progress_bar("steps", False, lines=True) as tell:
        assert tell is not None
        tell(10, 170)  # one that goes on
        tell(50, 170)
    assert capsys.readouterr().err.splitlines()[-1] == "steps: 50 of 170, about 3.0 min left"


def test_files_are_written_where_nothing_is(run: Run, learned: tuple[list[str], list[str]], tmp_path: Path) -> None:
    _, (first, _) = learned
    done = told(run, "export", first, str(tmp_path / "out"))
    assert sorted(done["files"]) == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert "4 files" in run("export", first, str(tmp_path / "again"))
    run("export", first, str(tmp_path / "out"), code=Conflict.exit_code)


def test_without_a_model_nothing_is_trained_again(run: Run, learned: tuple[list[str], list[str]]) -> None:
    assert "No model to train" in run("train", code=BackendUnavailable.exit_code)


@pytest.mark.parametrize("words", ["rollback --cube x", "diff one two", "estimate"])
def test_a_command_that_was_removed_says_what_does_the_same(words: str) -> None:
    done = CliRunner().invoke(app, ["adapters", *words.split()])
    assert done.exit_code == 2
    assert re.search(r"was removed: .*`memos model adapter (train|activate|export)", " ".join(done.output.split()))
