"""Write, check and load a cube as a `.memcube` file."""

__all__ = ["adapters", "container", "ids", "kv", "load", "parts", "vectors"]
