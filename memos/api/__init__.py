"""The HTTP server, its route groups, the MCP server, and the clients of a server."""
