"""Memory in the configuration of MCP hosts and as a plugin of Claude Code, put there and taken out again."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import Result
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from typer.testing import CliRunner

from memos.cli.app import app
from memos.cli.hosts import jsonc
from memos.cli.hosts.mcp_hosts import HOSTS

ROOT = Path(__file__).resolve().parents[2]
KEY = "mst_the-secret-key"
ENTRY = {"command": "memos", "args": ["mcp"]}
IN_PROJECT = [name for name, host in HOSTS.items() if host.project is not None]

Run = Callable[..., Result]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user on Linux, who is in a project with a git remote."""
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "MEMOS_HOME", "MEMOS_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.chdir(home / "project")
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "remote", "add", "origin", "https://ana:token@github.com/ana/notes.git"], check=True)
    return home


def run(*arguments: str, code: int = 0, typed: str = "", **env: str) -> Result:
    result = CliRunner(env={"COLUMNS": "200", **env}).invoke(app, list(arguments), input=typed)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def tree(folder: Path) -> dict[str, Any]:
    """Return every file, folder and link below a folder, with mode and content."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        what = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path)] = (stat.S_IMODE(path.lstat().st_mode), what)
    return found


def entered(name: str, path: Path) -> Any:
    """Return the entry for memory in a host's file, read as the host reads it."""
    host = HOSTS[name]
    text = path.read_text(encoding="utf-8")
    return (tomllib.loads(text) if host.toml else jsonc.parse(text))[host.path[0]]["hippocube"]


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_is_given_memory_for_its_user_and_nothing_stays_behind(name: str, user: Path) -> None:
    before = tree(user)
    shown = run("mcp", "install", name, "--dry-run").output
    assert "+" in shown
    assert "hippocube" in shown
    assert tree(user) == before
    run("mcp", "install", name, "--yes")
    entry = entered(name, HOSTS[name].file(in_project=False))
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-1] == "mcp"
    there = tree(user)
    assert "Nothing to change." in run("mcp", "install", name, "--yes").output
    assert tree(user) == there
    run("mcp", "uninstall", name, "--yes")
    files = {path: what for path, what in tree(user).items() if what[1] is not None}
    assert files == {path: what for path, what in before.items() if what[1] is not None}
    assert "Nothing to change." in run("mcp", "uninstall", name, "--yes").output


@pytest.mark.parametrize("name", IN_PROJECT)
def test_a_projects_file_has_nothing_of_one_machine_and_no_key(name: str, user: Path) -> None:
    run("mcp", "install", name, "--in-project", "--scope", "project", "--yes", MEMOS_API_KEY=KEY)
    path = HOSTS[name].file(in_project=True)
    assert entered(name, path)["command"] == "memos"
    assert entered(name, path)["args"] == ["mcp", "--project", "github.com/ana/notes"]
    assert str(user) not in path.read_text(encoding="utf-8")
    url = "https://memory.example.com/"
    if HOSTS[name].variable is None:
        told = run("mcp", "install", name, "--in-project", "--url", url, "--yes", code=2, MEMOS_API_KEY=KEY).output
        assert "must not be one of a project" in told
    else:
        run("mcp", "install", name, "--in-project", "--url", url, "--yes", MEMOS_API_KEY=KEY)
        assert "https://memory.example.com/mcp" in entered(name, path).values()
        assert "MEMOS_API_KEY" in path.read_text(encoding="utf-8")
    assert KEY not in path.read_text(encoding="utf-8")
    run("mcp", "uninstall", name, "--in-project", "--yes")
    assert not path.exists()


def test_the_folder_of_this_shell_is_written_for_a_user(user: Path) -> None:
    run("mcp", "install", "cursor", "--yes", MEMOS_HOME=str(user / "memory"))
    assert entered("cursor", HOSTS["cursor"].file(in_project=False))["args"][-2:] == [
        "--data-dir",
        str(user / "memory"),
    ]
    run("mcp", "install", "cursor", "--in-project", "--yes", MEMOS_HOME=str(user / "memory"))
    assert entered("cursor", HOSTS["cursor"].file(in_project=True))["args"] == ["mcp"]


def test_a_key_that_must_stand_in_a_file_is_shown_to_nobody_else(user: Path) -> None:
    shown = run("mcp", "install", "zed", "--url", "https://memory.example.com", "--yes", MEMOS_API_KEY=KEY).output
    path = HOSTS["zed"].file(in_project=False)
    assert entered("zed", path)["headers"] == {"Authorization": f"Bearer {KEY}"}
    assert KEY not in shown
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "must be set" in run("mcp", "install", "cline", "--url", "https://x.example", "--yes", code=2).output
    refused = run("mcp", "install", "claude-desktop", "--url", "https://x.example", "--yes", code=2).output
    assert "takes programs alone" in refused


