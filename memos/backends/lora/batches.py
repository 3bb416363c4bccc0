"""What the steps of a LoRA training are made of: batches of tokens, the rate of each, the distance to a teacher."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_WARM_UP = 0.1
_ALIKE = 4
"""Tokens within which prompts of one batch are alike: a tenth of what is computed is padding; within 12 a fifth."""

_COURSE = 260
"""Exercises in an epoch of the course of 16 facts that the usual number of epochs was found with."""

_LEAST_COURSE = 64
"""Exercises in an epoch of any course about facts, as what is replayed is as many; fewer are somebody's own."""

_PLACES = 16
"""Whose logits stay in the processor's cache while likelihoods are made of them: 3 MB of a small model's."""

_KNOWN_AFTER = 5
"""Epochs in which what is taught is taught each time: it is known after them."""

_ALL_IN_EACH = 6
"""Epochs of the longest course of which nothing is taught less: 128 facts, in six, lost too much (docs/log.md)."""

REBALANCING_EPOCHS = 2
_REBALANCING_RATE = 0.5
"""Of the recipe's: at the whole rate what was known is unsettled again (docs/log.md, "Rebalancing")."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of a prompt and its answer; `begin` is where the answer begins.

    `tokens` and `chances` are the teacher's likeliest tokens and their log-probabilities, (answer, top) each.
    """

    ids: list[int]
    begin: int
    replayed: bool
    every: int
    tokens: torch.Tensor | None
    chances: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Step:
    """What is learned at once, and with which share of the learning rate."""

    batch: list[Encoded]
    rate: float


