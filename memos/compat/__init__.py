"""Classes and files of other memory programs, over this storage."""

__all__ = ["importing"]
