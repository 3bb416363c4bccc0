"""Documents in a ledger on PostgreSQL: kept in parts, read whole, replaced, found broken, erased, moved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from memos import MemOS, Settings
from memos.core.types import FileState
from memos.errors import NotFound
from memos.kernel.relocation import migrate
from tests.fakes import WordEmbedder
from tests.kernel.test_documents import MANUAL, put, texts
from tests.support.servers.postgres_server import PostgresServer


def test_documents_on_postgresql(postgres_server: PostgresServer, tmp_path: Path, settings: Settings) -> None:
    there = settings.model_copy(update={"home": tmp_path / "home", "ledger_url": SecretStr(postgres_server.url())})
    big = os.urandom(3 << 19).hex().encode()
    with MemOS.open(settings=there, embedder=WordEmbedder()) as memos:
        memos.knowledge.create("kb")
        old = put(memos, "manual.md", MANUAL, cube="kb")
        assert put(memos, "copy.md", MANUAL, cube="kb") == old
        new = put(memos, "manual.md", MANUAL.replace(b"xylophone", b"leather"), cube="kb")
        assert memos.documents.get(old.id).state is FileState.SUPERSEDED
        large = put(memos, "big.txt", big, cube="kb")
        assert memos.documents.content(large.id) == big
        assert memos.documents.markdown(large.id).encode() == big
        assert memos.maintenance.verify().clean
        memos.erase(memos.search("leather gloves", cubes=["kb"])[0].item.id)
        with pytest.raises(NotFound, match="erased"):
            memos.documents.content(new.id)
        memos.documents.delete(large.id)
        assert len(texts(memos, "kb")) == 1
        assert memos.maintenance.verify().clean
        with memos.ledger.write() as connection:
            connection.exec_driver_sql("UPDATE files SET bytes = bytes + 1 WHERE id = %(id)s", {"id": old.id})
        [found] = memos.maintenance.verify().differences
        assert (found.store, found.subject) == ("files", old.id)
        with memos.ledger.write() as connection:
            connection.exec_driver_sql("UPDATE files SET bytes = bytes - 1 WHERE id = %(id)s", {"id": old.id})
    here = settings.model_copy(update={"home": tmp_path / "here"})
    assert migrate(there, here, embedder=WordEmbedder()).differences == ()
    with MemOS.open(settings=here, embedder=WordEmbedder()) as memos:
        assert memos.documents.content(large.id) == big
        assert memos.documents.markdown(old.id) == MANUAL.decode()
