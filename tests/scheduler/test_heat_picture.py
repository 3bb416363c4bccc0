"""The picture of heat is made from the scheduler's own rules, and is the same every time."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from memos.core.settings import HeatSettings
from memos.scheduler.rules import rules_of, wanted_tau

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts/heat_picture.py"))


def test_what_is_used_is_promoted_and_what_is_left_alone_is_archived(script: dict[str, Any]) -> None:
    rules = rules_of(HeatSettings(), wanted_tau(HeatSettings(), script["SHARE"]))
    found = {name: script["course"](life, rules) for name, life in script["LIVES"].items()}
    journey, job, choir, once, allergy = found.values()
    assert (len(journey.promoted), len(journey.archived)) == (1, 1)
    assert journey.promoted[0] < journey.archived[0]
    assert (len(job.promoted), len(job.archived)) == (1, 0)
    assert (choir.promoted, choir.archived) == ((), ())  # between the thresholds, week after week
    assert (len(once.promoted), len(once.archived)) == (0, 1)
    assert len(allergy.promoted) >= 1
    for course in found.values():
        for place in course.promoted:
            assert course.heats[place] >= rules.thresholds.promote_above
        for place in course.archived:
            assert course.heats[place] < rules.thresholds.demote_below


def test_the_picture_in_the_documents_is_what_the_script_draws(script: dict[str, Any], tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        script["main"](["--out", str(tmp_path / name)])
    drawn = (tmp_path / "one.svg").read_bytes()
    assert drawn == (tmp_path / "two.svg").read_bytes()
    for name in script["LIVES"]:
        assert f"<!-- {name} -->" in drawn.decode()
        assert f"<!-- {name} -->" in (ROOT / "docs/images/heat.svg").read_text(encoding="utf-8")
