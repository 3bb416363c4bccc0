"""Who may do what, and how much of it."""

__all__ = ["audit", "guard", "service", "sessions"]
