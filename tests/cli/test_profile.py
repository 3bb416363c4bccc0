"""`memos profile`: what each command prints for people and for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.settings import LimitSettings
from memos.core.types import DEFAULT_CUBE
from memos.memcube.profiles.traits import find_traits
from tests.cli.test_commands import Store
from tests.fakes import WordEmbedder
from tests.memcube.profiles.facts import say, statement


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    home = tmp_path_factory.mktemp("profile") / "home"
    settings = Settings(limits=LimitSettings(min_free_bytes=1_000_000))
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        for day, place in ((1, "Lyon"), (9, "Bern")):
            said = say(memos, f"I live in {place} \x1b[31mnow.", day=day)
            found = find_traits([said], [statement(said, "residence", place)], memos.profiles.template(DEFAULT_CUBE))
            memos.profiles.put(DEFAULT_CUBE, found)
    return Store(home, {})


def test_show_prints_traits_with_evidence(store: Store) -> None:
    assert store.said("profile", "subjects") == "Anna\n"
    told = store.said("profile", "show")
    assert told.splitlines()[:2] == ["Anna (default, template standard)", "Life:"]
    assert "life.residence: Bern  (1.00, since 2025-03-09, item " in told
    assert "2025-03-09 Anna: Bern" in told
    assert "\x1b" not in told
    profile = store.told("profile", "show", "--subject", "Anna")
    assert profile["groups"][0]["traits"][0]["value"] == "Bern"
    assert store.said("profile", "show", "--tokens", "100") == "Life:\n- Residence: Bern\n"
    assert store.told("profile", "show", "--tokens", "1") == {"text": ""}
    assert store.said("profile", "show", "-s", "Nobody") == "nothing is known\n"
    assert "--tokens" in store.failed(2, "profile", "show", "--tokens", "9", "--as-of", "2025-03-09")


def test_history_rollback_and_diff(store: Store) -> None:
    before = datetime.now(UTC)
    entries = store.told("profile", "history", "life.residence")
    assert [entry["value"] for entry in entries[:3]] == ["Lyon", "Lyon", "Bern"]
    assert store.said("profile", "history", "life.residence").startswith("1  ")
    assert store.said("profile", "history", "life.diet") == "nothing was written\n"
    assert "life.residence: Lyon" in store.said("profile", "rollback", "life.residence", "1")
    since = before.isoformat()
    assert "~ life.residence: Lyon" in store.said("profile", "diff", since)
    assert store.told("profile", "diff", since)["changed"][0]["before"]["value"] == "Bern"
    assert store.said("profile", "diff", "2020-01-01", "2020-01-02") == "nothing changed\n"
    assert store.told("profile", "rollback", "life.residence", "3")["value"] == "Bern"
    store.failed(3, "profile", "rollback", "life.residence", "99")
    store.failed(2, "profile", "diff", "soon")


def test_set_and_unset(store: Store) -> None:
    assert "assistant.length: short  (given" in store.said("profile", "set", "assistant.length", "SHORT", "-s", "Anna")
    assert store.told("profile", "set", "assistant.length", "short", "-s", "Anna")["static"] is True
    assert "short, medium, long" in store.failed(2, "profile", "set", "assistant.length", "vast", "-s", "Anna")
    assert store.said("profile", "unset", "assistant.length") == "assistant.length is not known\n"
    store.failed(3, "profile", "unset", "assistant.length")


def test_templates(store: Store, tmp_path: Path) -> None:
    dimension = {"id": "shop.city", "name": "City", "about": "Where.", "kind": "text"}
    own = {"name": "workshop", "groups": [{"id": "shop", "name": "Workshop", "dimensions": [dimension]}]}
    (tmp_path / "own.json").write_text(json.dumps(own), encoding="utf-8")
    assert store.said("profile", "templates").startswith("standard: 90 dimensions\nPersonality:\n")
    assert store.said("profile", "use", str(tmp_path / "own.json")) == "default follows workshop, 1 dimensions\n"
    assert store.told("profile", "templates")["groups"][0]["dimensions"][0]["name"] == "City"
    assert store.told("profile", "use", "standard")["dimensions"] == 90
    store.failed(2, "profile", "use", str(tmp_path / "missing.json"))
