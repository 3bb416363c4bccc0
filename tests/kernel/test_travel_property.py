"""Whatever was done to a cube: a dump of it, loaded into another installation, is equal in all that can be asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.core.types import Item, Status, Tier
from memos.memcube.dump import container as sealing
from tests.fakes import WordEmbedder
from tests.support.examples import share

SETTINGS = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
WORDS = ["apple", "brick", "cello", "délta", "埃及", "fjord \u2028", "I live in Oslo.", "I live in Rome."]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
PICK = st.integers(0, 50)
STEP = st.one_of(
    st.tuples(st.just("add"), TEXT, st.sampled_from([None, "c", "d"])),
    st.tuples(st.just("update"), PICK, TEXT),
    st.tuples(st.just("delete"), PICK),
    st.tuples(st.just("rollback"), PICK),
    st.tuples(st.just("feedback"), PICK, TEXT),
    st.tuples(st.just("erase"), PICK),
    st.tuples(st.just("pin"), PICK),
    st.tuples(st.just("describe"), TEXT),
)
NUMBERS = itertools.count()
LATER = {"load", "move"}
"""Events of the load itself, and of the background, which goes on where the dump was made."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemOS, MemOS, Path]]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        pytest.MonkeyPatch.context() as patched,
        MemOS.open(folder / "a", settings=SETTINGS, embedder=WordEmbedder()) as one,
        MemOS.open(folder / "b", settings=SETTINGS, embedder=WordEmbedder()) as two,
    ):
        patched.setattr(sealing, "_LOG_N", 10)
        yield one, two, folder


def do(memos: MemOS, cube: str, step: tuple[Any, ...]) -> None:
    if step[0] == "add":
        memos.add([{"role": "user", "name": "Maya", "content": step[1]}], cube=cube, conversation=step[2], tags=["t"])
        return
    if step[0] == "describe":
        memos.cubes.change(cube, description=step[1])
        return
    items = memos.memories.list(cube=cube, limit=1000, filter={"status": {"in": [str(status) for status in Status]}})
    if not items:
        return
    item = items[step[1] % len(items)]
    live = item.status is not Status.DELETED
    if step[0] == "update" and live:
        memos.update(item.id, step[2], tags=["changed"])
    elif step[0] == "delete":
        memos.delete(item.id)
    elif step[0] == "rollback" and all(
        entry.after.status is not Status.DELETED for entry in memos.memories.history(item.id)[:1]
    ):
        memos.memories.rollback(item.id, 1)
    elif step[0] == "feedback" and live:
        memos.feedback(step[2], cube=cube, speaker="Maya", item_ids=[item.id])
    elif step[0] == "erase":
        memos.erase(item.id, wait=False)
    elif step[0] == "pin" and live:
        memos.tiers.pin(item.id, cube=cube)


def settled(item: Item) -> Item:
    """An item but for its tier, which the background changes in its own time."""
    return replace(item, tier=Tier.SHORT)


def all_of(memos: MemOS, cube: str) -> dict[str, Any]:
    memos.tasks.wait(cubes=[cube], timeout_s=60)  # a search ranks by tier
    items = memos.memories.list(cube=cube, limit=1000, filter={"status": {"in": [str(status) for status in Status]}})
    alive: list[Item] = [memos.get(item.id) for item in items if item.status is not Status.DELETED]
    found: dict[str, Any] = {
        "items": [settled(item) for item in items],
        "sources": [settled(item) for item in alive],
        "history": [
            [(entry.version, entry.recorded_at, entry.actor, entry.reason, settled(entry.after)) for entry in history]
            for history in (memos.memories.history(item.id) for item in items)
        ],
        "cube": replace(memos.cubes.get(cube), owner=""),
        "events": [event for event in memos.events.list(cube, limit=10_000) if event.kind not in LATER],
    }
    for word in ("apple", "Oslo", "埃及"):
        hits = memos.search(word, cubes=[cube], top_k=50)
        found[word] = [(hit.item.id, round(hit.score, 3), hit.sources) for hit in hits]
    return found


@settings(max_examples=share(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=1, max_size=14), st.booleans())
def test_dump_and_load_is_equal(pair: tuple[MemOS, MemOS, Path], steps: list[tuple[Any, ...]], sealed: bool) -> None:
    source, target, folder = pair
    cube = f"cube-{next(NUMBERS)}"
    source.cubes.create(cube)
    for step in steps:
        do(source, cube, step)
    secret = "correct horse" if sealed else None
    source.transfer.dump(cube, folder / f"{cube}.memcube", passphrase=secret)
    target.transfer.load(folder / f"{cube}.memcube", trust=True, passphrase=secret)
    ours, theirs = all_of(source, cube), all_of(target, cube)
    for what, value in ours.items():
        assert theirs[what] == value, what
    again = target.transfer.load(folder / f"{cube}.memcube", merge=True, passphrase=secret)
    assert (again.items, again.differing) == (0, ())
    assert again.skipped == len(ours["items"])
    assert target.maintenance.verify(cubes=[cube]).clean
