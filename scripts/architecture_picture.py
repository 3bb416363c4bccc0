"""Draw the packages of `memos` into docs/development/architecture.md, from pyproject.toml and the real imports.

Usage: python scripts/architecture_picture.py [--check]

Arrows that follow from others (a uses b, b uses c, a uses c) are left out. With `--check` nothing is written; the exit
status is 1 when the picture in the page is not what the code says.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/development/architecture.md"
BEGIN, END = "<!-- picture: scripts/architecture_picture.py -->\n", "<!-- end of picture -->\n"


def layers() -> list[list[str]]:
    """Return the packages of each layer, the highest first."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = (each for each in told["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def uses(packages: set[str]) -> dict[str, set[str]]:
    """Return which packages each imports when it runs, whatever the place of the import."""
    found: dict[str, set[str]] = {package: set() for package in packages}
    for path in (ROOT / "memos").rglob("*.py"):
        package = path.relative_to(ROOT / "memos").parts[0].removesuffix(".py")
        if package not in packages:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(_run_time(tree)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                head, _, rest = name.partition(".")
                used = rest.partition(".")[0]
                if head == "memos" and used in packages and used != package:
                    found[package].add(used)
    return found


def _run_time(tree: ast.Module) -> ast.Module:
    """Return a module without what only type checkers import."""
    kept = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(kept, [])


def reduced(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the edges without those that others lead to as well."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = list(edges[start])
        while ahead:
            if (node := ahead.pop()) not in seen:
                seen.add(node)
                ahead.extend(edges[node])
        return seen

    return {
        start: {end for end in ends if not any(end in reachable(other) for other in ends - {end})}
        for start, ends in edges.items()
    }


def summary(package: str) -> str:
    """Return the first sentence of a package's docstring."""
    folder = ROOT / "memos" / package
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return told.partition("\n")[0].rstrip(".").replace("`", "").replace('"', "'")


def picture() -> str:
    """Return the picture as a block of Mermaid."""
    rows = layers()
    packages = {package for row in rows for package in row}
    lines = ["```mermaid", "flowchart TB"]
    for row in rows:
        lines += [f'    {package}["<b>{package}</b><br>{summary(package)}"]' for package in row]
    for start, ends in sorted(reduced(uses(packages)).items()):
        lines += [f"    {start} --> {end}" for end in sorted(ends)]
    return "\n".join([*lines, "```", ""])


def main() -> int:
    """Write the picture into the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    drawn = f"{before}{BEGIN}{picture()}{END}{after}"
    if "--check" in sys.argv:
        return int(drawn != page)
    PAGE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
