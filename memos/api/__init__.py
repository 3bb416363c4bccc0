"""HTTP, MCP, proxies for language models, dialects of other programs, and clients."""

__all__ = ["client", "endpoint", "hooks", "local", "mcp", "observability", "serialization", "serving"]
