"""`memos model adapter` with a model: previewed, trained, shown, gone back from, trained again, removed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app
from memos.core.settings import Settings
from tests.models.test_adapters import SAID, facts, model, opened, read, short_examination

__all__ = ["model", "read", "short_examination"]  # fixtures; where the extra `local` is missing, all is skipped

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, read: Path, model: Path) -> Run:
    """What runs a command of `memos model adapter` where facts are pinned, and returns what it says."""
    shutil.copytree(read, tmp_path / "home")
    opening = MemOS.open

    def with_model(path: Path | None = None, *, settings: Settings | None = None, **options: Any) -> MemOS:
        return opening(path, settings=settings, **options) if options else opened(tmp_path, model)

    monkeypatch.setattr(MemOS, "open", with_model)

    def run_(*words: str) -> str:
        done = CliRunner().invoke(app, ["model", "adapter", *words, "--data-dir", str(tmp_path / "home")])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    return run_


def ids(run: Run, state: str) -> list[str]:
    return [each["id"] for each in json.loads(run("list", "--json")) if each["state"] == state]


def test_an_adapter_lives_its_life_by_commands(run: Run, tmp_path: Path) -> None:
    run("allow")
    said = run("preview")
    assert all(text in said for text in SAID)
    said = run("train")
    [first] = ids(run, "active")
    assert f"{first}: number 1 of default, active; {len(SAID)} facts" in said
    for named in ("recall:", "abstention:", "abstention, people who were never mentioned:", "general questions lost:"):
        assert named in said
    assert said.endswith(run("show", first))  # behind how far it was
    assert first in run("train")  # nothing is due

    with MemOS.open(tmp_path / "home") as memos:
        memos.update(facts(memos)[SAID[0]].id, "I live in Porto.")
    assert "stale" in run("list")
    run("train")
    [second] = ids(run, "active")
    assert second != first
    run("remove", second)
    assert ids(run, "active") == []
