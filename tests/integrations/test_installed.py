"""What `make test-integrations` has installed: examples run, and no extra pulls what its framework does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.integrations.test_examples import EXAMPLES
from tests.integrations.test_extras import PROJECT

NAMED = os.environ.get("INTEGRATIONS", "").split()
HEAVY = {"anthropic", "boto3", "chromadb", "lancedb", "litellm", "openai", "tensorflow", "torch", "transformers"}
# What these frameworks depend on themselves.
THEIRS = {
    "crewai": {"chromadb", "lancedb", "openai"},
    "dspy": {"boto3", "litellm", "openai"},
    "haystack": {"openai"},
    "litellm": {"boto3", "litellm", "openai"},
    "openai_agents": {"openai"},
    "strands": {"boto3"},
}


@pytest.mark.parametrize("name", NAMED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES[name])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "tuesday: Your parrot is Hugo."


@pytest.mark.parametrize("name", NAMED)
def test_an_extra_pulls_nothing_else_heavy(name: str) -> None:
    [needed] = PROJECT["optional-dependencies"][name.replace("_", "-")]
    assert set(closure(needed, set())) & HEAVY <= THEIRS.get(name, set())


def closure(needed: str, seen: set[tuple[str, ...]]) -> Iterator[str]:
    """Yield the distributions that a requirement installs."""
    asked = Requirement(needed)
    key = (asked.name.lower(), *sorted(asked.extras))
    if key in seen:
        return
    seen.add(key)
    try:
        needs = requires(asked.name) or []
    except PackageNotFoundError:  # for another system
        return
    yield asked.name.lower()
    for each in needs:
        marker = Requirement(each).marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *asked.extras)):
            yield from closure(each, seen)
