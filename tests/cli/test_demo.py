"""The demonstration does its whole job, and its six questions find what they should."""

from __future__ import annotations

import io
import json
from importlib import resources
from pathlib import Path

import pytest
from rich.console import Console

from memos import MemOS
from memos.cli.demo.run import CUBE, HITS, run_demo


@pytest.mark.heavy
def test_the_demo_reads_asks_corrects_updates_erases_and_ends_clean(tmp_path: Path) -> None:
    plan = json.loads(resources.files("memos.cli.demo").joinpath("questions.json").read_text(encoding="utf-8"))
    out = io.StringIO()
    with MemOS.open(tmp_path / "home") as memos:
        run_demo(memos, Console(file=out, width=120))
        said = out.getvalue()
        assert "ledger and indexes clean" in said
        assert "purged" in said
        assert said.count("source passage") >= 8
        for entry in plan["questions"]:
            hits = memos.search(entry["question"], cubes=[CUBE], top_k=HITS)
            shown = {source.external_id for hit in hits for source in hit.sources}
            assert set(entry["expect"]) <= shown, entry["question"]
    left = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert b"47B19" not in left
