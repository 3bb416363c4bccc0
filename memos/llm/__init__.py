"""Questions to language models: validated answers, a cache of them, and what they cost."""

__all__ = ["client", "examination", "usage"]
