"""`memos mcp`: memory as tools of the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from memos.cli.shared import DataDir
from memos.core.settings import Settings
from memos.core.types import LOCAL_OWNER
from memos.errors import InvalidInput

mcp_app = typer.Typer(rich_markup_mode=None)


@mcp_app.command()
def mcp(
    user: Annotated[str, typer.Option(help="User or agent to act for")] = LOCAL_OWNER,
    data_dir: DataDir = None,
) -> None:
    """Serve memory to one program that speaks MCP, until it closes standard input."""
    try:
        from memos.api.auth import local_caller, who  # noqa: PLC0415 - the extra `server`
        from memos.api.local.sharing import Reached  # noqa: PLC0415
        from memos.api.mcp import stdio  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput("mcp", "needs the extra `server`: pip install '.[server]' in the clone") from error
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    with Reached(data_dir, Settings()) as reached:
        memos = reached()
        whose = who(memos, local_caller(memos), None if user == LOCAL_OWNER else user)
        stdio.run(reached, whose, reached.close)
