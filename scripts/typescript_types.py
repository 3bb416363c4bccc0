"""Generates the TypeScript client's types from the OpenAPI document of `/api/v1`; needs `npm install` there.

Usage: python scripts/typescript_types.py
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import cast

from memos.api.v1.routes import create
from memos.kernel.memos import MemOS

PACKAGE = Path(__file__).resolve().parents[1] / "clients" / "typescript"


def main() -> None:
    """Write the types of the present document."""
    document = create(cast(MemOS, None), None).openapi()  # no request is made, so no installation is needed
    command = ["node", "scripts/types.mjs"]
    done = subprocess.run(
        command, cwd=PACKAGE, input=json.dumps(document), stdout=subprocess.PIPE, text=True, check=True
    )
    (PACKAGE / "src" / "openapi.ts").write_text(done.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
