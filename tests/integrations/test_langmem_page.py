"""LangMem's own tools over our store for LangGraph, as the page for its users shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langmem", reason="needs langmem: make test-integrations installs it")

from langgraph.store.memory import InMemoryStore

from memos.core.clock import new_id

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/migrating/langmem.md"


def test_its_tools_keep_memories_in_our_store_for_each_user_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(block, names)
    with names["memos"] as memos:
        manage, search = names["tools"]
        ana, ben = ({"configurable": {"langgraph_user_id": user}} for user in ("ana", "ben"))
        manage.invoke({"content": "Ana's parrot is called Hugo.", "action": "create"}, ana)
        assert "Hugo" in search.invoke({"query": "What is the parrot called?"}, ana)
        assert "Hugo" not in search.invoke({"query": "What is the parrot called?"}, ben)
        assert memos.search("What is the parrot called?", cubes=["ana"], actor="ana").hits

        old = InMemoryStore()
        for number in range(150):
            old.put(("memories", "ben"), new_id(), {"content": f"Ben saw bird {number}"})
        for _ in range(2):
            names["copy"](old, names["store"], "ben")
        assert len(memos.records.list(cube="ben", actor="ben", limit=200)) == 150
