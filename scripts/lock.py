"""Write `constraints-hashes.txt`: the digests of every file that an installation of hippocube may download.

Of the packages of `constraints.txt` those that the package and its extras for serving need, with the SHA-256 of their
source archives and of their wheels for Linux (x86-64 and ARM) and CPython 3.11 to 3.13. uv refuses any other file
(`scripts/install.sh`). Frameworks, PyTorch and tools of development are pinned without digests.

Usage: python scripts/lock.py [--check]. `--check` asks no index: it compares the versions of both files.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS, HASHES = ROOT / "constraints.txt", ROOT / "constraints-hashes.txt"
EXTRAS = ("server", "mcp", "documents", "sealing", "encryption", "s3", "oidc", "postgres", "qdrant", "neo4j", "tracing")
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
HEAD = "# Written by scripts/lock.py. With uv: --constraint constraints.txt --constraint constraints-hashes.txt\n"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pins_of(file: Path) -> dict[str, str]:
    """Return the versions that a file pins, by normalised names."""
    found = _PIN.findall(file.read_text(encoding="utf-8"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def problems() -> list[str]:
    """Return in what the two files differ: versions, and packages that are needed and have no digest."""
    pins, hashed = pins_of(PINS), pins_of(HASHES)
    wrong = [
        f"{name} is {version} in {HASHES.name} and {pins.get(name)} in {PINS.name}"
        for name, version in hashed.items()
        if pins.get(name) != version
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = (project["dependencies"], *(project["optional-dependencies"][extra] for extra in EXTRAS))
    for needed in sorted({each for group in groups for each in group}):
        name = re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", needed, maxsplit=1)[0]).lower()
        if name not in hashed and name != project["name"]:
            wrong.append(f"{name} has no digest in {HASHES.name}")
    bare = [line for line in HASHES.read_text(encoding="utf-8").splitlines() if _PIN.match(line) and "\\" not in line]
    return wrong + [f"{line} has no digest" for line in bare]


def resolve(python: str, platform: str, folder: Path) -> list[dict[str, object]]:
    """Return the packages for one Python on one platform, with their files."""
    target = folder / "pylock.toml"
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--format", "pylock.toml"]
    command += ["--constraint", str(PINS), "--python-version", python, "--python-platform", platform]
    command += [part for extra in EXTRAS for part in ("--extra", extra)]
    subprocess.run([*command, "--output-file", str(target), str(ROOT / "pyproject.toml")], check=True)
    packages: list[dict[str, object]] = tomllib.loads(target.read_text(encoding="utf-8"))["packages"]
    target.unlink()
    return packages


def lock() -> None:
    """Write the file."""
    digests: dict[tuple[str, str], set[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for python in PYTHONS:
            for platform in PLATFORMS:
                for package in resolve(python, platform, Path(folder)):
                    files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]  # type: ignore[misc, list-item]
                    known = digests.setdefault((str(package["name"]), str(package["version"])), set())
                    known.update(file["hashes"]["sha256"] for file in files)  # type: ignore[index, call-overload]
    lines = [
        f"{name}=={version} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(found))
        for (name, version), found in sorted(digests.items())
    ]
    HASHES.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the two files, and ask no index")
    if not parser.parse_args().check:
        lock()
    if wrong := problems():
        sys.exit("\n".join(wrong))
    print(f"{HASHES.name}: {len(pins_of(HASHES))} packages")


if __name__ == "__main__":
    main()