OTHERS = """\
// My settings
{
    "theme": "dark", // mine
    "context_servers": {
        /* the first */
        "git": {"command": "git-mcp"},
    },
}
"""


def test_comments_commas_and_other_entries_stay_as_they_are(user: Path) -> None:
    path = HOSTS["zed"].file(in_project=False)
    path.parent.mkdir(parents=True)
    path.write_text(OTHERS, encoding="utf-8")
    path.chmod(0o640)
    real = path.with_name("dotfiles.json")
    path.rename(real)
    path.symlink_to(real)
    before = tree(user)
    run("mcp", "install", "zed", "--yes")
    text = path.read_text(encoding="utf-8")
    assert text.startswith(OTHERS.split('"git"', maxsplit=1)[0])
    assert jsonc.parse(text)["context_servers"]["git"] == {"command": "git-mcp"}
    assert (path.is_symlink(), stat.S_IMODE(real.stat().st_mode)) == (True, 0o640)
    [copy] = [name for name in tree(user) if name.endswith(".before-hippocube")]
    assert Path(copy).read_text(encoding="utf-8") == OTHERS
    run("mcp", "install", "zed", "--yes", "--read-only")
    assert entered("zed", path)["args"] == ["mcp", "--read-only"]
    run("mcp", "uninstall", "zed", "--yes")
    assert tree(user) == before


def test_toml_keeps_its_comments_and_tables(user: Path) -> None:
    path = HOSTS["codex"].file(in_project=False)
    path.parent.mkdir(parents=True)
    text = '# mine\nmodel = "x"  # which\n\n[mcp_servers.git]\ncommand = "git-mcp" # first\n\n[tui]\ntheme = "dark"\n'
    path.write_text(text, encoding="utf-8")
    run("mcp", "install", "codex", "--yes")
    changed = path.read_text(encoding="utf-8")
    assert all(line in changed for line in text.splitlines())
    assert tomllib.loads(changed)["tui"] == {"theme": "dark"}
    assert entered("codex", path)["args"] == ["mcp"]
    run("mcp", "uninstall", "codex", "--yes")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("cursor", '{"mcpServers": {"a": 1', "line 1, column 23"),
        ("cursor", '{"mcpServers": []}', "mcpServers is not an object"),
        ("cursor", "[]", "the file is not an object"),
        ("cursor", '{"a": 1} x', "expected the end"),
        ("codex", "[mcp_servers\n", "malformed"),
        ("codex", "mcp_servers = 3\n", "mcp_servers is not a table"),
    ],
)
def test_a_malformed_file_is_an_error_and_left_as_it_is(name: str, text: str, told: str, user: Path) -> None:
    path = HOSTS[name].file(in_project=False)
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    before = tree(user)
    assert told in run("mcp", "install", name, "--yes", code=2).output
    assert tree(user) == before
    run("mcp", "uninstall", name, "--yes", code=0 if "is not an object" in told else 2)
    assert tree(user) == before
    path.write_bytes(b'{"a": "\xff"}')
    assert "cannot be read as text" in run("mcp", "install", name, "--yes", code=2).output


def test_nothing_is_changed_without_a_yes(user: Path) -> None:
    before = tree(user)
    assert "--yes" in run("mcp", "install", "cursor", code=2).output
    run("mcp", "install", "cursor", code=1, typed="n\n")
    assert tree(user) == before
    shown = json.loads(run("mcp", "install", "cursor", "--json", "--dry-run").stdout)
    assert (shown["changed"], shown["files"]) == (False, [str(user / ".cursor" / "mcp.json")])
    run("mcp", "install", "cursor", typed="y\n")
    assert entered("cursor", user / ".cursor" / "mcp.json")["args"] == ["mcp"]


