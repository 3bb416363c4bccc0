"""A base of what is closed after use."""

from __future__ import annotations

from typing import Self


class Closing:
    """Closes itself at the end of a `with` block."""

    def close(self) -> None:
        """Release what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
