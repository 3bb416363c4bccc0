"""A base class of objects that have to be closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager that calls `close` at the end of the block."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