@pytest.mark.parametrize("command", [("mcp", "install", "cursor"), ("claude", "install")])
def test_without_the_extra_that_they_need_nothing_is_entered(
    command: tuple[str, ...], user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    before = tree(user)
    assert "pip install '.[mcp]'" in run(*command, "--yes", code=6).output
    assert tree(user) == before
    run(*command, "--yes", "--url", "http://127.0.0.1:8765")


def test_rules_are_written_when_asked_for_in_a_file_or_a_block_of_their_own(user: Path) -> None:
    agents = user / "project" / "AGENTS.md"
    agents.write_text("# Ours\n\nUse tabs.\n", encoding="utf-8")
    before = tree(user)
    for name in ("codex", "cursor"):
        run("mcp", "install", name, "--in-project", "--rules", "--yes")
        assert "Nothing to change." in run("mcp", "install", name, "--in-project", "--rules", "--yes").output
    assert agents.read_text(encoding="utf-8").startswith("# Ours\n\nUse tabs.\n\n<!-- hippocube: begin -->\n")
    rule = (user / "project" / ".cursor" / "rules" / "hippocube.mdc").read_text(encoding="utf-8")
    assert "alwaysApply: true" in rule
    assert "search_memories" in rule
    for name in ("codex", "cursor"):
        run("mcp", "uninstall", name, "--in-project", "--yes")
    files = {path: what for path, what in tree(user).items() if what[1] is not None}
    assert files == {path: what for path, what in before.items() if what[1] is not None}
    assert "no file of rules" in run("mcp", "install", "cursor", "--rules", "--yes", code=2).output


def test_what_cannot_be_is_said(user: Path) -> None:
    assert "use one of claude-code" in run("mcp", "install", "emacs", "--yes", code=2).output
    assert "must be user or project" in run("mcp", "install", "cursor", "--scope", "all", "--yes", code=2).output
    assert "--in-project" in run("mcp", "install", "cursor", "--scope", "project", "--yes", code=2).output
    assert "no configuration file in projects" in run("mcp", "install", "cline", "--in-project", code=2).output
    assert "must begin with http" in run("mcp", "install", "cursor", "--url", "x.example", code=2).output
    told = run("mcp", "install", "cursor", "--url", "https://x.example", "--user", "ana", code=2).output
    assert "leave the other options out" in told


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_have_their_own_places(platform: str, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("APPDATA", str(user / "Roaming"))
    data = user / ("Roaming" if platform == "win32" else "Library/Application Support")
    assert HOSTS["claude-desktop"].user() == data / "Claude" / "claude_desktop_config.json"
    assert HOSTS["vscode"].user() == data / "Code" / "User" / "mcp.json"
    zed = data / "Zed" if platform == "win32" else user / ".config" / "zed"
    assert HOSTS["zed"].user() == zed / "settings.json"


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["cursor", "codex"])
def test_what_a_host_is_told_to_start_answers_it(name: str, user: Path, tmp_path: Path) -> None:
    run("mcp", "install", name, "--yes", "--data-dir", str(tmp_path / "memory"))
    entry = entered(name, HOSTS[name].file(in_project=False))

    async def ask() -> set[str]:
        async with Client(StdioServerParameters(command=entry["command"], args=entry["args"])) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert "search_memories" in anyio.run(ask)


def documented() -> list[str]:
    pages = [ROOT / "docs/how-to/integrations" / f"{name}.md" for name in ("mcp-hosts", "claude-code")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    return [line.removeprefix("$ memos ").partition("#")[0].strip() for line in lines if line.startswith("$ memos ")]


@pytest.mark.parametrize("command", documented())
def test_documented_commands_do_what_they_say(command: str, user: Path) -> None:
    words = command.split()
    if "install" in words:
        assert "hippocube" in run(*words, "--dry-run").output
    else:
        run(*words[: -1 if words[0] == "mcp" else 1], "--help")


# The plugin of Claude Code


def test_the_plugin_is_one_folder_that_goes_without_a_trace(user: Path) -> None:
    (user / ".claude").mkdir()
    (user / ".claude" / "settings.json").write_text('{"theme": "dark"}', encoding="utf-8")
    (user / ".claude.json").write_text('{"pluginUsage": {"x@y": {"usageCount": 1}}}', encoding="utf-8")
    before = tree(user)
    assert "+++" in run("claude", "install", "--dry-run").output
    assert "--yes" in run("claude", "install", code=2).output
    assert tree(user) == before
    shown = run("claude", "install", "--yes").output
    assert len(shown.splitlines()) < 20
    assert "SKILL.md, " in shown
    folder = user / ".claude" / "skills" / "hippocube"
    there = tree(user)
    assert set(there) - set(before) == {
        str(path) for path in [folder.parent, folder, *folder.rglob("*")]
    }  # nothing else is touched
    assert "Nothing to change." in run("claude", "install", "--yes").output
    assert tree(user) == there
    # What Claude Code and the hooks leave there.
    (folder / "state").mkdir()
    (folder / "state" / "s.json").write_text(
        json.dumps({"transcript": str(user / "gone"), "offset": 0, "since": ""}), encoding="utf-8"
    )
    (user / ".claude.json").write_text(
        '{"pluginUsage": {"x@y": {"usageCount": 1}, "hippocube@skills-dir": {"usageCount": 2}}}', encoding="utf-8"
    )
    assert "no terminal" in run("claude", "uninstall", code=2).output
    run("claude", "uninstall", "--yes")
    assert tree(user) == before
    assert "Nothing was changed" in run("claude", "uninstall", "--yes", code=3).output


def test_the_plugin_names_this_memory_and_no_key(user: Path) -> None:
    run("claude", "install", "--yes", "--data-dir", "memory", "--user", "ana", "--scope", "project")
    folder = user / ".claude" / "skills" / "hippocube"
    server = json.loads((folder / ".mcp.json").read_text(encoding="utf-8"))["mcpServers"]["memory"]
    data = str(user / "project" / "memory")
    assert server["args"][-6:] == ["mcp", "--data-dir", data, "--user", "ana", "--scope", "project"][-6:]
    hooks = json.loads((folder / "hooks" / "hooks.json").read_text(encoding="utf-8"))["hooks"]
    assert set(hooks) == {"SessionStart", "UserPromptSubmit", "SubagentStart", "Stop", "PreCompact", "SessionEnd"}
    [hook] = hooks["UserPromptSubmit"][0]["hooks"]
    assert hook["args"][:3] == ["-I", "-S", "${CLAUDE_PLUGIN_ROOT}/hooks/hook.py"]
    assert hook["args"][3:] == ["prompt", f"home={data}", "user=ana", "scope=project", "timeout_s=3"]
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"
    run("claude", "install", "--yes", "--url", "https://memory.example.com/", MEMOS_API_KEY=KEY)
    texts = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file())
    assert KEY not in texts
    assert "https://memory.example.com/mcp" in texts
    assert "${MEMOS_API_KEY}" in texts
    plain = run("claude", "install", "--yes", "--url", "http://memory.example.com")
    assert "unencrypted" in plain.stderr
    refused = run("claude", "install", "--yes", "--url", "https://x.example", "--user", "ana", code=2).output
    assert "whose key says for whom" in refused
    refused = run("claude", "install", "--yes", "--url", "https://x.example", "--scope", "project", code=2).output
    assert "--in-project" in refused
    run("claude", "install", "--yes", "--in-project", "--url", "https://x.example", "--scope", "project")
    text = (user / "project" / ".claude" / "skills" / "hippocube" / ".mcp.json").read_text(encoding="utf-8")
    assert "https://x.example/mcp?project=github.com%2Fana%2Fnotes" in text


def test_a_projects_plugin_is_kept_out_of_its_repository(user: Path) -> None:
    run("claude", "install", "--in-project", "--yes")
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True)
    assert status.stdout == ""
    assert (user / "project" / ".claude" / "skills" / "hippocube" / "hooks" / "hook.py").exists()
    run("claude", "uninstall", "--in-project", "--yes")
    assert not (user / "project" / ".claude").exists()


