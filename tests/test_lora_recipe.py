"""What a recipe may be: told by a setting, or by a file from elsewhere."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from memos.core.lora import LoraRecipe, next_seed, recipe_with, taught_alike


def test_what_is_not_told_is_as_usual_and_alpha_follows_the_rank() -> None:
    assert recipe_with({}) == LoraRecipe()
    assert recipe_with({"rank": 16, "layers": "all", "imitation": 1}) == replace(
        LoraRecipe(), rank=16, alpha=32, layers="all", imitation=1
    )
    assert recipe_with({"rank": 16, "alpha": 16}).alpha == 16
    assert recipe_with(asdict(LoraRecipe())) == LoraRecipe()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"ranks": 4}, "'ranks' is nothing of a recipe"),
        ({"rank": 0}, "rank must be from 1 to 256, not 0"),
        ({"rank": 10**9}, "rank must be from 1 to 256"),
        ({"batch": 0}, "batch must be from 1 to 1,024, not 0"),
        ({"epochs": -1}, "epochs must be from 1"),
        ({"rank": True}, "rank must be of the kind int, not True"),
        ({"rank": "4"}, "rank must be of the kind int, not '4'"),
        ({"half": 1}, "half must be of the kind bool, not 1"),
        ({"learning_rate": float("nan")}, "learning_rate must be from"),
        ({"learning_rate": float("inf")}, "learning_rate must be from"),
        ({"layers": "none"}, "layers must be mlp or all, not 'none'"),
        ({"layers": 4}, "layers must be of the kind str"),
    ],
)
def test_what_is_no_recipe_is_refused_by_name(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        recipe_with(told)


def test_recipes_that_differ_in_the_seed_alone_teach_alike() -> None:
    told = asdict(LoraRecipe())
    assert taught_alike(told, {**told, "seed": 7})
    assert not taught_alike(told, {**told, "epochs": 9})
    assert not taught_alike(told, {name: value for name, value in told.items() if name != "half"})


@pytest.mark.parametrize(("told", "refused", "following"), [(5, 5, 6), (5, 9, 10), (20, 5, 20), (0, 2**63 - 1, 0)])
def test_the_next_seed_is_one_that_was_not_tried(told: int, refused: int, following: int) -> None:
    assert next_seed(LoraRecipe(seed=told), {"seed": refused}) == following
