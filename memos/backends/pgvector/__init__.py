"""The vector index in PostgreSQL, with the extension pgvector."""

__all__ = ["index", "schema"]
