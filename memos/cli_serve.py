"""`memos serve`: runs the server on an installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.cli_shared import DataDir, errors, say
from memos.errors import InvalidInput
from memos.settings import Settings

Config = Annotated[
    Path | None, typer.Option(help="TOML file of settings (default: MEMOS_CONFIG); the environment goes before it")
]

serve_app = typer.Typer(rich_markup_mode=None)


@serve_app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: MEMOS_SERVER__HOST)")] = None,
    port: Annotated[int | None, typer.Option(help="Port (default: MEMOS_SERVER__PORT); 0 takes a free one")] = None,
    config: Config = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error (default: MEMOS_SERVER__LOG_LEVEL)")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Serve memory over HTTP until interrupted; the first start prints an admin's key, once."""
    try:
        from memos import serving  # noqa: PLC0415 - the extra `server`
        from memos.api import logs  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput("serve", "needs the extra `server`: pip install 'memstrata-os[server]'") from error
    settings = settings_of(config)
    given = {
        name: value for name, value in (("host", host), ("port", port), ("log_level", log_level)) if value is not None
    }
    server = settings.server.model_validate({**settings.server.model_dump(), **given})

    def announce(started: serving.Started) -> None:
        say(f"memstrata serves on {started.url}")
        if started.key is not None:
            say(f"Key of the admin, shown this once: {started.key}")
        if not started.loopback:
            errors.print("Others can reach this address: put TLS in front of it (docs/deploy.md).", soft_wrap=True)

    logs.to_stream(server.log_level)
    serving.serve(data_dir, settings.model_copy(update={"server": server}), announce)


def settings_of(config: Path | None) -> Settings:
    """Return the settings, of a file too if one is named here or in the environment."""
    return Settings() if config is None else Settings(config=config)
