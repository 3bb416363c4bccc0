"""Chat models of transformers in this process."""

__all__ = ["loading", "models"]
