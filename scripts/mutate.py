"""Change the code in small ways, and count the changes that no test notices.

    python scripts/mutate.py --packages search memcube scheduler --count 20 -- -m "not heavy" tests/search tests/memcube

A mutant changes one comparison, one operator, one number or one boolean. It survives if the tests still pass.
`--other TREE` draws only mutants that the code in another checkout has too (same function, same statement), so that two
versions can be compared with the same seed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed statement: `key` is the same in every tree that has this statement in a function of this name."""

    key: str
    path: str
    line: int
    before: str
    after: str
    source: str


def mutants(root: Path, package: str) -> Iterator[Mutant]:
    """Yield every mutant of a package's modules, migrations left out."""
    for path in sorted((root / "memos" / package).rglob("*.py")):
        if "migrations" not in path.parts:
            yield from _of_module(path, path.relative_to(root).as_posix())


def _of_module(path: Path, name: str) -> Iterator[Mutant]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for statement in ast.walk(function):
            if not isinstance(statement, ast.Return | ast.Assign | ast.If | ast.Expr | ast.While | ast.AugAssign):
                continue
            for node in _own_nodes(statement):
                yield from _of_node(tree, function, statement, node, name)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without the statements in its body."""
    pending: list[ast.AST] = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt))


def _of_node(
    tree: ast.Module, function: ast.FunctionDef, statement: ast.stmt, node: ast.AST, name: str
) -> Iterator[Mutant]:
    before = _head(statement)
    for undo in _changed(node):
        after = _head(statement)
        source = ast.unparse(tree)
        undo()
        key = hashlib.sha256(f"{function.name}\n{before}\n{after}".encode()).hexdigest()[:12]
        yield Mutant(key, name, statement.lineno, before, after, source)


def _head(statement: ast.stmt) -> str:
    shown = copy.copy(statement)
    if isinstance(shown, ast.If | ast.While):
        shown.body, shown.orelse = [ast.Pass()], []
    return ast.unparse(shown)


def _changed(node: ast.AST) -> Iterator[object]:
    """Change a node in place, yield the function that undoes it."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SWAPS:
        kept = node.ops[0]
        node.ops[0] = _SWAPS[type(kept)]()  # type: ignore[assignment]
        yield lambda: node.ops.__setitem__(0, kept)
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in _SWAPS:
        operator = node.op
        node.op = _SWAPS[type(operator)]()  # type: ignore[assignment]
        yield lambda: setattr(node, "op", operator)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        value = node.value
        node.value = not value if type(value) is bool else value + 1
        yield lambda: setattr(node, "value", value)


def survives(tree: Path, mutant: Mutant, tests: list[str], timeout_s: float) -> bool:
    """Run the tests on a mutant; return True if all of them pass."""
    path = tree / mutant.path
    kept = path.read_bytes()
    path.write_text(mutant.source, encoding="utf-8")
    try:
        return passes(tree, tests, timeout_s)
    finally:
        path.write_bytes(kept)


def passes(tree: Path, tests: list[str], timeout_s: float) -> bool:
    """Return True if pytest ends with 0 within the time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    with tempfile.TemporaryDirectory(prefix="hippocube-mutate-") as folder:
        paths = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ended = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return ended.returncode == 0


def main() -> None:
    """Draw mutants, run the tests on each, and print what survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=Path.cwd())
    parser.add_argument("--other", type=Path, help="draw only mutants that this tree has too")
    parser.add_argument("--again", type=Path, help="run the mutants of this earlier result that still exist")
    parser.add_argument("--packages", nargs="+", default=["search", "memcube", "scheduler"])
    parser.add_argument("--count", type=int, default=20, help="mutants drawn in each package")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("tests", nargs="+", help="arguments of pytest, after `--`")
    parser.add_argument("--timeout", type=float, default=600, help="seconds; a mutant that takes longer is noticed")
    parser.add_argument("--out", type=Path, help="a JSON file for every mutant and whether it survived")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hippocube-mutants-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(given.tree, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__"))
        if not passes(tree, given.tests, given.timeout):
            sys.exit("The tests fail without any change.")
        told = []
        for package in given.packages:
            every = {mutant.key: mutant for mutant in mutants(given.tree, package)}
            if given.other:
                shared = {mutant.key for other in given.packages for mutant in mutants(given.other, other)}
                every = {key: mutant for key, mutant in every.items() if key in shared}
            drawn = random.Random(given.seed).sample(sorted(every), min(given.count, len(every)))
            if given.again:
                earlier = {entry["key"] for entry in json.loads(given.again.read_text(encoding="utf-8"))}
                drawn = sorted(earlier & set(every))
            for key in drawn:
                mutant = every[key]
                lives = survives(tree, mutant, given.tests, given.timeout)
                told.append(
                    {"package": package, "key": key, "path": mutant.path, "line": mutant.line, "survives": lives}
                )
                said = "SURVIVES" if lives else "noticed "
                print(f"{said} {mutant.path}:{mutant.line}  {mutant.before!r} -> {mutant.after!r}", flush=True)
            lives = sum(entry["survives"] for entry in told if entry["package"] == package)
            print(f"{package}: {lives} of {len(drawn)} survive (of {len(every)} possible)", flush=True)
        if given.out:
            given.out.write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
