"""Both clients move cubes as files through a server that really listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from memos.core.clock import new_id
from memos.errors import Conflict, InvalidInput, NotFound
from tests.api.client.conftest import Listening, Open


def test_a_cube_travels_as_a_file(listening: Listening, opened: Open, tmp_path: Path) -> None:
    ana, cube, file = opened(listening.url, listening.ana), new_id(), tmp_path / "cube.memcube"
    ana.cubes.create(cube, description="to be moved")
    item = ana.memories.add("The lynx sleeps by day.", cube=cube).item_ids[0]
    ana.memories.update(item, "The lynx hunts by night.", expected_version=1)
    assert ana.cubes.dump(cube, file, passphrase="ein Schlüssel") == file
    assert b"lynx" not in file.read_bytes()
    with pytest.raises(InvalidInput):
        ana.cubes.inspect(file)
    told = ana.cubes.inspect(file, passphrase="ein Schlüssel")
    assert (told.cube, told.sealed, told.counts["items"]) == (cube, True, 1)
    copy = new_id()
    loaded = ana.cubes.load(file, cube=copy, passphrase="ein Schlüssel")
    assert (loaded.cube, loaded.items, loaded.trusted) == (copy, 1, False)
    found = ana.memories.search("lynx", cubes=[copy])[0].item
    assert [version.after.memory for version in ana.memories.history(found.id)][-1] == "The lynx hunts by night."
    with pytest.raises(Conflict):
        ana.cubes.load(file, cube=copy, passphrase="ein Schlüssel")
    with pytest.raises(InvalidInput):
        ana.cubes.load(file, cube=new_id(), passphrase="another")


def test_a_damaged_file_loads_nothing_and_others_dump_nothing(
    listening: Listening, opened: Open, tmp_path: Path
) -> None:
    ana, ben, cube = opened(listening.url, listening.ana), opened(listening.url, listening.ben), new_id()
    ana.cubes.create(cube)
    ana.memories.add("The lynx sleeps by day.", cube=cube)
    file = ana.cubes.dump(cube, tmp_path / "cube.memcube", vectors=False)
    damaged = tmp_path / "damaged.memcube"
    damaged.write_bytes(file.read_bytes()[:-100])
    copy = new_id()
    with pytest.raises(InvalidInput):
        ana.cubes.load(damaged, cube=copy)
    with pytest.raises(NotFound):
        ana.cubes.get(copy)
    with pytest.raises(NotFound):
        ben.cubes.dump(cube, tmp_path / "stolen.memcube")
    assert not (tmp_path / "stolen.memcube").exists()
