"""The command line, the demonstration and the doctor."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    from memos.cli.app import main as run  # noqa: PLC0415 - so that this package is light

    run()


__all__ = ["app"]
