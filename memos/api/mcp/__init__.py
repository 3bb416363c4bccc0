"""Memory as tools of the Model Context Protocol, over HTTP at `/mcp` and on standard input and output."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from memos.errors import BackendUnavailable

PATH = "/mcp"

__all__ = ["stdio"]


def check_installed() -> None:
    """Raise an error that says what to install if the extra `mcp` is missing, or the package `mcp` is too old.

    Raises: BackendUnavailable.
    """
    if all(find_spec(name) for name in ("mcp", "mcp_types", "fastapi")):  # `mcp_types` comes with mcp 2
        return
    try:
        told = f" (version 2 or newer of the package `mcp`; {version('mcp')} is installed)"
    except PackageNotFoundError:
        told = ""
    raise BackendUnavailable(f"MCP needs the extra `mcp`: pip install '.[mcp]' in the clone{told}.", permanent=True)
