"""hippocube: a self-hosted memory operating system for LLM agents.

`MemOS` is the one object every program starts from; it is loaded on first use, so that light
parts (errors, values, child processes) import without numpy or an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memos.version import __version__

if TYPE_CHECKING:
    from memos.core.settings import Settings
    from memos.kernel.memos import MemOS

__all__ = ["MemOS", "Settings", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "MemOS":
        from memos.kernel.memos import MemOS  # noqa: PLC0415 - lazy on purpose, see above

        return MemOS
    if name == "Settings":
        from memos.core.settings import Settings  # noqa: PLC0415

        return Settings
    raise AttributeError(f"module 'memos' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
