"""Build hooks: copy the client's modules out of `memos`, the only place where they are written, with its version.

What the client imports is read from the sources. A build fails as soon as it would need more than httpx and pydantic,
or more of hippocube than the modules that may be part of a client.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ENTRY = "memos.api.client"
COPIES = "memos_client._memos"
FOLDER = Path(*COPIES.split("."))
# Other packages of hippocube have no part in a client.
ALLOWED = re.compile(r"memos\.(api\.client|api\.values|api\.wording|core|errors|version)(\..+)?")
LIBRARIES = {"httpx2", "pydantic"}
# In the copies these have nothing but modules: what their `__init__` offers is hippocube's.
PACKAGES = {"memos", "memos.api", "memos.core"}


class Import(NamedTuple):
    """An import of a module: its place, the module as it is written, and the modules that it may mean."""

    line: int
    column: int
    module: str
    meant: tuple[str, ...]


def client_modules(repository: Path) -> dict[str, str]:
    """Return the sources of the client's modules as they are in this distribution, by their name in hippocube.

    Raises:
        RuntimeError: The client imports what it may not.
    """
    found: dict[str, str] = {}
    wanted = [ENTRY]
    while wanted:
        name = wanted.pop()
        if name in found or name in PACKAGES:
            continue
        source = _path(repository, name).read_text(encoding="utf-8")
        lines = source.splitlines(keepends=True)
        wanted.append(name.rpartition(".")[0])
        for each in _imports(name, source):
            wanted += [_needed(repository, name, each.module, meant) for meant in each.meant]
            line = lines[each.line - 1]
            written = f"from {each.module} "
            if not line.startswith(written, each.column):
                raise RuntimeError(f"{name}, line {each.line}: write it as `{written}import …` on one line")
            start = each.column + len("from memos")
            lines[each.line - 1] = f"{line[: each.column]}from {COPIES}{line[start:]}"
        found[name] = "".join(lines)
    return found


def _imports(name: str, source: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                _check_library(name, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module != "memos" and not module.startswith("memos."):
                _check_library(name, node.lineno, module)
            else:
                meant = tuple(f"{module}.{alias.name}" for alias in node.names)
                yield Import(node.lineno, node.col_offset, module, meant)
        elif getattr(node, "id", getattr(node, "attr", None)) in ("import_module", "__import__"):
            raise RuntimeError(f"{name}, line {node.lineno}: import with a statement, which can be read here")


def _check_library(name: str, line: int, module: str) -> None:
    top = module.partition(".")[0]
    if top not in LIBRARIES and top not in sys.stdlib_module_names:
        raise RuntimeError(
            f"{name}, line {line}: the client may not import {module!r}; it has {', '.join(sorted(LIBRARIES))} and the "
            "standard library. Move what needs it out of the modules that the client imports."
        )


def _needed(repository: Path, name: str, module: str, meant: str) -> str:
    """Return the module of an import: the imported name if that is one, else what it is imported from."""
    needed = meant if _path(repository, meant).exists() else module
    if needed in PACKAGES or not ALLOWED.fullmatch(needed):
        raise RuntimeError(
            f"{name}: the client may not import {meant!r}, which would make {needed!r} a part of every client. Move "
            "what it needs into memos.core, or allow the module in clients/python/hatch_build.py."
        )
    return needed


def _path(repository: Path, name: str) -> Path:
    path = repository.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def write(repository: Path, target: Path) -> None:
    """Write the client's modules into a new package."""
    sources = client_modules(repository)
    for package in PACKAGES:
        sources[package] = '"""Copies of modules of hippocube."""\n'
    packages = {name.rpartition(".")[0] for name in sources} | PACKAGES
    for name, source in sources.items():
        path = target.joinpath(*name.split(".")[1:])
        path = path / "__init__.py" if name in packages else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


def sources_of(root: Path) -> tuple[Path, Path | None]:
    """Return the folder with the copies in a source distribution; or where they will be, and hippocube's checkout.

    Raises:
        RuntimeError: There is neither.
    """
    copies, repository = root / FOLDER, root.parents[1]
    if copies.is_dir():
        return copies, None
    if (repository / "memos/api/client").is_dir():
        return copies, repository
    raise RuntimeError("Build hippocube-client in a checkout of hippocube, or from its source distribution.")


class VersionHook(MetadataHookInterface):
    """Takes the version of hippocube."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the version."""
        copies, repository = sources_of(Path(self.root))
        told = ((repository / "memos") if repository else copies) / "version.py"
        metadata["version"] = re.search(r'__version__ = "(.+)"', told.read_text(encoding="utf-8"))[1]


class CopyHook(BuildHookInterface):
    """Adds the copies to a wheel or a source distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the copies into a folder of their own, from which the build takes them."""
        _, repository = sources_of(Path(self.root))
        if repository is None:
            return
        if version == "editable":
            raise RuntimeError("hippocube-client has no sources to edit: install hippocube itself, `pip install -e .`")
        self._folder = Path(tempfile.mkdtemp())
        write(repository, self._folder / "copies")
        build_data["force_include"][str(self._folder / "copies")] = FOLDER.as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove that folder."""
        if (folder := getattr(self, "_folder", None)) is not None:
            shutil.rmtree(folder)
