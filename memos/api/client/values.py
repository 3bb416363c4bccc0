"""The values of results: models, loaded with pydantic when one is first used.

Loading them takes longer than everything else that a client imports, and a program may need no client for a while.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memos.api.client.openmem_answers import *  # noqa: F403
    from memos.api.values import *  # noqa: F403


@cache
def _models() -> dict[str, Any]:
    from memos.api import values  # noqa: PLC0415 - lazy on purpose, see above
    from memos.api.client import openmem_answers  # noqa: PLC0415

    modules = (openmem_answers, values)
    return {
        name: model
        for module in modules
        for name, model in vars(module).items()
        if isinstance(model, type) and model.__module__ == module.__name__ and not name.startswith("_")
    }


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_models())
    if not name.startswith("_") and name in _models():
        return _models()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_models()})
