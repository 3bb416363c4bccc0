"""One cube as a `.memcube` file: written, checked and loaded."""

__all__ = ["adapters", "check", "container", "format", "ids", "kv", "load", "settle", "vectors", "write"]
