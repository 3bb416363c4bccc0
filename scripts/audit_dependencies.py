"""Look for known weaknesses of the packages in `constraints-hashes.txt`, with pip-audit: `make audit`.

The database is PyPI's, asked over the network; where it cannot be reached the check is skipped, and says so. A package
with a known weakness ends it with exit code 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WITHIN_S = 90
# What pip-audit and uv say when nobody answers.
AWAY = (
    "could not connect",
    "connection error",
    "connectionerror",
    "connecttimeout",
    "error sending request",
    "failed to fetch",
    "max retries",
    "name resolution",
    "service unavailable",
    "timed out",
)


def skip(reason: str) -> None:
    """Say why nothing was checked."""
    print(f"audit skipped: {reason}")


def main() -> None:
    """Run pip-audit. Raises: SystemExit (weaknesses, or it failed)."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "audit.json"
        command = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", "pip-audit", "pip-audit"]
        command += ["--requirement", str(ROOT / "constraints-hashes.txt"), "--disable-pip", "--no-deps"]
        command += ["--progress-spinner", "off", "--timeout", "10", "--format", "json", "--output", str(told)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            skip(f"the database of weaknesses did not answer within {WITHIN_S} seconds")
            return
        if not told.exists():
            said = (done.stdout + done.stderr).strip()
            if not any(word in said.casefold() for word in AWAY):
                sys.exit(f"pip-audit failed:\n{said}")
            skip(f"the database of weaknesses, or pip-audit itself, cannot be reached: {said.splitlines()[-1]}")
            return
        packages = json.loads(told.read_text(encoding="utf-8"))["dependencies"]
    weak = [(each, weakness) for each in packages for weakness in each.get("vulns", ())]
    for package, weakness in weak:
        fixed = ", ".join(weakness["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {weakness['id']}, fixed in {fixed}")
    if weak:
        sys.exit(f"{len(weak)} known weaknesses")
    print(f"{len(packages)} packages: no known weakness")


if __name__ == "__main__":
    main()
