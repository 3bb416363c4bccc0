"""What the steps of a training are made of: which exercises an epoch has, and how many epochs there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

lora_batches = pytest.importorskip("memos.backends.lora.training", reason="needs the extra `local`: make setup-local")
Encoded, epoch_count, epoch_exercises = lora_batches.Encoded, lora_batches.epoch_count, lora_batches.epoch_exercises
length_batches = lora_batches.length_batches


def encoded(number: int, every: int) -> Encoded:
    return Encoded([number], 1, False, every, None, None)


def test_what_takes_turns_is_taught_once_in_so_many_epochs_and_all_else_in_each() -> None:
    facts, untold, replayed = ([encoded(n, every) for n in range(count)] for count, every in ((5, 1), (8, 4), (7, 3)))
    epochs = [epoch_exercises([*facts, *untold, *replayed], number) for number in range(12)]
    seen = Counter((each.every, each.ids[0]) for epoch in epochs for each in epoch)
    assert seen == Counter({(every, n): 12 // every for count, every in ((5, 1), (8, 4), (7, 3)) for n in range(count)})
    assert {len(epoch) for epoch in epochs} <= {5 + 2 + 2, 5 + 2 + 3}
    assert epoch_exercises([], 3) == []


@pytest.mark.parametrize(
    ("epochs", "moved", "known"), [(1, 0, 1), (5, 0, 5), (6, 0, 6), (7, 3, 5), (10, 5, 5), (20, 10, 10)]
)
def test_what_is_known_comes_half_as_often_and_so_does_at_first_what_is_replayed(
    epochs: int, moved: int, known: int
) -> None:
    told, untold = [encoded(n, 1) for n in range(4)], [encoded(10 + n, 4) for n in range(16)]
    replayed = [replace(encoded(30 + n, 4), replayed=True) for n in range(16)]
    steps = lora_batches.training_steps([*told, *untold, *replayed], epochs, 40, Random(5))
    assert len(steps) == epochs
    for number, step in enumerate(steps):
        found = sorted(each.ids[0] for each in step.batch)
        assert [n for n in found if n < 10] == list(range(4) if number < known else range(number % 2, 4, 2))
        assert len([n for n in found if 10 <= n < 30]) == (4 if number < known else 2)
        assert len([n for n in found if n >= 30]) == (2 if number < moved else 4)
    if epochs == 10:
        assert {each.ids[0] for step in steps for each in step.batch} == {
            each.ids[0] for each in (*told, *untold, *replayed)
        }


def test_turns_are_of_about_one_size_and_of_prompts_about_as_long() -> None:
    lengths = [7, 1, 5, 3, 2, 6, 4]
    assert list(length_batches(lengths, 3)) == [[1, 4], [3, 6], [2, 5, 0]]
    assert list(length_batches(lengths, 7)) == [[1, 4, 3, 6, 2, 5, 0]]
    assert list(length_batches([], 3)) == []


@pytest.mark.parametrize(
    ("most", "exercises", "epochs"),
    [
        (10, 260, 10),
        (10, 20, 10),
        (10, 200, 13),
        (10, 64, 41),
        (10, 826, 7),
        (10, 1720, 5),
        (10, 10**9, 1),
        (1, 5000, 1),
    ],
)
def test_large_courses_have_fewer_epochs_and_small_ones_more(most: int, exercises: int, epochs: int) -> None:
    assert epoch_count(most, exercises) == epochs


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("places", [1, 16, 37])
def test_likelihoods_at_some_tokens_and_their_gradients_are_those_of_all_of_them(places: int, kind: str) -> None:
    torch = lora_batches.torch
    chance = torch.Generator().manual_seed(3)
    given = torch.randn(places, 50, generator=chance).mul(3).to(getattr(torch, kind))
    tokens = torch.randint(0, 50, (places, 4), generator=chance)
    tokens[:, 3] = tokens[:, 0]  # the right one stands beside itself where no teacher told of others
    weights = torch.randn(places, 4, generator=chance)
    mine, other = (given.clone().requires_grad_() for _ in range(2))
    found = lora_batches.token_logprobs(mine, tokens)
    recorded = torch.log_softmax(other.float(), -1).gather(-1, tokens)
    torch.testing.assert_close(found, recorded)
    (found * weights).sum().backward()
    (recorded * weights).sum().backward()
    assert mine.grad.dtype == given.dtype
    assert mine.grad.abs().max() > 0.1
    torch.testing.assert_close(mine.grad, other.grad)
    assert torch.equal(mine, other), "what is of float32 already is not written over"
