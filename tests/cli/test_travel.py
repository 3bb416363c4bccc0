"""`memos export`, `memos cube inspect` and `load`, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app
from memos.core.settings import Settings
from memos.memcube.dump import container as sealing
from tests.fakes import WordEmbedder

SECRET = "correct horse battery"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """A runner of commands over installations that embed by words, and seal quickly."""
    opening = MemOS.open

    def with_words(path: Path | None = None, *, settings: Settings | None = None) -> MemOS:
        return opening(path, settings=settings, embedder=WordEmbedder())

    monkeypatch.setattr(MemOS, "open", with_words)
    monkeypatch.setattr(sealing, "_LOG_N", 10)
    return CliRunner()


def test_a_cube_goes_from_one_folder_to_another_sealed(
    run: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here, file = (str(tmp_path / name) for name in ("there", "here", "life.memcube"))
    assert run.invoke(app, ["add", "the gannet dives", "--data-dir", there]).exit_code == 0
    dumped = run.invoke(
        app, ["export", "default", file, "--seal", "--adapters", "--data-dir", there], input=SECRET + "\n"
    )
    assert dumped.exit_code == 0, dumped.output
    assert "dumped 1 items, 1 versions, 0 files, 1 vectors" in dumped.output
    assert SECRET not in dumped.output
    wrong = run.invoke(app, ["cube", "inspect", file, "--data-dir", here], input="another one\n")
    assert wrong.exception is not None
    monkeypatch.setenv("MEMOS_CUBE_PASSPHRASE", SECRET)
    seen = run.invoke(app, ["cube", "inspect", file, "--data-dir", here])
    assert "cube default: 1 items" in seen.output
    assert "the one here; sealed" in seen.output
    loaded = run.invoke(app, ["cube", "load", file, "--as", "copy", "--json", "--data-dir", here])
    assert json.loads(loaded.stdout)["items"] == 1
    merged = run.invoke(app, ["cube", "load", file, "--as", "copy", "--merge", "--data-dir", here])
    assert "1 existed already" in merged.output
    again = run.invoke(app, ["export", "copy", str(tmp_path / "again.memcube"), "--json", "--data-dir", here])
    assert json.loads(again.stdout)["counts"]["items"] == 1
    found = run.invoke(app, ["search", "gannet", "-c", "copy", "--json", "--data-dir", here])
    assert json.loads(found.stdout)["hits"][0]["item"]["memory"] == "the gannet dives"
    assert run.invoke(app, ["cube", "load", file, "--as", "copy", "--data-dir", here]).exception is not None
