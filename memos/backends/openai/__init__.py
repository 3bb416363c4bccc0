"""Chat models behind OpenAI-compatible endpoints."""

__all__ = ["chat", "metrics"]
