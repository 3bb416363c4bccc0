"""`/hooks`: what the hooks of coding agents ask, and the programs they run."""

from memos.api.hooks.routes import create

__all__ = ["create", "plugin"]
