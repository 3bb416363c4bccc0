"""`/hooks`: what the hooks of coding agents ask, and the programs they run."""

__all__ = ["plugin"]
