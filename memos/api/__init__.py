"""HTTP, MCP, proxies for language models, dialects of other programs, and clients."""

__all__ = ["endpoint", "local", "mcp", "observability", "serialization", "serving"]
