"""Programs of the Claude Code plugin: copied into its folder, they run there without hippocube."""

__all__ = ["ask_memory"]
