"""The commands about knowledge bases: for people, as JSON, their exit codes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app
from memos.errors import Conflict, InvalidInput, NotFound
from tests.fakes import WordEmbedder
from tests.support import documents as make

ROOT = Path(__file__).resolve().parents[2]
ODD = "odd [red] :smile: \x1b[31m.md"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kb") / "home"


def run(home: Path, *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(MemOS, "open", partial(MemOS.open, embedder=WordEmbedder()))
        done = CliRunner(env={"MEMOS_HOME": str(home)}).invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def told(home: Path, *arguments: str | Path, code: int = 0) -> Any:
    status, out, _ = run(home, *arguments, "--json")
    assert status == code
    return json.loads(out)


def test_a_knowledge_base_from_its_making_to_its_end(home: Path, tmp_path: Path) -> None:
    (tmp_path / "manual.md").write_text("# Pump\n\nWear xylophone gloves.", encoding="utf-8")
    (tmp_path / "parts.pdf").write_bytes(make.pdf(["The seal costs twelve."]))
    (tmp_path / "locked.pdf").write_bytes(make.pdf(["words"], password="mandrake"))
    (tmp_path / ODD).write_text("an oddly named file", encoding="utf-8")

    assert run(home, "docs", "list")[0] == 0
    assert told(home, "docs", "create", "manuals", "--description", "how [red]to pump")["id"] == "manuals"
    assert run(home, "docs", "create", "manuals")[0] == Conflict.exit_code
    assert "[red]" in run(home, "docs", "list")[1]

    paths = [*(tmp_path / name for name in ("manual.md", "locked.pdf", ODD, "missing.md")), tmp_path]
    status, out, err = run(home, "docs", "add", "manuals", *paths)
    assert status == 1
    assert "manual.md  (1 passages)" in out
    assert "locked.pdf: is protected by a password" in out
    assert "odd [red] :smile: [31m.md" in out
    assert "missing.md: 'missing.md' cannot be opened" in err

    added = told(home, "docs", "add", "manuals", tmp_path / "parts.pdf")
    [parts] = added["files"]
    assert (parts["state"], parts["info"]["pages"], added["refused"]) == ("available", 1, [])
    assert "added before" in run(home, "docs", "add", "manuals", tmp_path / "parts.pdf")[1]

    hits = told(home, "search", "xylophone gloves", "--cube", "default", "--cube", "manuals")["hits"]
    assert (hits[0]["item"]["cube"], hits[0]["item"]["speaker"]) == ("manuals", "manual.md")

    base = told(home, "docs", "show", "manuals")
    assert (base["items"], base["files"]) == (3, {"available": 3, "failed": 1})
    assert "3 available, 1 failed" in run(home, "docs", "show", "manuals")[1]
    assert [file["name"] for file in told(home, "docs", "files", "manuals", "--state", "failed")] == ["locked.pdf"]
    assert parts["id"] in run(home, "docs", "files", "manuals")[1]

    assert told(home, "docs", "delete", "manuals", parts["id"])["state"] == "deleted"
    assert parts["id"] not in run(home, "docs", "files", "manuals")[1]
    assert run(home, "docs", "delete", "manuals", "nothing")[0] == NotFound.exit_code

    assert run(home, "docs", "drop", "manuals")[0] == InvalidInput.exit_code
    assert told(home, "docs", "drop", "manuals", "--yes")["state"] == "purged"
    assert told(home, "docs", "list") == []
    assert run(home, "docs", "show", "default")[0] == NotFound.exit_code


def test_without_waiting_the_next_command_reads_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "later.md").write_text("read later", encoding="utf-8")
    told(home, "docs", "create", "later")
    [file] = told(home, "docs", "add", "later", "--no-wait", tmp_path / "later.md")["files"]
    assert file["state"] == "processing"
    [again] = told(home, "docs", "add", "later", tmp_path / "later.md")["files"]
    assert (again["id"], again["state"]) == (file["id"], "available")
