"""Encryption at rest of an embedded installation: its keys, files sealed with them, and folders kept in memory."""

__all__ = ["files", "keys", "ledger_keys", "opening", "vault"]
