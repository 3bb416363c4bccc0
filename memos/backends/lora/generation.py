"""The likeliest answers to several prompts at once: tokens are picked as a model that is served picks them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

import torch
from torch.nn import functional
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

_LEAVE_AT = 0.75
"""A copy of what is cached is a step's work: that pays when so few of the rows are still asked."""


Hearing = Callable[[list[int], torch.Tensor], None]
"""Is given rows, and what may come next of each: (rows, vocabulary)."""


class Continuation(Protocol):
    """Prompts that go on token by token; `leaves` says whether some of them may go on alone."""

    leaves: bool
    logits: torch.Tensor
    """(rows, vocabulary): what may come next of each."""

    def say(self, tokens: torch.Tensor) -> None:
        """Add a token (rows) to each row."""

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these rows alone."""


def greedy(going: Continuation, ends: Collection[int], most: int, hear: Hearing | None = None) -> list[list[int]]:
    """Return the likeliest next tokens of each row, at most so many, until one of `ends`."""
    # `hear` is given rows and their logits at each place, also at that of what comes after the last token. What has
    # ended leaves when a quarter of those beside it has: most answers are a third as long as they may be.
    rows = list(range(len(going.logits)))
    made: list[list[int]] = [[] for _ in rows]
    asked = set(rows)
    while asked:
        if hear is not None:
            places = [place for place, row in enumerate(rows) if row in asked]
            hear([rows[place] for place in places], going.logits[places])
        picked = going.logits.argmax(-1)
        for row, token in zip(rows, picked.tolist(), strict=True):
            if token in ends or len(made[row]) == most:
                asked.discard(row)
            elif row in asked:
                made[row].append(token)
                if hear is None and len(made[row]) == most:  # what comes after it nobody hears
                    asked.discard(row)
        if not asked:
            break
        if going.leaves and len(asked) <= _LEAVE_AT * len(rows):
            kept = torch.tensor([place for place, row in enumerate(rows) if row in asked], device=picked.device)
            going.keep(kept)
            picked, rows = picked[kept], [row for row in rows if row in asked]
        going.say(picked)
    return made


class CachedContinuation:
    """Prompts that go on by a model's own cache: token ids padded on the left, and which of them are there."""

    def __init__(self, model: Any, cache: DynamicCache, ids: torch.Tensor, there: torch.Tensor, same: int) -> None:
        """Begin; `same` tokens of each, which come before these, are in the cache."""
        self._model, self._cache = model, cache
        # A state that is no keys and values of tokens is not cut by rows.
        self.leaves = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers)
        self._at = same + (there.cumsum(-1) - 1).clamp(min=0)
        self._there = functional.pad(there, (same, 0), value=1)
        self.logits = self._told(ids)

    def say(self, tokens: torch.Tensor) -> None:
        self._at, self._there = self._at[:, -1:] + 1, functional.pad(self._there, (0, 1), value=1)
        self.logits = self._told(tokens[:, None])

    def keep(self, rows: torch.Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._at, self._there, self.logits = self._at[rows], self._there[rows], self.logits[rows]

    def _told(self, ids: torch.Tensor) -> torch.Tensor:
        told: torch.Tensor = self._model(
            input_ids=ids,
            attention_mask=self._there,
            position_ids=self._at,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return told
