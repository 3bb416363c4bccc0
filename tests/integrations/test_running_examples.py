"""The examples of integrations run; `make test-integrations` names the frameworks that are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.test_examples import EXAMPLES


@pytest.mark.parametrize("name", os.environ.get("INTEGRATIONS", "").split())
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES[name])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "tuesday: Your parrot is Hugo."
