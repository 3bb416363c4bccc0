"""Training of LoRA adapters in a child process."""

__all__ = ["trainer"]
