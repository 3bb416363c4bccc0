"""Jobs of the background tasks, one module per kind of task."""

__all__ = ["facts", "files", "judge", "prefix", "retention", "segments"]
