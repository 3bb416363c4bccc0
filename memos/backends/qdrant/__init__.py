"""The vector index: Qdrant, embedded and as a server."""

__all__ = ["embedded", "server"]
