"""Exports of other programs: a module for each program or family of them, from files to messages. Knows no cubes."""

__all__ = ["base", "formats", "memoryos", "sources"]
