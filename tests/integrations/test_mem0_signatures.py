"""`memos.compat.mem0` has the methods and parameters of the real mem0ai; `make test-integrations` installs it."""

from __future__ import annotations

import inspect
import os
import tempfile
from typing import Any

import pytest

# It tells its maker of each call, and writes into the home directory.
os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": f"{tempfile.gettempdir()}/hippocube-mem0"}
mem0 = pytest.importorskip("mem0", reason="needs mem0ai: make test-integrations installs it")

from memos.compat import mem0 as ours  # noqa: E402 - after it is known that there is something to compare with

METHODS = ("add", "get", "get_all", "search", "update", "delete", "delete_all", "history", "reset", "close")


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    """Return name, kind and default of each parameter; a default that stands for none is an object of its own."""
    found = inspect.signature(method).parameters.values()
    default = lambda each: "-" if type(each.default) is object else each.default  # noqa: E731
    return [(each.name, each.kind, default(each)) for each in found]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["Memory", "AsyncMemory"])
def test_parameters_are_the_same(kind: str, method: str) -> None:
    theirs = parameters(getattr(getattr(mem0, kind), method))
    # One call's own model, in place of the configured one.
    theirs = [each for each in theirs if (kind, method, each[0]) != ("AsyncMemory", "add", "llm")]
    assert parameters(getattr(getattr(ours, kind), method)) == theirs


@pytest.mark.parametrize("kind", ["Memory", "AsyncMemory"])
def test_what_is_async_there_is_async_here(kind: str) -> None:
    for method in METHODS:
        theirs, mine = (getattr(getattr(package, kind), method) for package in (mem0, ours))
        assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(mine), method


@pytest.mark.parametrize("kind", ["Memory", "AsyncMemory"])
def test_it_is_made_alike(kind: str) -> None:
    theirs, mine = (getattr(package, kind) for package in (mem0, ours))
    assert [name for name, *_ in parameters(theirs)] == ["config"]
    assert next(iter(inspect.signature(mine).parameters)) == "config"
    assert [name for name, *_ in parameters(theirs.from_config)] == ["config_dict"]
    assert next(iter(inspect.signature(mine.from_config).parameters)) == "config_dict"


def test_a_configuration_of_the_package_is_read() -> None:
    from mem0.configs.base import MemoryConfig  # noqa: PLC0415

    config = MemoryConfig(llm={"provider": "lmstudio", "config": {"model": "m"}})
    settings = ours.settings_of(config, given=False)
    assert settings is not None
    assert (settings.chat_model.base_url, settings.chat_model.model) == ("http://localhost:1234/v1", "m")
    assert ours.settings_of(MemoryConfig(), given=False) is None


def test_results_have_the_fields_of_the_package() -> None:
    from mem0.configs.base import MemoryItem  # noqa: PLC0415

    fields = {"id", "memory", "hash", "metadata", "score", "created_at", "updated_at"}
    assert set(MemoryItem.model_fields) == fields
