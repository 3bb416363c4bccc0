"""Both clients on adapters: as `MemOS.adapters` has them; nothing is trained."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from memos.core.clock import new_id
from memos.errors import BackendUnavailable, Conflict, NotFound, PermissionDenied
from memos.kernel.adapters.transfer import EXPORTED
from memos.memcube.parametric.forgetting import FOLDER
from tests.api.client.conftest import Listening, Open
from tests.support.adapters import active, with_a_model, with_card, with_files


def _made(listening: Listening, cube: str, ids: list[str]) -> str:
    assert listening.memos.home is not None
    id_ = active(listening.memos.ledger, ids, cube=cube)
    with_card(with_files(listening.memos.home / FOLDER, id_))
    return id_


def test_what_is_learned_is_looked_at_and_taken_back(
    listening: Listening, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, cube = opened(listening.url, listening.ana), new_id()
    client.cubes.create(cube)
    ids = [client.memories.add(text, cube=cube).item_ids[0] for text in ("I live in Lyon.", "I keep bees.")]
    assert client.adapters.preview(cube).allowed is False
    client.adapters.allow(cube)
    assert client.adapters.preview(cube).allowed
    assert client.adapters.list(cube) == []
    first, second = _made(listening, cube, ids), _made(listening, cube, ids[1:])
    assert [(each.id, each.state, each.number) for each in client.adapters.list(cube)] == [
        (second, "active", 2), (first, "retired", 1)
    ]  # fmt: skip
    assert client.adapters.get(first).measures == {"recall": 0.9}
    assert client.adapters.activate(first).state == "active"
    assert client.adapters.activate(second).state == "active"
    client.adapters.remove(second)
    done = client.adapters.forget(ids[0], cube)
    assert (done.items, done.adapters, done.files) == ((ids[0],), (first,), len(EXPORTED))
    client.adapters.allow(cube, items=ids)
    assert client.adapters.disallow(cube) == 0
    with pytest.raises(BackendUnavailable, match="No model to train"):
        client.adapters.train(cube)
    monkeypatch.setattr(listening.memos, "adapters", with_a_model(listening.memos))
    with pytest.raises(Conflict, match="is not allowed"):
        client.adapters.train(cube)
    with pytest.raises(NotFound):
        client.adapters.get(second)


def test_an_export_is_a_new_zip_for_owners(listening: Listening, opened: Open, tmp_path: Path) -> None:
    ana, ben, cube = opened(listening.url, listening.ana), opened(listening.url, listening.ben), new_id()
    ana.cubes.create(cube)
    ana.adapters.allow(cube)
    id_ = _made(listening, cube, list(ana.memories.add("I live in Lyon.", cube=cube).item_ids))
    assert ana.adapters.export(id_, tmp_path / "out.zip") == tmp_path / "out.zip"
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert set(archive.namelist()) == set(EXPORTED)
    with pytest.raises(Conflict):
        ana.adapters.export(id_, tmp_path / "out.zip")
    ana.sharing.grant(cube, "ben", "reader")
    with pytest.raises(PermissionDenied):
        ben.adapters.export(id_, tmp_path / "bens.zip")
    found = ben.adapters.get(id_)
    assert (found.model, found.shard, found.number) == ("local:tiny", "", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["out.zip"]
