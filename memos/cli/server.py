"""Commands that run until a signal to stop: the server, a worker of background tasks, an MCP server."""

from __future__ import annotations

import logging
import sys
import webbrowser
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.api.hooks.plugin.ask_memory import project_of
from memos.api.mcp import check_installed
from memos.api.mcp.greeting import open_wire
from memos.cli.shared import DataDir, command, complain, say, settings_of
from memos.core.types import LOCAL_OWNER
from memos.errors import InvalidInput, shown

if TYPE_CHECKING:
    from memos.api.serving import Started
    from memos.core.settings import Settings

Config = Annotated[
    Path | None, typer.Option(help="TOML file of settings (default: MEMOS_CONFIG); the environment takes precedence")
]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error (default: MEMOS_SERVER__LOG_LEVEL)")]


@command(opens=False, has_json=False)
def mcp(
    user: Annotated[str, typer.Option(help="User or agent to act for")] = LOCAL_OWNER,
    all_tools: Annotated[
        bool, typer.Option("--all-tools", help="Offer all tools, not only the five for daily use")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only read-only tools")] = False,
    scope: Annotated[
        str,
        typer.Option(help="Memory of the user, or also of the project of the working directory (user or project)"),
    ] = "user",
    project: Annotated[
        str | None, typer.Option(help="Name of the project, such as github.com/ana/notes; implies its scope")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    if scope not in ("user", "project"):
        raise InvalidInput("--scope", f"must be user or project, got {shown(scope)}")
    check_installed()
    if scope == "project" and project is None:
        project = project_of(str(Path.cwd()))
    wire = open_wire()  # before what takes a second to import
    from memos.api.mcp import stdio  # noqa: PLC0415 - see above

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    stdio.run(wire, data_dir, user, project=project, all_tools=all_tools, read_only=read_only)


@command(opens=False, has_json=False)
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: MEMOS_SERVER__HOST)")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port (default: MEMOS_SERVER__PORT); 0 takes a free one")
    ] = None,
    config: Config = None,
    log_level: LogLevel = None,
    data_dir: DataDir = None,
) -> None:
    _serve(data_dir, _settings(config, host=host, port=port, log_level=log_level))


@command(opens=False, has_json=False)
def console(
    browser: Annotated[bool, typer.Option(help="Open the browser, or only print the address")] = True,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of a server that is started")] = None,
    config: Config = None,
    data_dir: DataDir = None,
) -> None:
    serving, settings = _serving(), _settings(config, port=port)
    link = serving.sign_in_link_of(data_dir or settings.home)
    if link is None:
        _serve(data_dir, settings, opens_browser=browser)
        return
    say(f"Console: {link}")
    if browser:
        webbrowser.open(link)


def _serve(data_dir: Path | None, settings: Settings, *, opens_browser: bool = False) -> None:
    def announce(started: Started) -> None:
        say(f"hippocube serves on {started.url}")
        if started.key is not None:
            say(f"Admin's API key, shown only once: {started.key}")
        say(f"Console: {started.sign_in}")
        if opens_browser:
            webbrowser.open(started.sign_in)
        if not started.loopback:
            complain("This address can be reached from other machines; put TLS in front of it (docs/how-to/deploy.md).")

    _serving().serve(data_dir, settings, announce)


@command(opens=False, has_json=False)
def work(config: Config = None, log_level: LogLevel = None, data_dir: DataDir = None) -> None:
    serving, settings = _serving(), _settings(config, log_level=log_level)
    serving.work(data_dir, settings, lambda place: say(f"hippocube works on {place}"))


def _serving() -> ModuleType:
    try:
        from memos.api import serving  # noqa: PLC0415 - the extra `server`
    except ImportError as error:
        raise InvalidInput("serve", "needs the extra `server`: pip install '.[server]' in the clone") from error
    return serving


def _settings(config: Path | None, **flags: Any) -> Settings:
    _serving()  # says so if the extra `server` is missing
    from memos.api import observability as logs  # noqa: PLC0415

    settings = settings_of(None, config)
    given = {name: value for name, value in flags.items() if value is not None}
    server = settings.server.model_validate({**settings.server.model_dump(), **given})
    logs.to_stream(server.log_level)
    return settings.model_copy(update={"server": server})
