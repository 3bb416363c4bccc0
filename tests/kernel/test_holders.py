"""Every table and path of a real installation is registered with what it may hold and who erases it."""

from __future__ import annotations

import importlib

import pytest
import sqlalchemy as sa

from memos import MemOS
from memos.memcube.installation import BACKUP_PATHS, PATHS, TABLES, VECTOR_TABLES, DataKind, DataLocation


def test_every_table_is_registered(memos: MemOS) -> None:
    with memos.ledger.read() as connection:
        tables = set(sa.inspect(connection).get_table_names())
    assert tables - {"sqlite_sequence"} == {holder.name for holder in TABLES}


def test_every_path_of_an_installation_is_registered(memos: MemOS) -> None:
    memos.add(["some text", "more text"], conversation="c")
    memos.erase(memos.memories.list()[0].id)
    memos._context.indexes.vector.flush()
    found = {path.name for path in memos.home.iterdir()}
    assert found <= {holder.name for holder in PATHS}
    assert {"ledger.db", "vector", "lock"} <= found


@pytest.mark.parametrize("holder", [*TABLES, *VECTOR_TABLES, *PATHS, *BACKUP_PATHS], ids=lambda holder: holder.name)
def test_what_holds_text_names_functions_that_exist(holder: DataLocation) -> None:
    if holder.holds is not DataKind.IDS:
        assert holder.erased_by
    for name in (holder.erased_by, holder.verified_by):
        if name:
            assert callable(_resolve(name)), name


def _resolve(name: str) -> object:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(name)
