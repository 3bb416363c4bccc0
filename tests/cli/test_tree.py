"""The tree of commands: each has help, is imported only to run it or to explain it, and former words answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos.cli.app import app
from memos.cli.tree import FORMER, REMOVED, TREE, Group, walk
from memos.version import __version__

RUNNER = CliRunner(env={"COLUMNS": "200"})
COMMANDS = dict(walk())
WITHOUT_JSON = {"serve", "mcp", "task work", "console", "demo"}
HEAVY = ("memos.kernel", "memos.backends", "memos.core.settings", "numpy", "sqlalchemy", "rich.markdown")
ROOT = Path(__file__).resolve().parents[2]


def loaded_by(*arguments: str, **env: str) -> tuple[str, set[str]]:
    """Run the command line in a process of its own; return what it says and the modules it has loaded."""
    program = (
        "import atexit, sys; from memos.cli.app import main; "
        "atexit.register(lambda: sys.stderr.write('\\n'.join(sys.modules))); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help_and_json_but_the_programs(words: str) -> None:
    done = RUNNER.invoke(app, [*words.split(), "--help"])
    assert done.exit_code == 0, done.output
    assert COMMANDS[words].help in " ".join(done.stdout.split())
    assert ("--json" in done.stdout) is (words not in WITHOUT_JSON)
    example = COMMANDS[words].example
    assert not example or example.startswith(f"memos {words} ")
    assert example in done.stdout


def test_the_top_has_about_twenty_words_and_each_group_shows_its_own() -> None:
    shown = RUNNER.invoke(app, ["--help"]).stdout
    assert "130  interrupted" in shown
    entries = {word: entry for panel in TREE.values() for word, entry in panel.items()}
    assert len(entries) <= 26
    for word, entry in entries.items():
        assert f"  {word} " in shown
        if isinstance(entry, Group):
            told = RUNNER.invoke(app, [word] if entry.own is None else [word, "--help"]).output
            assert all(f"  {below} " in told for below in entry.commands)


@pytest.mark.parametrize("former", FORMER)
def test_a_former_word_names_the_new_one_and_runs_it(former: str) -> None:
    now = FORMER[former]
    done = RUNNER.invoke(app, [*former.split(), "--help"])
    assert done.exit_code == 0
    assert done.stderr == f"`memos {former}` is now `memos {now}`.\n"
    new = RUNNER.invoke(app, [*now.split(), "--help"])
    assert done.stdout.splitlines()[1:] == new.stdout.splitlines()[1:]  # but for the line of its use


def test_a_former_word_is_told_with_its_command_and_does_its_work(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["cubes", "list", "--json", "--data-dir", str(tmp_path)])
    assert done.stderr == "`memos cubes list` is now `memos cube list`.\n"
    assert [cube["id"] for cube in json.loads(done.stdout)] == ["default"]


def test_a_mistyped_word_is_told_the_nearest_one() -> None:
    for arguments, meant in (
        (["serch", "x"], "memos search"),
        (["cube", "lst"], "memos cube list"),
        (["segmnts"], "memos memory topics"),
        (["memory", "list"], "memos list"),
        (["erasure", "verify", "receipt.json"], "memos data erasure verify"),
        (["rotate", "KEY"], "memos user key rotate"),
        (["memory", "delete", "x"], "memos forget"),
    ):
        done = RUNNER.invoke(app, arguments)
        assert done.exit_code == 2
        assert f"Did you mean `{meant}`?" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["memory", "--help"], ["version"], ["version", "--json"]])
def test_help_and_version_load_no_command_and_nothing_heavy(arguments: list[str]) -> None:
    _, modules = loaded_by(*arguments)
    ours = {name for name in modules if name.startswith("memos.cli.")}
    assert ours == {"memos.cli.app", "memos.cli.tree"}
    assert not [name for name in modules if name.startswith(HEAVY)]


def test_the_mcp_server_answers_its_first_message_before_anything_heavy_is_loaded() -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}  # fmt: skip
    program = (
        "import sys; from memos.cli.server import open_wire; open_wire(); sys.stderr.write('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, input=json.dumps(hello), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "hippocube"
    heavy = (*HEAVY, "mcp", "mcp_types", "pydantic", "starlette", "anyio")
    assert not [name for name in done.stderr.split() if name.partition(".")[0] in heavy or name.startswith(HEAVY)]


def test_help_of_a_command_loads_nothing_heavy() -> None:
    _, modules = loaded_by("search", "--help")
    assert not [name for name in modules if name.startswith(HEAVY)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [("memos ", {"add", "cube"}), ("memos cube sh", {"share", "shares"}), ("memos cube share --ro", {"--role"})],
)
def test_completion_knows_the_words_and_loads_nothing_heavy(line: str, expected: set[str]) -> None:
    words = line.split() + ([""] if line.endswith(" ") else [])
    env = {"_MEMOS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    program = "import sys; sys.argv = ['memos']; from memos.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected <= set(done.stdout.split()), done
    assert "cubes" not in done.stdout.split()


def test_completion_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the shell is named, not looked for
    done = RUNNER.invoke(app, ["--show-completion", "bash"], prog_name="memos")
    assert "_MEMOS_COMPLETE=complete_bash" in done.stdout


def test_the_version_is_the_packages() -> None:
    assert RUNNER.invoke(app, ["version"]).stdout == f"{__version__}\n"
    assert RUNNER.invoke(app, ["--version"]).stdout == f"{__version__}\n"
    assert json.loads(RUNNER.invoke(app, ["version", "--json"]).stdout) == {"version": __version__}


@pytest.mark.parametrize(
    "page",
    sorted(
        page
        for page in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md")
        if "development" not in page.parts and page.name != "upgrading.md"  # which tells what to do with 0.1
    ),
    ids=str,
)
def test_pages_name_no_former_command(page: Path) -> None:
    former = "|".join(re.escape(words) for words in sorted({*FORMER, *REMOVED}, key=len, reverse=True))
    assert re.findall(rf"\bmemos (?:{former})(?![\w-])", page.read_text(encoding="utf-8")) == []