def likely_at(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities, float32, of tokens (places, some) by logits (places, vocabulary)."""
    found: torch.Tensor = _LikelyAt.apply(logits, tokens)
    return found


def distance(mine: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    """Return the mean divergence from a teacher over its likeliest tokens and all the others as one.

    Both are log-probabilities (places, tokens) of these.
    """
    rest = torch.log1p(-chances.exp().sum(-1).clamp(max=1 - 1e-6))
    my_rest = torch.log1p(-mine.exp().sum(-1).clamp(max=1 - 1e-6))
    of_likely = (chances.exp() * (chances - mine)).sum(-1)
    return (of_likely + rest.exp() * (rest - my_rest)).mean()


def in_turns(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the places of prompts, at most so many at once that are about as long, in turns of about one size."""
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    turns = -(-len(order) // most)
    for turn in range(turns):
        yield order[turn * len(order) // turns : (turn + 1) * len(order) // turns]


def in_epoch(encoded: Sequence[Encoded], number: int) -> list[Encoded]:
    """Return what is taught in an epoch: of those that take turns, one of so many, another in the next one."""
    places: Counter[int] = Counter()
    found = []
    for each in encoded:
        if places[each.every] % each.every == number % each.every:
            found.append(each)
        places[each.every] += 1
    return found


def epochs_of(usual: int, exercises: int) -> int:
    """Return in how many epochs a course of so many exercises is taught: in fewer than `usual` when it is a large one.

    What its facts have in common, such as when to abstain, is learned from all of them: 64 facts pass after seven
    where 16 need ten (docs/log.md, "Seven epochs for 64"). A small one has as many exercises in all as that of 16: with
    ten epochs the 12 facts that stay when four are forgotten were not known (docs/log.md).
    """
    if exercises < _LEAST_COURSE:
        return usual
    share = _COURSE / exercises
    return max(1, round(usual * (share if share > 1 else math.pow(share, 0.36))))


def course_steps(encoded: Sequence[Encoded], epochs: int, size: int, chance: random.Random) -> list[Step]:
    """Return the steps of a course of so many epochs, in batches of at most `size`.

    Of more than six, in half of the epochs what is taught comes half as often. For what is replayed that is the first
    half, in which the model has hardly moved; for all else the second, but not before the sixth epoch: by then it is
    known, and more of it makes others lost (docs/log.md, "What is replayed half as often at first").
    """
    known, moved = max(_KNOWN_AFTER, epochs - epochs // 2), epochs // 2
    if epochs <= _ALL_IN_EACH:
        known, moved = epochs, 0

    def in_number(number: int) -> list[Encoded]:
        def is_rarer(each: Encoded) -> bool:
            return number < moved if each.replayed else number >= known

        return in_epoch([replace(each, every=2 * each.every) if is_rarer(each) else each for each in encoded], number)

    return _steps([in_number(number) for number in range(epochs)], size, chance, 1.0)


def rebalancing_steps(
    encoded: Sequence[Encoded], untold: float, begin: int, size: int, chance: random.Random
) -> list[Step]:
    """Return the steps of epochs, the first of which is number `begin`, with so many times what nobody told."""
    other = [
        each if each.replayed or each.every == 1 else replace(each, every=max(1, round(each.every / untold)))
        for each in encoded
    ]
    epochs = [in_epoch(other, number) for number in range(begin, begin + REBALANCING_EPOCHS)]
    return _steps(epochs, size, chance, _REBALANCING_RATE)


def batches(encoded: Sequence[Encoded], size: int, chance: random.Random) -> list[list[Encoded]]:
    """Return batches in a random order, each of prompts of about one length, so that little of it is padding.

    Plain texts, which begin as no prompt does, have batches of their own.
    """
    order = list(encoded)
    chance.shuffle(order)
    order.sort(key=lambda each: len(each.ids) // _ALIKE)
    kinds = [each for each in order if each.begin > 1], [each for each in order if each.begin == 1]
    found = [kind[begin : begin + size] for kind in kinds for begin in range(0, len(kind), size)]
    chance.shuffle(found)
    return found


def rate_share(step: int, steps: int) -> float:
    """Return the share of the learning rate at a step: it rises at first, then falls along half a cosine."""
    warm = max(1, int(steps * _WARM_UP))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _steps(epochs: Sequence[Sequence[Encoded]], size: int, chance: random.Random, most: float) -> list[Step]:
    found = [batch for taught in epochs for batch in batches(taught, size, chance)]
    return [Step(batch, most * rate_share(place, len(found))) for place, batch in enumerate(found)]


class _LikelyAt(torch.autograd.Function):  # type: ignore[misc]
    """Some places at a time; recorded, each row's gradient would be as large as the vocabulary (docs/log.md)."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        found, totals = [], []
        for some, its in zip(logits.split(_PLACES), tokens.split(_PLACES), strict=True):
            whole = some.float()
            totals.append(torch.logsumexp(whole, -1, keepdim=True))
            found.append(whole.gather(-1, its) - totals[-1])
        ctx.save_for_backward(logits, torch.cat(totals), tokens)
        return torch.cat(found)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, totals, tokens = ctx.saved_tensors
        of_logits = torch.empty_like(logits)
        for begin in range(0, len(logits), _PLACES):
            some = slice(begin, begin + _PLACES)
            chances = logits[some].sub(totals[some]).exp_()
            of_these = chances.mul_(-gradient[some].sum(-1, keepdim=True))
            of_logits[some] = of_these.scatter_add_(-1, tokens[some], gradient[some])
        return of_logits, None


# A batch of token sequences as a tree, in which what several begin with stands once, and where its heads lie.

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
        asked=asked.flatten(),
        given=(added * queries + query).flatten(),
        padded=adds.logical_not()[:, None, None].expand_as(asked).flatten().nonzero()[:, 0],
        keys=(seen * (queries + keys) + queries + key).flatten(),
        values=(seen * (queries + 2 * keys) + queries + keys + key).flatten(),
        found=slots[adds].flatten(),
        whose=(seen * keys + key).flatten(),
        mask=mask.expand(*asked.shape, len(order)).reshape(-1, asked[0, 0].numel(), len(order)),
        cos=cos,
        sin=sin,
    )
