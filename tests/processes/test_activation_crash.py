"""Kill -9 while blocks are written: what the next process finds is right, or not there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from memos.memcube.activation.blocks import Tier
from memos.memcube.activation.store import BlockStore
from tests.fakes import FixedClock
from tests.memcube.activation.made import SIZE, array_of, chain, keys_of, tiers_of

ROOT = Path(__file__).resolve().parents[2]
KILLS = 8
WRITER = """
import sys
from pathlib import Path
from memos.memcube.activation.blocks import Tier
from memos.memcube.activation.store import BlockStore
from tests.fakes import FixedClock
from tests.memcube.activation.made import SIZE, array_of, chain, keys_of

store = BlockStore({Tier.HOST: 60 * SIZE, Tier.DISK: 40 * SIZE}, FixedClock(), folder=Path(sys.argv[1]))
print("ready", flush=True)
prompt = 0
while True:
    made = chain(keys_of(prompt % 17, 4, shared=1), [[], [f"item-{prompt % 17}"]])
    with store.checkout([block.key for block in made]) as lent:
        for block in made[len(lent):]:
            if not lent.add(block, array_of(block), Tier.HOST):
                break
    if prompt % 29 == 0:
        store.forget([f"item-{prompt % 17}"])
    prompt += 1
"""


def test_no_kill_leaves_a_block_that_is_wrong_or_a_file_that_nothing_knows(tmp_path: Path) -> None:
    kept = 0
    for kill in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(random.Random(kill).uniform(0.02, 0.4))
            writer.send_signal(signal.SIGKILL)
        store = BlockStore({Tier.HOST: 60 * SIZE, Tier.DISK: 40 * SIZE}, FixedClock(), folder=tmp_path)
        assert store.verify() == []
        for prompt in range(17):
            made = chain(keys_of(prompt, 4, shared=1))
            with store.checkout([block.key for block in made], counted=False) as lent:
                for block, (_, array) in zip(made, lent.load(len(lent)), strict=False):
                    assert np.array_equal(array, array_of(block))
                kept += len(lent)
        stats = tiers_of(store)[Tier.DISK]
        assert len(list(tmp_path.glob("*/*.safetensors"))) == stats.blocks
        assert stats.size_bytes <= 40 * SIZE
        assert not list(tmp_path.glob("*/*.new"))
        store.close()
    assert kept > 0
