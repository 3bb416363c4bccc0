"""Generates the TypeScript client's types from the OpenAPI document of `/api/v1`.

Usage: python scripts/typescript_types.py [--check]

Needs `npm install` in clients/typescript. With `--check` nothing is written; the exit status is 1 when the file is not
what the document gives.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

from memos.api.v1.routes import create
from memos.kernel.memos import MemOS

PACKAGE = Path(__file__).resolve().parents[1] / "clients" / "typescript"
TYPES = PACKAGE / "src" / "openapi.ts"


def generated() -> str:
    """Return the types of the present OpenAPI document."""
    document = create(cast(MemOS, None), None).openapi()  # no request is made, so no installation is needed
    done = subprocess.run(
        ["node", "scripts/types.mjs"],  # noqa: S607
        cwd=PACKAGE,
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr or "scripts/types.mjs failed; run `npm install` in clients/typescript first")
    return done.stdout


def main() -> None:
    types = generated()
    if "--check" in sys.argv[1:]:
        if TYPES.read_text(encoding="utf-8") != types:
            raise SystemExit(f"{TYPES} is outdated: python scripts/typescript_types.py")
    else:
        TYPES.write_text(types, encoding="utf-8")


if __name__ == "__main__":
    main()
