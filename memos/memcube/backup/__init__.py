"""Whole installations as files: backup, restore and migration."""
