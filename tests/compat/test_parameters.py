"""What MemoryOS's parameters mean in our settings."""

from __future__ import annotations

from pathlib import Path

from memos.compat.opening import OPENAI_URL, Model, Shape, embedder_of, settings_of
from memos.scheduler.heat import MemoryOsPolicy
from memos.scheduler.rules import MEMORYOS, rules_of


def test_capacities_and_thresholds_are_those_of_the_heat_policy(tmp_path: Path) -> None:
    shape = Shape(7, 50, 100, 7, 3.5, 0.8)
    settings = settings_of(tmp_path, shape, Model("key", None, "gpt-4o-mini").settings, None)
    rules = rules_of(settings.heat)
    assert isinstance(rules.policy, MemoryOsPolicy)
    assert rules.policy.formula == MEMORYOS
    assert (rules.short_capacity, rules.mid_capacity, rules.similarity) == (7, 50, 0.8)
    assert rules.thresholds.promote_above == 3.5
    assert settings.home == tmp_path


def test_a_key_means_openai_unless_there_is_another_url() -> None:
    for url in (None, "", "https://models.example.org/v1/"):
        model = Model("key", url, "small").settings
        assert model is not None
        assert model.base_url == ("https://models.example.org/v1" if url else OPENAI_URL)
        assert model.model == "small"
        assert "key" not in str(model.api_key)
    assert Model(None, None, "small").settings is None
    local = Model(None, "http://127.0.0.1:8080/v1", "small").settings
    assert local is not None
    assert local.api_key is None


def test_the_models_installed_here_keep_their_names() -> None:
    assert embedder_of("all-MiniLM-L6-v2", None) is None
    assert embedder_of("e5", {}) == "e5"
