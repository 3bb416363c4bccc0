"""What is lent to one prompt: blocks from its beginning, neither evicted nor changed until they are given back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, Self

from memos.memcube.activation.blocks import Block, Tier
from memos.memcube.activation.tiers import Entry


class Lender(Protocol):
    """The store, as what is lent knows it."""

    def load_s(self, entry: Entry) -> float:
        """Return how long loading a block should take."""
        ...

    def loaded(self, entry: Entry) -> tuple[Tier, object] | None:
        """Return a block's keys and values with the tier they come from, None when they are gone."""
        ...

    def added(self, block: Block, held: object, tier: Tier) -> Entry | None:
        """Hold a new block and lend it, None when there is no room."""
        ...

    def returned(self, entries: Sequence[Entry]) -> None:
        """Take lent blocks back."""
        ...


class Checkout:
    """Blocks lent to one prompt, from its beginning; what is lent is neither evicted nor changed until it is closed."""

    def __init__(self, store: Lender, entries: list[Entry]) -> None:
        self._store = store
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that are there, in order."""
        return tuple(entry.block for entry in self._entries)

    def load_s(self) -> list[float]:
        """Return for each block how long loading it should take, by what was measured."""
        return [self._store.load_s(entry) for entry in self._entries]

    def load(self, count: int) -> Iterator[tuple[Tier, object]]:
        """Yield keys and values of the first blocks with the tier they come from; ends early at a damaged one."""
        for entry in self._entries[:count]:
            found = self._store.loaded(entry)
            if found is None:
                return
            yield found

    def add(self, block: Block, held: object, tier: Tier) -> bool:
        """Store the next block of this prompt, and lend it too; False when there is no room for it."""
        entry = self._store.added(block, held, tier)
        if entry is not None:
            self._entries.append(entry)
        return entry is not None

    def close(self) -> None:
        """Give everything back; safe to call twice."""
        self._store.returned(self._entries)
        self._entries = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
