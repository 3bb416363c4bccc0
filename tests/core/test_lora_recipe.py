"""What a recipe may be: told by a setting, or by a file from elsewhere."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from pydantic import ValidationError

from memos import Settings
from memos.core.lora import LoraRecipe, recipe_with, told_recipe
from memos.core.settings import ParametricSettings


def test_what_is_not_told_is_as_usual_and_alpha_follows_the_rank() -> None:
    assert recipe_with({}) == LoraRecipe()
    assert recipe_with({"rank": 4, "replay": 1}) == replace(LoraRecipe(), rank=4, alpha=8, replay=1)
    assert recipe_with({"rank": 16, "alpha": 16}).alpha == 16
    assert recipe_with(asdict(LoraRecipe())) == LoraRecipe()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"ranks": 4}, "'ranks' is not part of a recipe"),
        ({"rank": 0}, "rank must be from 1 to 256, not 0"),
        ({"rank": 10**9}, "rank must be from 1 to 256"),
        ({"batch": 0}, "batch must be from 1 to 1,024, not 0"),
        ({"epochs": -1}, "epochs must be from 1"),
        ({"rank": True}, "rank must be of type int, not True"),
        ({"rank": "4"}, "rank must be of type int, not '4'"),
        ({"half": 1}, "half must be of type bool, not 1"),
        ({"learning_rate": float("nan")}, "learning_rate must be from"),
        ({"learning_rate": float("inf")}, "learning_rate must be from"),
        ({"layers": "mlp"}, "layers is always all since version 0.2"),
        ({"imitation": 0.5}, "imitation is always 0.0"),
    ],
)
def test_what_is_no_recipe_is_refused_by_name(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        recipe_with(told)
    with pytest.raises(ValidationError):
        ParametricSettings(recipe=told)


def test_a_recipe_is_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOS_PARAMETRIC__RECIPE", '{"rank": 8, "learning_rate": 1e-3}')
    assert recipe_with(Settings().parametric.recipe) == LoraRecipe(rank=8, alpha=16, learning_rate=1e-3)


def test_a_recipe_is_stored_with_the_names_that_it_had() -> None:
    told = told_recipe(LoraRecipe())
    assert told == {**asdict(LoraRecipe()), "layers": "all", "rate_ratio": 1.0, "imitation": 0.0}
    assert recipe_with(told) == LoraRecipe()
