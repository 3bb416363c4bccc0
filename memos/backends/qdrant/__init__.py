"""The vector index: Qdrant, embedded and as a server."""
