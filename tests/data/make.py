"""Makes a store, dumps and a backup for later versions to read: `python -m tests.data.make FOLDER`.

The files beside this one were made once, by version 0.1, and are not made again.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.settings import IndexSettings
from memos.core.types import ItemType, Status
from memos.memcube.ledger import schema as t
from tests.fakes import WordEmbedder
from tests.support.pictures import part, picture

PASSPHRASE = "correct horse battery"
CUBE = "life"
SETTINGS = Settings(index=IndexSettings(wait_s=30))


def opened(home: Path) -> MemOS:
    """Open an installation as the one of the files was opened."""
    return MemOS.open(home, settings=SETTINGS, embedder=WordEmbedder())


def shown(memos: MemOS, cube: str = CUBE) -> dict[str, Any]:
    """Return what a cube has, as plain values."""
    statuses = [str(status) for status in Status]
    items = memos.memories.list(cube=cube, limit=10_000, filter={"status": {"in": statuses}})
    files = memos.documents.list(cube=cube)
    with memos.ledger.read() as connection:
        pinned = list(connection.scalars(sa.select(t.items.c.id).where(t.items.c.cube_id == cube, t.items.c.pinned)))
    versions = {item.id: memos.memories.history(item.id, cube=cube) for item in items}
    return {
        "items": {item.id: [item.type, item.status, item.memory, item.version, sorted(item.tags)] for item in items},
        "pinned": pinned,
        "history": {item: [state.after.memory for state in states] for item, states in versions.items()},
        "files": {file.id: memos.documents.content(file.id, cube=cube).decode() for file in files},
        "rules": [rule.action for rule in memos.retention.list(cube=cube)],
        "tools": [tool.tool for tool in memos.tools.list(cube=cube)],
        "profile": memos.profiles.render(cube, "Maya"),
        "events": sum(1 for event in memos.events.list(cube, limit=10_000) if event.kind != "load"),
    }


def _fill(memos: MemOS) -> str:
    memos.cubes.create(CUBE, description="what happened", time_zone="Europe/Paris")
    said = [
        {"role": "user", "name": "Maya", "content": f"Day {number}: I live in {place} and like cheese {number}."}
        for number, place in enumerate(["Paris", "Lyon", "Oslo", "Rome"] * 3)
    ]
    ids = memos.add(said, cube=CUBE, conversation="talk", tags=["home"], info={"n": 1.5}, mode="fine").item_ids
    memos.add("a lone note about otters", cube=CUBE, idempotency_key="note")
    call = {"id": "c", "type": "function", "function": {"name": "ferry", "arguments": '{"to": "Oslo"}'}}
    used = [
        {"role": "user", "content": "Which ferry goes to Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "The one at nine."},
    ]
    memos.add(used, cube=CUBE, conversation="tools")
    function = {"name": "ferry", "description": "Finds ferries.", "parameters": {"type": "object"}}
    memos.tools.define([{"type": "function", "function": function}], cube=CUBE)
    seen = [{"role": "user", "content": [{"type": "text", "text": "look at this"}, part(picture())]}]
    memos.add(seen, cube=CUBE, conversation="pictures")
    notes = b"# Notes\n\nThe walrus sleeps on the ice.\n\n## More\n\nIt eats clams."
    file = memos.documents.add(("notes.md", notes), cube=CUBE)
    memos.documents.wait(file.id, 60)
    memos.profiles.set_static(CUBE, "life.diet", "vegan", "Maya")
    memos.retention.add(action="archive", types=["message"], age_days=36_500, cube=CUBE)
    memos.update(ids[3], "I live in Bergen now", reason="moved")
    memos.delete([ids[4], ids[5]])
    memos.memories.rollback(ids[5], 1)
    memos.feedback("no, I live in Rome", cube=CUBE, speaker="Maya", item_ids=[ids[0]])
    memos.tiers.pin(ids[1], cube=CUBE)
    memos.erase(memos.add("the erased unicorn", cube=CUBE).item_ids[0])
    wishes = ["Please always answer in French.", "I prefer tea to coffee.", "My name is Maya.", "I work at Renault."]
    wishes.append("I work at Citroën now.")
    memos.add([{"role": "user", "name": "Maya", "content": text} for text in wishes], cube=CUBE, conversation="wishes")
    memos.tiers.analyse(cube=CUBE, everything=True)
    memos.tasks.wait(timeout_s=120)
    memos.tiers.consolidate(cube=CUBE)
    memos.search("cheese", cubes=[CUBE])
    memos._scheduler.accesses.flush()
    memos.tasks.wait(timeout_s=120)
    return ids[7]


def make(folder: Path) -> None:
    """Write all files into a new folder."""
    folder.mkdir(parents=True)
    home = folder / "home"
    with opened(home) as memos:
        later_erased = _fill(memos)
        memos.transfer.dump(CUBE, folder / "plain.memcube")
        memos.transfer.dump(CUBE, folder / "sealed.memcube", passphrase=PASSPHRASE)
        dumped = shown(memos)
        memos.maintenance.backup(folder / "backup")
        memos.erase(later_erased, cube=CUBE)
        memos.tasks.wait(timeout_s=120)
        stored = shown(memos)
    told = json.dumps({"dumped": dumped, "stored": stored}, ensure_ascii=False)
    (folder / "expected.json").write_text(told + "\n", encoding="utf-8")
    shutil.rmtree(home / "vector")  # sparse files of 180 MB, made anew from the ledger
    for name in ("home", "backup"):
        shutil.make_archive(str(folder / name), "zip", folder / name)
        shutil.rmtree(folder / name)
    kinds = {entry[0] for entry in dumped["items"].values()}
    print(sorted(set(ItemType) - kinds), {path.name: path.stat().st_size for path in folder.iterdir()})


if __name__ == "__main__":
    make(Path(sys.argv[1]))
