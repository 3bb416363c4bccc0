"""Calls of `MemOS` from other processes of the same person."""

__all__ = ["client"]
