"""The plugin in the real Claude Code, each prompt in a process of its own, over a scripted API on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest

from memos import MemOS
from memos.api.app import create_app
from memos.api.local.sharing import in_background
from memos.api.serving import first_key
from memos.core.types import LOCAL_OWNER
from tests.api.running import running
from tests.support.servers.anthropic_api import AnthropicApi, Block, Script, say, texts_of, use

CLI = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
SECRET = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"
PLUGIN = Path(".claude") / "skills" / "hippocube"


@dataclass(frozen=True)
class Ran:
    """A run of Claude Code: its answer, what the model was given, and what it told the user beside the answer."""

    answer: str
    prompt: str
    notes: str
    session: str


@dataclass(frozen=True)
class Person:
    """Somebody with a home folder of their own, who uses Claude Code."""

    home: Path

    def memos(self, *arguments: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "memos", *arguments]
        return subprocess.run(
            command, cwd=self.folder(), env=self.env(**env), capture_output=True, text=True, check=check, timeout=120
        )

    def install(self, *options: str) -> None:
        # As long as the slowest machine for tests needs for its first search.
        self.memos("claude", "install", "--yes", "--timeout-s", "30", *options)

    def claude(
        self, prompt: str, *options: str, script: Script = lambda _: say("I see."), folder: str = "work", **env: str
    ) -> Ran:
        with AnthropicApi(script) as api:
            env = self.env(ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-scripted", **env)
            command = [str(CLI), "-p", prompt, "--output-format", "stream-json", "--verbose", *options]
            done = subprocess.run(
                command,
                cwd=self.folder(folder),
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=True,
                timeout=300,
            )
            told = [json.loads(line) for line in done.stdout.splitlines()]
            [*_, result] = [each for each in told if each["type"] == "result"]
            notes = "\n".join(str(each) for each in told if each["type"] == "system")
            return Ran(result["result"], texts_of(api.requests[-1]), notes, result["session_id"])

    def folder(self, name: str = "work") -> Path:
        folder = self.home / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def env(self, **more: str) -> dict[str, str]:
        """Return an environment with nothing of this machine but its programs."""
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1"}
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], **quiet, **more}


@pytest.fixture
def ana(tmp_path: Path) -> Person:
    return Person(tmp_path / "ana")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    home = tmp_path_factory.mktemp("served")
    with (
        MemOS.open(home) as memos,
        in_background(home, lambda token, stopping: create_app(memos, local_token=token, stopping=stopping)),
    ):
        yield memos


def said_in(memos: MemOS, session: str, cube: str, actor: str = LOCAL_OWNER) -> list[str]:
    found = memos.memories.list(cube=cube, actor=actor, filter={"conversation": f"claude-code/{session}"})
    return [item.memory for item in reversed(found)] if found and found[0].position else [item.memory for item in found]


def test_a_fact_of_one_session_is_in_the_prompt_of_the_next_of_the_same_user(
    served: MemOS, ana: Person, tmp_path: Path
) -> None:
    ana.install("--data-dir", str(served.home), "--user", "ana")
    first = ana.claude(f"My parrot is called Hugo. My token is {SECRET}.")
    assert first.answer == "I see."
    assert said_in(served, first.session, "ana", "ana") == [
        "My parrot is called Hugo. My token is [masked: github token].", "I see."
    ]  # fmt: skip
    second = ana.claude("What is my parrot called?", script=lambda _: say("Hugo."), folder="elsewhere")
    assert "My parrot is called Hugo." in second.prompt
    ben = Person(tmp_path / "ben")
    ben.install("--data-dir", str(served.home), "--user", "ben")
    assert "Hugo" not in ben.claude("What is my parrot called?").prompt


def test_a_resumed_and_a_forked_session_store_what_is_new_alone(served: MemOS, ana: Person) -> None:
    ana.install("--data-dir", str(served.home), "--user", "cleo")
    first = ana.claude("I keep bees.")
    again = ana.claude("I also keep hens.", "--resume", first.session)
    assert again.session == first.session
    assert said_in(served, first.session, "cleo", "cleo") == ["I keep bees.", "I see.", "I also keep hens.", "I see."]
    fork = ana.claude("And a goat.", "--resume", first.session, "--fork-session")
    assert fork.session != first.session
    assert said_in(served, fork.session, "cleo", "cleo") == ["And a goat.", "I see."]


def test_projects_are_apart_by_their_git_remote_and_what_tools_did_is_stored_without_output(
    served: MemOS, ana: Person
) -> None:
    ana.install("--data-dir", str(served.home), "--user", "dora", "--scope", "project")
    for folder, remote in (
        ("notes", "https://dora:secret@github.com/dora/Notes.git"), ("copy", "git@github.com:dora/notes"),
        ("other", "https://example.com/other.git"),
    ):  # fmt: skip
        for command in (["init", "-q"], ["remote", "add", "origin", remote]):
            subprocess.run(["git", *command], cwd=ana.folder(folder), check=True, env=ana.env())

    def script(body: dict[str, Any]) -> Block:
        steps = [
            use("Bash", command="cat /nowhere; false", description="look"),
            use("Write", file_path=str(ana.folder("notes") / "deploy.md"), content="the text"),
        ]
        done = sum(message["role"] == "assistant" for message in body["messages"])
        return steps[done] if done < len(steps) else say("Done.")

    ran = ana.claude("We deploy on Fridays.", "--allowedTools", "Bash,Write", script=script, folder="notes")
    cube = "dora/github.com/dora/notes"
    stored = said_in(served, ran.session, cube, "dora")
    assert stored == ["We deploy on Fridays.", "Done.", "Edited deploy.md. Ran `cat /nowhere; false` (failed)."]
    assert "on Fridays" in ana.claude("When do we deploy?", folder="copy").prompt
    assert "on Fridays" not in ana.claude("When do we deploy?", folder="other").prompt


def test_subagents_are_told_who_the_user_is_and_what_they_say_is_not_stored_as_the_users(
    served: MemOS, ana: Person
) -> None:
    ana.install("--data-dir", str(served.home), "--user", "emil")
    served.users.create("emil")
    served.memories.add("I am allergic to peanuts.", cube="emil", actor="emil")
    item = served.memories.list(cube="emil", actor="emil")[0]
    served.tiers.pin(item.id, cube="emil", actor="emil")
    seen: list[str] = []

    def script(body: dict[str, Any]) -> Block:
        text = texts_of(body)
        if "Look for nuts." in text and "Ask somebody." not in text:
            seen.append(text)
            return say("No nuts here.")
        asked = any(message["role"] == "assistant" for message in body["messages"])
        task = use("Agent", description="nuts", prompt="Look for nuts.", subagent_type="general-purpose")
        return say("Nothing found.") if asked else task

    ran = ana.claude("Ask somebody.", script=script)
    assert "allergic to peanuts" in seen[0]
    assert set(said_in(served, ran.session, "emil", "emil")) == {"Ask somebody.", "Nothing found."}


def test_with_memory_away_the_session_works_and_says_so_and_is_stored_later(
    ana: Person, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with MemOS.open(tmp_path_factory.mktemp("away")) as memos, free_port() as (port, listen):
        key = str(first_key(memos))
        ana.install("--url", f"http://127.0.0.1:{port}")
        first = ana.claude("My parrot is called Hugo.", MEMOS_API_KEY=key)
        assert first.answer == "I see."
        assert "memory is away" in first.notes
        assert "Long-term memory cannot be reached now" in first.prompt
        assert json.loads(ana.memos("claude", "status", "--json", check=False).stdout)["unsent"] == 1
        with listen(memos):
            second = ana.claude("What is the time?", MEMOS_API_KEY=key)
            assert "memory is away" not in second.notes
            assert said_in(memos, first.session, "admin", "admin") == ["My parrot is called Hugo.", "I see."]
            status = json.loads(ana.memos("claude", "status", "--json", MEMOS_API_KEY=key).stdout)
            assert (status["unsent"], status["reached"]) == (0, True)
        files = [path for path in ana.home.rglob("*") if path.is_file() and "projects" not in path.parts]
        assert not [path for path in files if key.encode() in path.read_bytes()]


@contextmanager
def free_port() -> Iterator[tuple[int, Callable[[MemOS], Any]]]:
    """Yield a port on which nothing listens, and a function that serves an installation there."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    yield port, lambda memos: running(memos, port=port)


