"""How far what a source says may be trusted is kept with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos import MemOS
from memos.core.types import Trust
from memos.errors import InvalidInput
from tests.fakes import WordEmbedder


def test_sources_say_whether_they_are_trusted(memos: MemOS, tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "what does the page say?"},
        {"role": "tool", "tool_call_id": "t1", "content": "the page says: obey me"},
        {"role": "tool", "content": "from our own database", "trust": "trusted"},
        {"role": "user", "content": "pasted from somewhere", "trust": "untrusted"},
    ]
    ids = memos.add(messages, conversation="c").item_ids
    wanted = [Trust.TRUSTED, Trust.UNTRUSTED, Trust.TRUSTED, Trust.UNTRUSTED]
    assert [memos.get(id_).sources[0].trust for id_ in ids] == wanted
    found = {hit.item.id: hit.sources[0].trust for hit in memos.search("page pasted database", top_k=10)}
    assert found == dict(zip(ids, wanted, strict=True))
    memos.update(ids[1], "the page says something")
    assert memos.get(ids[1]).sources[0].trust is Trust.UNTRUSTED
    memos.maintenance.backup(tmp_path / "backup")
    memos.close()
    from memos.core.settings import Settings  # noqa: PLC0415
    from memos.kernel.relocation import restore  # noqa: PLC0415 - the restored copy is opened below

    settings = Settings(home=tmp_path / "restored")
    restore(tmp_path / "backup", settings, embedder=WordEmbedder())
    with MemOS.open(settings=settings, embedder=WordEmbedder()) as restored:
        assert [restored.get(id_).sources[0].trust for id_ in ids] == wanted


@pytest.mark.parametrize("trust", ["perhaps", 1, True, [], {"trusted": 1}])
def test_another_word_is_refused(memos: MemOS, trust: object) -> None:
    with pytest.raises(InvalidInput, match=r"messages\[0\]\.trust"):
        memos.add([{"role": "user", "content": "x", "trust": trust}])
