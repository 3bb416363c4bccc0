"""The code blocks of the pages, and a shell that types the commands of their console blocks.

`memos …` runs in this process, `curl` and the like in bash, against a server on loopback. What would install packages,
need a container, a model of gigabytes or another program is checked instead: words and options against the command
line, extras against `pyproject.toml`, targets against the Makefile, services against `docker-compose.yml`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from itertools import groupby, repeat
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from memos import MemOS, Settings
from memos.cli.app import app
from memos.cli.shared import settings_of
from tests.fakes import WordEmbedder

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("clients/*/README.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("deploy/**/*.md"),
    ]
    if "node_modules" not in page.parts
)


class Block(NamedTuple):
    """A fenced block; `info` is what stands behind its language."""

    page: str
    language: str
    info: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in their order, also those within lists."""
    found = re.findall(r"^( *)```(\S*) *(.*)\n((?:.*\n)*?)\1```", page.read_text(encoding="utf-8"), re.MULTILINE)
    name = str(page.relative_to(ROOT))
    return [
        Block(name, language, info, "".join(line[len(indent) :] for line in text.splitlines(keepends=True)))
        for indent, language, info, text in found
    ]


def commands_of(block: str) -> list[str]:
    """Return the commands of a console block, without `$`, comments and what was printed."""
    joined = block.replace("\\\n", " ")
    lines = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    return [re.sub(r"(^|\s+)#\s.*$", "", line).strip() for line in lines]


CHECKED = {
    r"memos serve|memos mcp(?! )|memos mcp --data-dir": "serves until it is stopped: tests/processes/test_running.py",
    r"memos console": "opens a browser: tests/processes/test_walk.py",
    r"memos task top": "draws until it is stopped: tests/cli/test_top.py",
    r"memos cube events --follow": "waits until it is stopped: tests/kernel/test_events.py",
    r"memos (mcp|claude) (install|uninstall|status)": "asks on a terminal: tests/cli/test_hosts.py",
    r"memos model (kv|adapter)": "needs PyTorch and a model: tests/models",
    r"memos import (http|bolt)": "reads a server of another program: tests/servers/test_imported_servers.py",
    r"memos data migrate": "needs servers: tests/servers/test_moving_to_servers.py",
    r"memos evaluate --embedder": "embeds everything again: tests/cli/test_evaluate.py",
}
"""Commands of which words and options are checked, but which are not run, and why; nor is what needs a server or a
model that was exported before, or what is an alternative to the line before (`# or: …`)."""

FOREIGN = {
    "$EDITOR": "a person edits",
    "cd": "the clone, or a folder in it",
    "createuser": "PostgreSQL's own",
    "createdb": "PostgreSQL's own",
    "git": "clones from elsewhere",
    "kubectl": "needs a cluster: tests/project/test_containers.py checks what it is given",
    "llama-server": "serves a model of gigabytes",
    "psql": "PostgreSQL's own",
    "pre-commit": "CONTRIBUTING.md says it is optional",
    "npm": "tests/processes/test_typescript.py",
    "scp": "copies to another machine",
    "sudo": "changes the machine",
    "sh": "installs packages of Debian",
    "vllm": "serves a model of gigabytes",
}
"""Other programs that pages name and tests do not run, and why."""

PASSPHRASE = "correct horse battery"
SHELL = ("alias", "ask", "cat", "chmod", "cp", "curl", "KEY=", "openssl", "set -a", "set +a", ". ")
"""What bash runs, commands that follow each other together."""


