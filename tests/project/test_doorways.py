"""Other packages enter a package through its doorway: the modules its `__init__` names in `__all__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "memos").rglob("*.py")
}
PACKAGES = sorted(path.parent.name for path in (ROOT / "memos").glob("*/__init__.py"))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return the modules of ours that a module imports, also inside functions."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memos."):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("memos."))


@cache
def exported(package: str) -> set[str]:
    """Return the names in `__all__` of a package, without importing it."""
    for node in ast.parse(MODULES[package].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def entered(package: str) -> Iterator[tuple[str, str]]:
    """Yield what modules outside a package import from it: the importer and the module."""
    for name, path in MODULES.items():
        if name != f"memos.{package}" and not name.startswith(f"memos.{package}."):
            for module in imports(path):
                if module.startswith(f"memos.{package}."):
                    yield name, module


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_entered_through_its_doorway_alone(package: str) -> None:
    for importer, module in entered(package):
        parts = module.split(".")
        for place in range(2, len(parts)):
            door = ".".join(parts[:place])
            assert parts[place] in exported(door), f"{importer} imports {module}: name it in `__all__` of {door}"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_doorway_names_what_exists_and_somebody_uses(package: str) -> None:
    used = {module for _, module in entered(package)}
    for door in (name for name in MODULES if name == f"memos.{package}" or name.startswith(f"memos.{package}.")):
        if MODULES[door].name != "__init__.py":
            continue
        for name in exported(door):
            inner = f"{door}.{name}"
            public = inner not in MODULES  # a class or a function that the doorway itself offers to programs
            assert public or any(module == inner or module.startswith(f"{inner}.") for module in used), inner