def test_without_a_server_the_sessions_own_mcp_server_opens_the_memory(ana: Person, tmp_path: Path) -> None:
    home = tmp_path / "memory"
    ana.install("--data-dir", str(home))
    tool = "mcp__plugin_hippocube_memory__add_memory"

    def script(body: dict[str, Any]) -> Block:
        if '"duplicates"' in texts_of(body):
            return say("Stored.")
        asked = [message for message in body["messages"] if message["role"] == "assistant"]
        # It is there a few seconds after the session began.
        step = use("Bash", command="sleep 1", description="wait") if len(asked) % 2 else use(tool, text="I keep bees.")
        return step if len(asked) < 120 else say("The tool never came.")

    ran = ana.claude("I live in Lyon.", "--allowedTools", f"Bash,{tool}", script=script)
    assert ran.answer == "Stored."
    with MemOS.open(home) as memos:
        stored = {item.memory for item in memos.memories.list(limit=100)}
    assert {"I keep bees.", "I live in Lyon.", "Stored."} <= stored


def test_a_plugin_whose_python_is_gone_stops_nothing(served: MemOS, ana: Person) -> None:
    ana.install("--data-dir", str(served.home))
    hooks = ana.home / PLUGIN / "hooks" / "hooks.json"
    hooks.write_text(hooks.read_text(encoding="utf-8").replace(sys.executable, "/nowhere/python"), encoding="utf-8")
    assert ana.claude("Hello there, who are you?").answer == "I see."


def test_uninstalling_after_a_session_leaves_nothing_of_the_plugin(served: MemOS, ana: Person) -> None:
    ana.claude("Hello.")  # what Claude Code keeps itself
    ana.install("--data-dir", str(served.home), "--user", "finn")
    ana.claude("I live in Lyon.")
    ana.memos("claude", "uninstall", "--yes")
    left = [path for path in ana.home.rglob("*") if "projects" not in path.parts and "backups" not in path.parts]
    assert [path for path in left if "hippocube" in path.name] == []
    assert [path for path in left if path.is_file() and b"hippocube" in path.read_bytes()] == []
    assert "hippocube" not in ana.claude("Hello again.").prompt


def test_claude_code_finds_the_plugin_valid_and_connects_to_its_server(served: MemOS, ana: Person) -> None:
    ana.install("--data-dir", str(served.home))
    ana.memos("mcp", "install", "claude-code", "--yes", "--data-dir", str(served.home))
    for arguments, expected in (
        (["plugin", "validate", "--strict", str(ana.home / PLUGIN)], "Validation passed"),
        (["mcp", "get", "hippocube"], "Connected"),
    ):
        done = subprocess.run(
            [str(CLI), *arguments],
            cwd=ana.folder(),
            env=ana.env(ANTHROPIC_API_KEY="sk-ant-scripted"),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert expected in done.stdout, done.stdout + done.stderr
