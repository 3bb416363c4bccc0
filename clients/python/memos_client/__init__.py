"""The client of hippocube servers: `MemOSClient` and `AsyncMemOSClient`, with their results and errors.

The modules in `_memos` are copies of hippocube's, made when this distribution is built. Where hippocube is installed
in the same version, its own modules are used, so that a program that has both meets each class once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

from memos_client._memos.version import __version__


def _package() -> str:
    try:
        if version("hippocube") == __version__:  # otherwise `memos` may be a package of somebody else
            import_module("memos.api.client")
            return "memos"
    except ImportError:  # PackageNotFoundError is one
        pass
    return f"{__name__}._memos"


_client = import_module(f"{_package()}.api.client")
values = _client.values
errors = sys.modules[_client.MemosError.__module__]
sys.modules.update({f"{__name__}.values": values, f"{__name__}.errors": errors})
if errors.__name__ != "memos.errors":
    for _error in vars(errors).values():
        if isinstance(_error, type) and issubclass(_error, errors.MemosError):
            _error.__module__ = f"{__name__}.errors"  # the name that a traceback shows

__all__ = list(_client.__all__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