@dataclass
class Shell:
    """One page's terminal: its folder, what names on it stand for, how a server is reached, and what was exported."""

    folder: Path
    names: dict[str, Iterator[str]]
    served: Mapping[str, str]
    aliases: list[str] = field(default_factory=list)
    alternatives: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    def type(self, block: Block) -> None:
        """Run or check every command of a console block. Raises: AssertionError if one fails or nothing knows it."""
        for name, printed in re.findall(r"^\$ cat (\S+\.toml)\n((?:[^$\n].*\n)+)", block.text, re.MULTILINE):
            text = printed.replace("…", "left-out")
            (self.folder / name).write_text(text)
            assert settings_of(None, self.folder / name).model_fields_set >= tomllib.loads(text).keys()
        commands = [
            command
            for line in commands_of(block.text)
            for command in ([line] if line.startswith(SHELL) else re.split(r"\s*(?:;|&&)\s+", line))
        ]
        self.alternatives = re.findall(r"^\$ (.*?)\s+# or: ", block.text, re.MULTILINE)
        for is_bash, group in groupby(commands, self._is_bash):
            if is_bash:
                self._bash(list(group))
            else:
                for command in group:
                    self._type(command)
        self.check_settings()

    def _is_bash(self, command: str) -> bool:
        return command.startswith(SHELL) and not command.startswith(". .venv")

    def _type(self, command: str) -> None:
        words, env = _with_assignments(shlex.split(self._named(command)), self.env)
        program, arguments = words[0], words[1:]
        if program == "export":
            self.env |= dict(each.split("=", 1) for each in arguments)
        elif program == "unset":
            self.env = {name: value for name, value in self.env.items() if name not in arguments}
        elif program == "memos":
            self._memos(arguments, env, command)
        elif Path(program).name in CHECKS:
            CHECKS[Path(program).name](arguments)
        else:
            assert {program, Path(program).name} & FOREIGN.keys() or words == [".", ".venv/bin/activate"], (
                f"tests/support/pages.py does not know: {command}"
            )

    def _named(self, command: str) -> str:
        for name, values in self.names.items():
            whole = rf"(?<![\w$-]){re.escape(name)}" + (r"(?!\w)" if name[-1].isalnum() else "")
            if re.search(whole, command):
                command = re.sub(whole, next(values), command)
        command = re.sub(r"\$\((?:[^()]*)\)", "made", command)  # another command's output
        return command.replace("~/", f"{self.folder}/")

    def _memos(self, arguments: list[str], env: dict[str, str], command: str) -> None:
        arguments, target = (arguments[:-2], arguments[-1]) if arguments[-2:-1] == [">"] else (arguments, None)
        told = " ".join(["memos", *arguments])
        model = env.get("MEMOS_CHAT_MODEL__MODEL", "")
        elsewhere = "MEMOS_LEDGER_URL" in env or model.startswith("local:") or command in self.alternatives
        if elsewhere or any(re.match(each, told) for each in CHECKED):
            check_words(arguments)
            return
        # As a shell does where a pattern is not quoted.
        expanded = [
            name
            for each in arguments
            for name in (
                [path.name for path in sorted(self.folder.glob(each))] if each.count("*") == 1 != len(each) else [each]
            )
        ]
        answers = f"{PASSPHRASE}\n{PASSPHRASE}\n" if "sealed" in command else "y\n"
        home = {"HOME": str(self.folder), "MEMOS_HOME": str(self.folder / "home")}
        with pytest.MonkeyPatch.context() as changed:
            changed.chdir(self.folder)
            changed.setattr(MemOS, "open", partial(MemOS.open, embedder=WordEmbedder()))
            done = CliRunner(env={**home, **env}).invoke(app, expanded, input=answers, prog_name="memos")
        assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception!r}"
        if target is not None:
            (self.folder / target).write_text(done.stdout)
            if "id" in (printed := json.loads(done.stdout)):
                self.names["ID"] = repeat(printed["id"])  # of what was just made

    def check_settings(self) -> None:
        """Check what was exported. Raises: ValidationError."""
        with pytest.MonkeyPatch.context() as changed:
            for name, value in self.env.items():
                changed.setenv(name, value)
            Settings()

    def _bash(self, lines: list[str]) -> None:
        # Answers of 400 and more fail; a stream of events is cut off after a second.
        (self.folder / ".curlrc").write_text("fail-with-body\n")
        lines = [self._named(line) for line in lines]
        lines, self.aliases = [*self.aliases, *lines], [line for line in lines if line.startswith(("alias", "KEY="))]
        lines = [f"{line} --max-time 1 || test $? = 28" if "events/stream" in line else line for line in lines]
        script = "\n".join(["shopt -s expand_aliases", "set -eo pipefail", *lines])
        around = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.folder),
            **self.served,
            **self.env,
        }
        done = subprocess.run(
            ["/bin/bash", "-c", script],
            cwd=self.folder,
            env=around,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def check_words(arguments: list[str]) -> None:
    """Check a command's words, options and types against the command line, and run nothing. Raises: UsageError."""
    command: Any = get_command(app)
    context = command.make_context("memos", list(arguments))
    while hasattr(command, "resolve_command") and (rest := [*context._protected_args, *context.args]):
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, arguments
        context = command.make_context(name, rest, parent=context)


@cache
def _project() -> dict[str, Any]:
    made: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return made


def check_extras(arguments: list[str]) -> None:
    """Check that an installation names extras that are there, and packages that the project names itself."""
    text = " ".join(arguments[1:])
    for extras in re.findall(r"(?:\.|hippocube)\[([\w,-]+)\]", text):
        assert set(extras.split(",")) <= _project()["optional-dependencies"].keys(), text
    known = _makefile() + (ROOT / "docs/upgrading.md").read_text(encoding="utf-8")
    for word in text.split():
        assert word.startswith((".", "-", "hippocube", "path/to/")) or word in known, text


def check_targets(words: list[str]) -> None:
    """Check that targets of `make` are in the Makefile."""
    for word in words:
        assert "=" in word or re.search(rf"^{re.escape(word)}:", _makefile(), re.MULTILINE), word


@cache
def _makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def check_compose(arguments: list[str]) -> None:
    """Check files, profiles and services that `docker compose` is told."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    profiles = {profile for service in services.values() for profile in service.get("profiles", ())}
    assert arguments[0] == "compose"
    rest = iter(arguments[1:])
    for word in rest:
        if word == "--env-file":
            assert (ROOT / f"{next(rest)}.example").exists()
        elif word == "--profile":
            assert next(rest) in profiles
        elif word == "--scale":
            assert next(rest).partition("=")[0] in services
        else:
            known = {"up", "logs", "|", "grep", "key", *services}
            assert word in known or word in {"--detach", "--build", "--wait"}, arguments


def check_python(arguments: list[str]) -> None:
    """Check that a program is there, and that benchmarks have the options they are given."""
    if arguments[0] != "-m":
        assert (ROOT / arguments[0]).exists() or f"build/{arguments[0].split('/')[0]}" in _makefile(), arguments
    elif arguments[1].startswith("benchmarks."):
        assert find_spec(arguments[1]) is not None, arguments
        for option in arguments[2:]:
            assert not option.startswith("--") or f'"{option}"' in _benchmarks(), option
    else:
        assert arguments[1] in {"venv", "pytest"}, arguments


@cache
def _benchmarks() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py"))


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "docker": check_compose,
    "make": check_targets,
    "pip": check_extras,
    "python": check_python,
    "python3": check_python,
}
"""Programs whose arguments are checked."""


def _with_assignments(words: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return a command without what it sets for itself, and the environment with it."""
    env = dict(env)
    if words[0] == "env":
        words = words[1:]
    while words[0] == "-u":
        env.pop(words[1], None)
        words = words[2:]
    while re.match(r"[A-Z0-9_]+=", words[0]):
        name, _, value = words[0].partition("=")
        env[name] = value
        words = words[1:]
    return words, env
