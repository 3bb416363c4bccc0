"""Chat exports: one module a format, each from one entry of a file to the messages in it. Knows nothing of cubes."""

__all__ = ["base", "formats", "memoryos"]
