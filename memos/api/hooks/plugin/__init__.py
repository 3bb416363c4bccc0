"""What is copied into the folder of the Claude Code plugin, and runs there without hippocube."""

__all__ = ["ask_memory"]
