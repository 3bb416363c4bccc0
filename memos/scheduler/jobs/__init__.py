"""What each kind of background task does, one module a kind."""

__all__ = ["facts", "files", "prefix", "retention", "segments"]
