"""Twenty SIGKILLs while pages overflow, hot ones are read, facts get in order, old ones go: nothing is halved."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.core.types import DERIVED, LinkKind, Status
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as tiers
from memos.scheduler.rules import TierSettings
from tests.fakes import WordEmbedder
from tests.support import forks
from tests.support.ledgers import end_leases

ROOT = Path(__file__).resolve().parents[2]

WORKER = """
import random, sys
from datetime import timedelta
from memos import MemOS, Settings
from memos.core.identities import Right
from memos.memcube.ledger import segments as tiers
from memos.scheduler.jobs import segments as sweep
from memos.scheduler.rules import TierSettings
from tests.fakes import WordEmbedder
tiers._GATHERING = sweep.GRACE = timedelta(0)
chance = random.Random(int(sys.argv[2]))
places = ["Paris", "Lyon", "Rome", "Oslo", "Kyoto"]
heat = TierSettings(short_capacity=2, promote_above=1.5, demote_below=0.5, mid_capacity=6)
with MemOS.open(sys.argv[1], settings=Settings(heat=heat), embedder=WordEmbedder()) as memos:
    memos.retention.add(action="archive", types=["assistant"], age_days=0)
    memos.retention.add(action="delete", tags=["explicit"], age_days=0)
    memos.retention.add(action="erase", tags=["private"], age_days=0)
    print("open", flush=True)
    while True:
        who, day = chance.choice(["Ann", "Bob", "Cy"]), chance.randint(1, 28)
        said = chance.choice([f"I moved to {chance.choice(places)}.", f"I live in {chance.choice(places)} now.",
                              f"I work at {chance.choice(places)} Bank.", f"Note {chance.random()} about the garden."])
        conversation = chance.choice([None, "talk"])
        at = f"2026-{chance.choice(['02', '10', '11'])}-{day:02}"
        memos.add([{"role": "user", "name": who, "content": said, "chat_time": at}], conversation=conversation)
        if chance.random() < 0.3:
            memos.search(f"Where does {who} live, Paris or Lyon?", top_k=3)
            memos._scheduler.accesses.flush()
        if chance.random() < 0.1:
            memos.tiers.analyse(everything=True)
        if chance.random() < 0.1:
            with memos._change(memos._scopes.of(["default"], "owner", right=Right.WRITE)) as change:
                memos._scheduler.sweep(change)
        if chance.random() < 0.1:
            memos.add("I love coffee, and this is private.", tags=["private"])
            memos.add({"role": "user", "name": who, "content": "I love tea.", "chat_time": at})
        if chance.random() < 0.1:
            memos.retention.run()
        if chance.random() < 0.05:
            memos.erase(chance.choice(memos.memories.list(limit=5)).id, wait=False)
        print("did", flush=True)
"""


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("crash") / "home"
    chance, kills = random.Random(23), 20
    for number in range(kills):
        with forks.Script(WORKER, str(home), str(number)) as process:
            assert process.stdout.readline() == "open\n"
            time.sleep(chance.uniform(0.05, 0.7))  # when the kill comes is the test
            process.kill()
    return home


def test_nothing_is_halved(survived: Path) -> None:
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        heat=TierSettings(short_capacity=2, promote_above=1.5, demote_below=0.5, mid_capacity=6),
    )
    end_leases(survived)
    with MemOS.open(survived, settings=settings, embedder=WordEmbedder()) as memos:
        memos._scheduler.runner.keep_leases()
        memos.tiers.analyse(everything=True)
        memos.tasks.wait(timeout_s=120)
        memos.retention.run()
        assert memos.retention.run() == ()  # it has an end
        assert memos.memories.list(filter={"tags": {"contains": "private"}}) == []
        assert memos.memories.list(filter={"and": [{"tags": {"contains": "explicit"}}, {"status": "active"}]}) == []
        assert not {"failed", "dead", "running", "waiting"} & set(memos.tasks.counts(cubes=["default"]))
        assert memos.maintenance.verify().differences == ()
        with memos.ledger.read() as connection:
            assert tiers.misplaced(connection, "default", 100) == []
            unread = sa.select(sa.func.count()).select_from(t.pages).where(t.pages.c.read.is_(False))
            assert connection.scalar(unread) == 0
            moves = connection.scalar(sa.select(sa.func.count()).where(t.events.c.kind == "move"))
            assert (moves or 0) > 10
            links = connection.execute(sa.select(t.links)).all()
        derived = memos.memories.list(filter={"type": {"in": sorted(DERIVED)}}, limit=10_000)
        assert len(derived) > 5
        origins = {link.from_id for link in links if link.kind == LinkKind.DERIVED_FROM}
        replaced = {(link.from_id, link.to_id) for link in links if link.kind == LinkKind.SUPERSEDES}
        current = Counter(item.key for item in derived if item.status is Status.ACTIVE and item.key is not None)
        assert set(current.values()) == {1}
        known = {item.id for item in derived}
        for item in derived:
            assert item.id in origins
            assert memos.get(item.id).sources
            if item.status is Status.SUPERSEDED and item.superseded_by is not None:
                assert item.superseded_by in known
                assert (item.superseded_by, item.id) in replaced
                assert item.valid_to is not None
        said = Counter((item.key, item.value, item.valid_from) for item in derived if item.key is not None)
        assert max(said.values()) == 1
