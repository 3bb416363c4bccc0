"""One cube as a `.memcube` file: written, checked and loaded."""

__all__ = ["adapters", "container", "ids", "kv", "load", "parts", "vectors"]
