"""HTTP, MCP, an OpenAI proxy, dialects of other programs, and clients."""
