"""Memory for agent frameworks: one module each, over one `AgentMemory`. This package imports no framework."""

from memos.integrations.memory import (
    RECALL_TOOL,
    REMEMBER_TOOL,
    AgentMemory,
    Failure,
    Owner,
    Recalled,
    Remembered,
    missing_extra,
)

__all__ = [
    "RECALL_TOOL",
    "REMEMBER_TOOL",
    "AgentMemory",
    "Failure",
    "Owner",
    "Recalled",
    "Remembered",
    "missing_extra",
]
