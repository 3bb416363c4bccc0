"""HTTP, MCP, an OpenAI proxy, dialects of other programs, and clients."""

__all__ = ["client", "endpoint", "hooks", "local", "mcp", "observability", "serialization", "serving"]
