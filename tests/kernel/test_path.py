"""How a call travels: down through the layers and back, through few modules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import memos as package
from memos import MemOS

ROOT = Path(package.__file__).parent
# Lowest first; packages of one line are independent of one another (pyproject.toml has the contract).
LAYERS = (
    ("errors", "version"),
    ("core",),
    ("llm", "backends"),
    ("memcube",),
    ("reader", "search"),
    ("scheduler",),
    ("kernel",),
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}

CALLBACKS = {
    # What a key may store is charged inside the transaction that stores it.
    ("memcube/changes.py", "kernel/access/quotas.py"),
    # The words of a question are looked up while the vector index works in its own process.
    ("backends/child.py", "search/searcher.py"),
}


class CallPath:
    """The modules of the package that a call enters on its thread, and its calls from a lower layer into a higher."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.upwards: set[tuple[str, str]] = set()

    def watch(self, call: Callable[[], object]) -> None:
        def on_event(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and (module := _module(frame)) is not None:
                self.modules.add(module)
                caller = _caller(frame)
                if caller is not None and _height(caller) < _height(module):
                    self.upwards.add((caller, module))

        sys.setprofile(on_event)
        try:
            call()
        finally:
            sys.setprofile(None)


def _module(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else None


def _caller(frame: FrameType) -> str | None:
    """Return the nearest module of the package below a frame on the stack."""
    above = frame.f_back
    while above is not None:
        if (module := _module(above)) is not None:
            return module
        above = above.f_back
    return None


def _height(module: str) -> int:
    return HEIGHT[module.partition("/")[0].removesuffix(".py")]


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda memos: memos.add("I work at Bosch.", conversation="work"), 52),
        (lambda memos: memos.search("Where do I work?"), 32),
    ],
    ids=["add", "search"],
)
def test_a_call_goes_down_through_few_modules_and_comes_back(
    call: Callable[[MemOS], object], most: int, memos: MemOS
) -> None:
    call(memos)  # what is made once is no part of the way
    path = CallPath()
    path.watch(lambda: call(memos))
    assert path.upwards <= CALLBACKS
    assert len(path.modules) <= most, sorted(path.modules)
