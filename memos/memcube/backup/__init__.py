"""Whole installations as files: backup, restore and migration."""

__all__ = ["archive", "backups", "files", "restore", "rows"]
