"""Turns messages, documents and exports of chats into drafts of memories."""

__all__ = ["arguments", "documents", "facts", "images", "importers", "masking", "messages", "preview"]
