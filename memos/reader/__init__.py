"""Turns messages, documents and exports of chats into drafts of memories."""
