"""Facts found in messages, by pattern or by a model."""

__all__ = ["extractor", "llm", "skills"]
