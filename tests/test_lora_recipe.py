"""What a recipe may be: told by a setting, or by a file from elsewhere."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from pydantic import ValidationError

from memos import Settings
from memos.lora_recipe import Recipe, recipe_with
from memos.settings import ParametricSettings


def test_what_is_not_told_is_as_usual_and_alpha_follows_the_rank() -> None:
    assert recipe_with({}) == Recipe()
    assert recipe_with({"rank": 16, "layers": "all", "imitation": 1}) == replace(
        Recipe(), rank=16, alpha=32, layers="all", imitation=1
    )
    assert recipe_with({"rank": 16, "alpha": 16}).alpha == 16
    assert recipe_with(asdict(Recipe())) == Recipe()


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
    with pytest.raises(ValidationError):
        ParametricSettings(recipe=told)


def test_a_recipe_is_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOS_PARAMETRIC__RECIPE", '{"rank": 8, "layers": "all", "learning_rate": 1e-3}')
    assert recipe_with(Settings().parametric.recipe) == Recipe(rank=8, alpha=16, layers="all", learning_rate=1e-3)
