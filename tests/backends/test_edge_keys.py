"""What is kept of which point is whose: over restarts, cut-off files and too many points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.backends.qdrant import embedded_process as edge_keys
from memos.backends.qdrant.embedded_process import KEYS_FILE, PointKeys


def refuse(points: Sequence[int]) -> Mapping[int, str]:
    raise AssertionError(f"{points} should be known")


def test_what_was_saved_is_known_after_a_restart_and_what_was_not_is_asked_for(tmp_path: Path) -> None:
    keys = PointKeys(tmp_path)
    keys.write(7, "item-a:1")
    keys.write(2**128 - 1, "item-b:2")
    keys.save()
    keys.write(9, "item-c:1")
    again = PointKeys(tmp_path)
    assert again.of([2**128 - 1, 7], refuse) == ["item-b:2", "item-a:1"]
    assert again.of([9], lambda points: dict.fromkeys(points, "asked:1")) == ["asked:1"]
    assert again.of([9], refuse) == ["asked:1"]


@given(cut=st.integers(0, 400), garbage=st.binary(max_size=40))
def test_a_cut_off_or_overwritten_end_costs_only_what_it_held(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    keys = PointKeys(folder)
    for point in range(6):
        keys.write(point, f"item-{point}:1")
        keys.save()
    file = folder / KEYS_FILE
    file.write_bytes(file.read_bytes()[:cut] + garbage)
    damaged = PointKeys(folder)
    asked: list[int] = []

    def ask(points: Sequence[int]) -> dict[int, str]:
        asked.extend(points)
        return {point: f"item-{point}:1" for point in points}

    assert damaged.of(range(6), ask) == [f"item-{point}:1" for point in range(6)]
    damaged.write(6, "item-6:1")
    damaged.save()
    assert PointKeys(folder).of([*sorted(set(range(6)) - set(asked)), 6], refuse)[-1] == "item-6:1"


def test_more_points_than_fit_in_memory_are_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_keys, "_MOST", 4)
    keys = PointKeys(tmp_path)
    for point in range(10):
        keys.write(point, f"item-{point}:1")
    keys.save()
    for held in (keys, PointKeys(tmp_path)):
        for first in range(8):
            wanted = [first, first + 1, first + 2]
            found = held.of(wanted, lambda points: {point: f"item-{point}:1" for point in points})
            assert found == [f"item-{point}:1" for point in wanted]
