"""A batch of token sequences as a tree, in which what several begin with stands once, and where its heads lie.

Only where tokens look at one another are its branches padded, on the right, where nothing looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_A_BRANCH = 8
"""What one more branch is taken to cost, in tokens: from 2 to 32, what is padded differs by 2 %."""


class Tree:
    """Sequences of tokens, in which what several begin with stands once: `ids` and positions `at` of all its tokens.

    `paths` are the places of each sequence's tokens in it.
    """

    def __init__(self, sequences: Sequence[list[int]]) -> None:
        self.ids: list[int] = []
        self.at: list[int] = []
        self._grown: dict[tuple[int, int], int] = {}
        self._branches: list[tuple[list[int], int]] = []
        self.paths = [self._path(each) for each in sequences]

    def branches(self) -> list[tuple[list[int], int]]:
        """Return, in the order of the tree's tokens, paths to some of them, and how many of a path others have.

        They are cut to such a length that little of them is padding, and little of it is seen once more.
        """
        added = [len(path) - others for path, others in self._branches]
        sizes = range(1, max(added) + 1)
        most = min(sizes, key=lambda size: (size + _A_BRANCH) * sum(-(-each // size) for each in added))
        return [
            (path[: begin + most], begin) for path, others in self._branches for begin in range(others, len(path), most)
        ]

    def _path(self, sequence: Sequence[int]) -> list[int]:
        path, place, others = [], -1, 0
        for at, token in enumerate(sequence):
            place = self._grown.setdefault((place, token), len(self.ids))
            if place < len(self.ids):
                others += 1
            else:
                self.ids.append(token)
                self.at.append(at)
            path.append(place)
        if others < len(path):
            self._branches.append((path, others))
        return path


@dataclass(frozen=True, slots=True)
class Batch:
    """Where the heads of a tree's tokens are taken from and put to, for products of each branch and each key's head.

    Taken are the queries of what a branch adds (`asked` of turned heads, `given` of found ones), padded on the right,
    and all its keys and values. `padded` are those of the queries that are nobody's, `found` where each token's are,
    `whose` the token and key that each of the keys is of. `mask` (branches and keys, queries, seen) hides what comes
    later; `cos` and `sin` are (tokens, turned heads, half a head).
    """

    asked: Tensor
    given: Tensor
    padded: Tensor
    keys: Tensor
    values: Tensor
    found: Tensor
    whose: Tensor
    mask: Tensor
    cos: Tensor
    sin: Tensor

    def summed(self, heads: Tensor, shape: torch.Size) -> Tensor:
        """Return the sums over branches of each token's keys or values, float32, as (tokens, keys, size)."""
        total = heads.new_zeros(shape, dtype=torch.float32)
        total.flatten(0, 1).index_add_(0, self.whose, heads.flatten(0, 1).float())
        return total


def batch_of(tree: Tree, queries: int, keys: int, kind: torch.dtype, cos: Tensor, sin: Tensor) -> Batch:
    """Return where the heads of a tree's tokens lie, of so many queries and keys a token."""
    branches = tree.branches()
    begins, lengths = torch.tensor([begin for _, begin in branches]), torch.tensor([len(path) for path, _ in branches])
    added = nn.utils.rnn.pad_sequence([torch.tensor(path[begin:]) for path, begin in branches], batch_first=True)
    seen = nn.utils.rnn.pad_sequence([torch.tensor(path) for path, _ in branches], batch_first=True)
    at, order = torch.arange(added.shape[1]), torch.arange(seen.shape[1])
    adds = at < (lengths - begins)[:, None]
    later = order > (begins[:, None] + at)[..., None]
    mask = torch.zeros(later.shape, dtype=kind).masked_fill_(later, -math.inf)[:, None, None]
    # (branches, keys, heads of one key, added) and (branches, keys, seen)
    added, query = added[:, None, None], torch.arange(queries).view(1, keys, -1, 1)
    seen, key = seen[:, None], torch.arange(keys)[:, None]
    asked = added * (queries + keys) + query
    slots = torch.arange(asked.numel()).view_as(asked).permute(0, 3, 1, 2)
    return Batch(
        asked=asked.flatten(), given=(added * queries + query).flatten(),
        padded=adds.logical_not()[:, None, None].expand_as(asked).flatten().nonzero()[:, 0],
        keys=(seen * (queries + keys) + queries + key).flatten(),
        values=(seen * (queries + 2 * keys) + queries + keys + key).flatten(),
        found=slots[adds].flatten(), whose=(seen * keys + key).flatten(),
        mask=mask.expand(*asked.shape, len(order)).reshape(-1, asked[0, 0].numel(), len(order)), cos=cos, sin=sin,
    )  # fmt: skip
