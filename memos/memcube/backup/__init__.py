"""Whole installations as files: backup, restore and migration."""

__all__ = ["archive", "backups", "files", "places", "restore", "rows"]
