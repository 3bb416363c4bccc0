"""The command line, the demonstration and the doctor."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def _terminate(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> NoReturn:
    """Run the command line."""
    if os.getpid() == 1:  # in a container: Linux keeps SIGTERM from it without a handler, and a stop waits for the kill
        signal.signal(signal.SIGTERM, _terminate)
    from memos.cli.app import main as run  # noqa: PLC0415 - so that this package is light

    run()


__all__ = ["app"]
