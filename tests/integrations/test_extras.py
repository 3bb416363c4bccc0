"""The extras of frameworks pull their framework alone, and the package of integrations needs none of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = {"__init__", "memory", "transcript"}
MODULES = sorted(path.stem for path in (ROOT / "memos" / "integrations").glob("*.py") if path.stem not in SHARED)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# As if nothing were installed beside what the package itself needs, wherever these tests run.
WITHOUT = """
import sys
import memos.integrations
kept = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if path is None and name not in kept:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
try:
    import memos.integrations.MODULE
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_an_extra_of_its_name_with_one_package(module: str) -> None:
    assert len(PROJECT["optional-dependencies"][module.replace("_", "-")]) == 1


@pytest.mark.parametrize("module", MODULES)
def test_without_its_framework_a_module_says_which_extra_to_install(module: str) -> None:
    assert f"pip install 'hippocube[{module.replace('_', '-')}]'" in _printed(WITHOUT.replace("MODULE", module))


def test_the_package_itself_loads_neither_a_framework_nor_an_installation() -> None:
    loaded = _printed("import sys, memos.integrations; print(*{name.partition('.')[0] for name in sys.modules})")
    assert not {"langchain_core", "langgraph", "openai", "numpy", "onnxruntime", "fastapi", "mcp"} & set(loaded.split())


def _printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
