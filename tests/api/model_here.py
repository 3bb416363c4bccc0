"""An installation whose chat model is a tiny one in this process, for tests of what is kept of its prompts."""

from __future__ import annotations

import time
from pathlib import Path

from memos import MemOS, Settings
from memos.core.clock import new_id
from memos.core.settings import ChatSettings, IndexSettings, LimitSettings, TaskSettings
from tests.fakes import WordEmbedder
from tests.support import tiny_models  # skips without the extra `local`

NOTES = [f"Note {n}: the hive at number {n} of the lane has a queen who is {n} weeks old." for n in range(8)]


def saved(folder: Path) -> Path:
    """Save such a model, whose answers have one token."""
    made = tiny_models.saved(folder)
    config = tiny_models.transformers.GenerationConfig.from_pretrained(made)
    config.eos_token_id = list(range(256))
    config.save_pretrained(made)
    return made


def opened(home: Path, model: Path, **tasks: int) -> MemOS:
    """Open an installation that chats with such a model."""
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        tasks=TaskSettings(**tasks),
        chat_model=ChatSettings(model=f"local:{model}", max_tokens=4),
    )
    return MemOS.open(home, settings=settings, embedder=WordEmbedder())


def noted(memos: MemOS, owner: str) -> tuple[str, list[str]]:
    """Make a cube of somebody's whose pinned memories its prompts are to begin with; return it and their ids."""
    cube = new_id()
    memos.cubes.create(cube, actor=owner)
    ids = [memos.add(text, cube=cube, actor=owner).item_ids[0] for text in NOTES]
    for id_ in ids:
        memos.tiers.pin(id_, cube=cube, actor=owner)
    settled(memos)
    return cube, ids


def settled(memos: MemOS) -> None:
    """Wait until what prompts begin with is composed and warm, and what is to be on the disk is there."""
    deadline = time.monotonic() + 120
    while any(task.kind in ("compose", "warm") and not task.ended for task in memos.tasks.list(limit=1000)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if (store := memos._installation.activations._store) is not None:
        store.settle()
