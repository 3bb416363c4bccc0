"""Caches of what was read from texts; an erasure empties them, since their keys are the texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

_Result = TypeVar("_Result")
_CACHES: list[_lru_cache_wrapper[Any]] = []


def cached_by_text(
    maxsize: int,
) -> Callable[[Callable[[str], _Result]], _lru_cache_wrapper[_Result]]:
    """Return a decorator like `functools.lru_cache` for functions of a text, which `forget_texts` knows."""

    def decorate(function: Callable[[str], _Result]) -> _lru_cache_wrapper[_Result]:
        cached = lru_cache(maxsize=maxsize)(function)
        _CACHES.append(cached)
        return cached

    return decorate


def forget_texts() -> None:
    """Empty the caches of this process."""
    for cached in _CACHES:
        cached.cache_clear()
