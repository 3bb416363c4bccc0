"""`memos serve` and `memos work`: run the server, or only background tasks, on an installation."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memos.cli.shared import DataDir, errors, say
from memos.core.settings import Settings
from memos.core.types import LOCAL_OWNER
from memos.errors import InvalidInput

# `memos mcp`: memory as tools of the Model Context Protocol, on standard input and output.

mcp_app = typer.Typer(rich_markup_mode=None)


@mcp_app.command()
def mcp(
    user: Annotated[str, typer.Option(help="User or agent to act for")] = LOCAL_OWNER,
    all_tools: Annotated[bool, typer.Option("--all-tools", help="Show every tool, not only the everyday five")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only tools that read")] = False,
    data_dir: DataDir = None,
) -> None:
    """Serve memory to one program that speaks MCP, until it closes standard input."""
    try:
        from memos.api.mcp import stdio  # noqa: PLC0415 - the extra `server`
    except ImportError as error:
        raise InvalidInput("mcp", "needs the extra `server`: pip install '.[server]' in the clone") from error
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    stdio.run(data_dir, user, all_tools=all_tools, read_only=read_only)


if TYPE_CHECKING:
    from memos.api.serving import Started

Config = Annotated[
    Path | None, typer.Option(help="TOML file of settings (default: MEMOS_CONFIG); the environment goes before it")
]

LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error (default: MEMOS_SERVER__LOG_LEVEL)")]

serve_app = typer.Typer(rich_markup_mode=None)


@serve_app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: MEMOS_SERVER__HOST)")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port (default: MEMOS_SERVER__PORT); 0 takes a free one")
    ] = None,
    config: Config = None,
    log_level: LogLevel = None,
    data_dir: DataDir = None,
) -> None:
    """Serve memory over HTTP until interrupted; the first start prints an admin's key, once."""
    serving = _serving()
    settings = _settings(config, host=host, port=port, log_level=log_level)

    def announce(started: Started) -> None:
        say(f"hippocube serves on {started.url}")
        if started.key is not None:
            say(f"Key of the admin, shown this once: {started.key}")
        if not started.loopback:
            errors.print("Others can reach this address: put TLS in front of it (docs/deploy.md).", soft_wrap=True)

    serving.serve(data_dir, settings, announce)


@serve_app.command()
def work(config: Config = None, log_level: LogLevel = None, data_dir: DataDir = None) -> None:
    """Run background tasks until interrupted, beside servers on the same PostgreSQL; it listens nowhere."""
    serving, settings = _serving(), _settings(config, log_level=log_level)
    serving.work(data_dir, settings, lambda place: say(f"hippocube works on {place}"))


def _serving() -> ModuleType:
    try:
        from memos.api import serving  # noqa: PLC0415 - the extra `server`
    except ImportError as error:
        raise InvalidInput("serve", "needs the extra `server`: pip install '.[server]' in the clone") from error
    return serving


def _settings(config: Path | None, **flags: Any) -> Settings:
    """Return the settings with what flags say of the server, and log as they say."""
    from memos.api import observability as logs  # noqa: PLC0415 - the extra `server`

    settings = settings_of(config)
    given = {name: value for name, value in flags.items() if value is not None}
    server = settings.server.model_validate({**settings.server.model_dump(), **given})
    logs.to_stream(server.log_level)
    return settings.model_copy(update={"server": server})


def settings_of(config: Path | None) -> Settings:
    """Return the settings, of a file too if one is named here or in the environment."""
    return Settings() if config is None else Settings(config=config)