def test_a_folder_of_that_name_that_is_not_ours_is_left_alone(user: Path) -> None:
    folder = user / ".claude" / "skills" / "hippocube"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("mine", encoding="utf-8")
    before = tree(user)
    assert "is not the plugin of hippocube" in run("claude", "install", "--yes", code=2).output
    run("claude", "uninstall", "--yes", code=3)
    assert tree(user) == before


def test_the_status_says_what_is_wrong(user: Path) -> None:
    assert "not installed" in run("claude", "status", code=1).output
    run("claude", "install", "--yes", "--data-dir", str(user / "memory"))
    told = json.loads(run("claude", "status", "--json").stdout)
    assert (told["installed"], told["current"], told["unsent"]) == (True, True, 0)
    assert told["reach"] == "no server runs; each session opens it itself"
    hook = user / ".claude" / "skills" / "hippocube" / "hooks" / "hook.py"
    hook.write_text("# changed", encoding="utf-8")
    assert json.loads(run("claude", "status", "--json", code=1).stdout)["current"] is False
    run("claude", "install", "--yes")
    run("claude", "install", "--yes", "--url", "http://127.0.0.1:9")
    assert "MEMOS_API_KEY is not set" in json.loads(run("claude", "status", "--json", code=1).stdout)["reach"]
    told = json.loads(run("claude", "status", "--json", code=1, MEMOS_API_KEY=KEY).stdout)
    assert "does not answer" in told["reach"]


def test_what_waits_is_said_before_the_plugin_goes(user: Path) -> None:
    run("claude", "install", "--yes", "--data-dir", str(user / "memory"))
    transcript = user / "talk.jsonl"
    entry = {"type": "user", "uuid": "u1", "timestamp": "2026-01-02T03:04:05Z", "message": {"content": "I keep bees."}}
    transcript.write_text(json.dumps(entry) + "\n", encoding="utf-8")
    state = user / ".claude" / "skills" / "hippocube" / "state" / "s.json"
    state.parent.mkdir()
    state.write_text(json.dumps({"transcript": str(transcript), "offset": 0, "since": ""}), encoding="utf-8")
    os.utime(transcript, (0, 0))
    assert json.loads(run("claude", "status", "--json").stdout)["unsent"] == 1
    assert "1 sessions have messages that are not stored" in run("claude", "uninstall", typed="y\n").output
