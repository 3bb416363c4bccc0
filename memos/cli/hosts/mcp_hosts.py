"""The MCP hosts that are known: where their configuration files are, and what an entry looks like in each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memos.errors import InvalidInput, shown

NAME = "hippocube"
"""What the entry is called in each host."""

KEY_VARIABLE = "MEMOS_API_KEY"

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """Which memory a host is to use: a program that it starts, or a server elsewhere.

    Attributes:
        command: The program and its arguments.
        url: The address of a server's MCP endpoint, in place of the program.
        key: The API key for it, for hosts that cannot take it from the environment; None for those of a project.
    """

    command: tuple[str, ...] = ()
    url: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """A host's file of rules: `own` if it is for one set of rules, else one that others write to too."""

    path: Callable[[], Path]
    own: bool = False
    head: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its files for a user and for a project, and how memory is entered in them.

    Attributes:
        title: Its name.
        user: Returns its file for the user.
        project: The path of its file in a project, None if it has none.
        path: The way to the entries in its file.
        program: Fields of each entry of a program.
        server: Fields of each entry of a server.
        url: The field with a server's address, None if its file takes programs alone.
        variable: How its file names an environment variable, None if it cannot.
        toml: The file is TOML, not JSON.
        starts_in_project: The programs that it starts have the project as their working directory.
        user_rules: Its rules for the user.
        project_rules: Its rules in a project.
    """

    title: str
    user: Callable[[], Path]
    project: str | None
    path: tuple[str, ...] = ("mcpServers",)
    program: Entry = field(default_factory=dict)
    server: Entry = field(default_factory=dict)
    url: str | None = "url"
    variable: str | None = "${env:%s}"
    toml: bool = False
    starts_in_project: bool = False
    user_rules: Rules | None = None
    project_rules: Rules | None = None

    def file(self, *, in_project: bool) -> Path:
        """Return the configuration file. Raises: InvalidInput."""
        if not in_project:
            return self.user()
        if self.project is None:
            raise InvalidInput("--in-project", f"{self.title} has no configuration file in projects; leave it out")
        return Path.cwd() / self.project

    def entry(self, memory: Memory) -> Entry:
        """Return the entry for memory. Raises: InvalidInput (this host cannot use that memory)."""
        if memory.url is None:
            return {**self.program, "command": memory.command[0], "args": list(memory.command[1:])}
        if self.url is None:
            raise InvalidInput(
                "--url", f"the file of {self.title} takes programs alone; enter the server in its settings"
            )
        if self.toml:
            return {self.url: memory.url, "bearer_token_env_var": KEY_VARIABLE}
        key = memory.key if self.variable is None else self.variable % KEY_VARIABLE
        if key is None:
            raise InvalidInput(
                KEY_VARIABLE,
                f"must be set, and --in-project left out: {self.title} reads no variables, so the key has to stand in "
                "its file, which must not be one of a project",
            )
        return {**self.server, self.url: memory.url, "headers": {"Authorization": f"Bearer {key}"}}


def host_named(name: str) -> Host:
    """Return a host. Raises: InvalidInput."""
    if name not in HOSTS:
        raise InvalidInput("client", f"{shown(name)} is unknown; use one of {', '.join(HOSTS)}")
    return HOSTS[name]


# Places


def _home(*parts: str) -> Callable[[], Path]:
    return lambda: Path.home().joinpath(*parts)


def _application_data(*parts: str) -> Callable[[], Path]:
    """Return where an application keeps its data: by the conventions of macOS, Windows, or XDG."""

    def place() -> Path:
        if sys.platform == "darwin":
            return Path.home().joinpath("Library", "Application Support", *parts)
        if sys.platform == "win32":
            return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming").joinpath(*parts)
        return _xdg_config().joinpath(*parts)

    return place


def _xdg_config() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def claude_folder() -> Path:
    """Return the folder of Claude Code's settings, skills and transcripts."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")


def _claude_code() -> Path:
    configured = os.environ.get("CLAUDE_CONFIG_DIR")
    return Path(configured) / ".claude.json" if configured else Path.home() / ".claude.json"


def _codex(name: str) -> Callable[[], Path]:
    return lambda: Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / name


def _zed() -> Path:
    if sys.platform == "win32":
        return _application_data("Zed", "settings.json")()
    return (_xdg_config() if sys.platform == "linux" else Path.home() / ".config") / "zed" / "settings.json"


def _here(*parts: str) -> Callable[[], Path]:
    return lambda: Path.cwd().joinpath(*parts)


_CURSOR_HEAD = "---\ndescription: Long-term memory\nalwaysApply: true\n---\n\n"
_WINDSURF_HEAD = "---\ntrigger: always_on\n---\n\n"

HOSTS: Mapping[str, Host] = MappingProxyType(
    {
        "claude-code": Host(
            "Claude Code",
            _claude_code,
            ".mcp.json",
            program={"type": "stdio"},
            server={"type": "http"},
            variable="${%s}",
            starts_in_project=True,
            user_rules=Rules(lambda: claude_folder() / "CLAUDE.md"),
            project_rules=Rules(_here("CLAUDE.md")),
        ),
        "claude-desktop": Host(
            "Claude Desktop", _application_data("Claude", "claude_desktop_config.json"), None, url=None
        ),
        "cursor": Host(
            "Cursor",
            _home(".cursor", "mcp.json"),
            ".cursor/mcp.json",
            project_rules=Rules(_here(".cursor", "rules", f"{NAME}.mdc"), own=True, head=_CURSOR_HEAD),
        ),
        "codex": Host(
            "Codex",
            _codex("config.toml"),
            ".codex/config.toml",
            path=("mcp_servers",),
            toml=True,
            starts_in_project=True,
            user_rules=Rules(_codex("AGENTS.md")),
            project_rules=Rules(_here("AGENTS.md")),
        ),
        "gemini": Host(
            "Gemini CLI",
            _home(".gemini", "settings.json"),
            ".gemini/settings.json",
            url="httpUrl",
            variable="${%s}",
            starts_in_project=True,
            user_rules=Rules(_home(".gemini", "GEMINI.md")),
            project_rules=Rules(_here("GEMINI.md")),
        ),
        "cline": Host(
            "Cline",
            _application_data(
                "Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json"
            ),
            None,
            program={"disabled": False},
            server={"type": "streamableHttp", "disabled": False},
            variable=None,
            user_rules=Rules(_home("Documents", "Cline", "Rules", f"{NAME}.md"), own=True),
            project_rules=Rules(_here(".clinerules", f"{NAME}.md"), own=True),
        ),
        "zed": Host(
            "Zed",
            _zed,
            ".zed/settings.json",
            path=("context_servers",),
            program={"source": "custom", "env": {}},
            variable=None,
            project_rules=Rules(_here("AGENTS.md")),
        ),
        "vscode": Host(
            "VS Code",
            _application_data("Code", "User", "mcp.json"),
            ".vscode/mcp.json",
            path=("servers",),
            program={"type": "stdio"},
            server={"type": "http"},
            project_rules=Rules(_here("AGENTS.md")),
        ),
        "windsurf": Host(
            "Windsurf",
            _home(".codeium", "windsurf", "mcp_config.json"),
            None,
            url="serverUrl",
            user_rules=Rules(_home(".codeium", "windsurf", "memories", "global_rules.md")),
            project_rules=Rules(_here(".windsurf", "rules", f"{NAME}.md"), own=True, head=_WINDSURF_HEAD),
        ),
    }
)
"""The hosts by the names that commands take."""
