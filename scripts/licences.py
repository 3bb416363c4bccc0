"""Write the table of docs/reference/licences.md from what is installed; `--check` fails if it is out of date.

A licence that is not in `ALLOWED` fails in either case. Run it in the environment of `make setup-dev`, which has every
extra but `local` and those of agent frameworks.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "licences.md"
EXTRAS = (
    "server", "mcp", "documents", "ocr", "multilingual", "tracing", "sealing", "encryption", "oidc", "postgres",
    "qdrant", "neo4j",
)  # fmt: skip
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC", "LGPL-3.0-only", "MIT",
    "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib",
}  # fmt: skip
# What metadata says in other words than SPDX's.
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD-3-Clause, Apache-2.0, dependency licenses": "BSD-3-Clause AND Apache-2.0",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "PSFL": "PSF-2.0",
    "The MIT License (MIT)": "MIT",
}
# Of those that name only a family, read from the licence in their wheels.
READ = {"cobble": "BSD-2-Clause", "jinja2": "BSD-3-Clause", "omegaconf": "BSD-3-Clause", "sqlcipher3": "Zlib"}

TABLE = re.compile(r"(?<=<!-- table: scripts/licences.py -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


def requirements(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield what a package with extras needs on this machine."""
    for line in metadata.requires(name) or []:
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield needed


def needed_by(extra: str) -> set[str]:
    """Return the packages that the base (with the extra "") or an extra brings, directly or not."""
    wanted = [("hippocube", frozenset({extra}))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        if (each := wanted.pop()) in seen:
            continue
        seen.add(each)
        wanted += [(canonicalize_name(one.name), frozenset(one.extras)) for one in requirements(*each)]
    return {name for name, _ in seen} - {"hippocube"}


def licence_of(name: str) -> str:
    """Return the SPDX expression of a package's licence, as far as its metadata has one."""
    if name in READ:
        return READ[name]
    told = metadata.metadata(name)
    if expression := told.get("License-Expression"):
        return expression
    lines = told.get_all("Classifier") or []
    classifiers = [line.rpartition(" :: ")[2] for line in lines if line.startswith("License")]
    for text in (*(told.get("License") or "").splitlines()[:1], *classifiers):
        if set(re.split(r" AND | OR ", known := SPDX.get(text.strip(), text.strip()))) <= ALLOWED:
            return known
    return f"unknown: {told.get('License') or classifiers}"


def table() -> str:
    """Return the table. Raises: SystemExit (a licence is not allowed)."""
    base = needed_by("")
    users: dict[str, list[str]] = defaultdict(list)
    for extra in EXTRAS:
        for name in needed_by(extra) - base:
            users[name].append(extra)
    rows = {name: licence_of(name) for name in sorted(base | users.keys())}
    refused = {name: text for name, text in rows.items() if not set(re.split(r" AND | OR ", text)) <= ALLOWED}
    if refused:
        sys.exit(f"licences that are not allowed: {refused}; see ALLOWED in scripts/licences.py")
    lines = (f"| {name} | {text} | {', '.join(users.get(name, ['base']))} |\n" for name, text in rows.items())
    return "| package | licence | needed by |\n|---|---|---|\n" + "".join(lines)


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    check = parser.parse_args().check
    old = PAGE.read_text(encoding="utf-8")
    new = TABLE.sub(lambda _: table(), old)
    if not check:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit("docs/reference/licences.md is out of date; run python scripts/licences.py")


if __name__ == "__main__":
    main()
