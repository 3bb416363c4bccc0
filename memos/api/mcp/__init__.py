"""Memory as tools of the Model Context Protocol, over HTTP at `/mcp` and on standard input and output."""

PATH = "/mcp"

__all__ = ["greeting", "stdio"]
