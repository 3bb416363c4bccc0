"""The user's data folder."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def default_home() -> Path:
    """Return the user's data folder for hippocube, as the operating system places it.

    An installation made when the product was called memstrata stays where it is.
    """
    home, former = (Path(platformdirs.user_data_dir(name, appauthor=False)) for name in ("hippocube", "memstrata"))
    return former if former.exists() and not home.exists() else home
