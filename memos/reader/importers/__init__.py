"""Exports of other programs: a module for each program or family of them, from files to messages. Knows no cubes."""

__all__ = [
    "base", "chatgpt", "claude", "databases", "datasets", "formats", "gemini", "generic", "graphiti", "langgraph",
    "letta", "local_chats", "mem0", "memoryos", "mempalace", "notes", "slack", "sources", "stream", "telegram",
    "whatsapp",
]  # fmt: skip
