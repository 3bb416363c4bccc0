"""Activation memory: the attention KV of text that stands at the beginning of prompts, kept in blocks."""

__all__ = ["blocks", "prefill", "store"]
