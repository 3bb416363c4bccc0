"""Answers made with memory: what is recalled and shown to a model, what its answer cites, and what is stored of it."""

__all__ = ["chat", "results"]
