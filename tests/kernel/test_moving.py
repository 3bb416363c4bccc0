"""Backing up, restoring and moving whole installations: nothing is lost, nothing erased returns, work goes on."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from memos import MemOS, Settings
from memos.errors import BackendUnavailable, Conflict, InvalidInput, MemosError, NotFound
from memos.kernel.relocation import backup, migrate, restore, settings_of
from memos.memcube.backup import rows
from memos.memcube.installation import FolderLock
from memos.memcube.ledger import schema as t
from tests.fakes import WordEmbedder
from tests.kernel.test_erase import bytes_of
from tests.support import forks
from tests.support.ledgers import BIG, ODD, contents, sqlite_ledger
from tests.support.servers.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
SECRET = "The door code is 47B19-xylophone."


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings without background tasks, which would make a copy differ from what it was copied from."""
    return settings.model_copy(update={"tasks": settings.tasks.model_copy(update={"workers": 0})})


def at(settings: Settings, home: Path) -> Settings:
    return settings.model_copy(update={"home": home})


def opened(settings: Settings, home: Path) -> MemOS:
    return MemOS.open(home, settings=settings, embedder=WordEmbedder())


def put_back(folder: Path, settings: Settings, home: Path, **options: Any) -> Any:
    return restore(folder, at(settings, home), embedder=WordEmbedder(), **options)


def moved(settings: Settings, source: Path, target: Path, **options: Any) -> Any:
    return migrate(at(settings, source), at(settings, target), embedder=WordEmbedder(), **options)


def fill(memos: MemOS) -> dict[str, Any]:
    """Store what a copy could lose; return what has to be the same afterwards."""
    talk = memos.add(
        [{"role": "user", "name": "Maya", "content": "I live in Paris."}, {"role": "assistant", "content": ODD},
         {"role": "user", "content": "The cello is from Mirecourt."}],
        conversation="talk", idempotency_key="key-1", tags=["home"],
    ).item_ids  # fmt: skip
    memos.update(talk[2], "The cello is from Cremona.")
    before = memos.clock.now()
    memos.update(talk[2], "The cello is from Mittenwald.")
    lyon = memos.feedback("I live in Lyon.", speaker="Maya").item_id
    memos.add(BIG)
    memos.cubes.create("work", time_zone="Asia/Tokyo")
    memos.add("a thing about work", cube="work")
    deleted = memos.add("soon deleted").item_ids[0]
    memos.delete(deleted)
    memos.erase(memos.add(SECRET).item_ids[0])
    return {"talk": talk, "lyon": lyon, "deleted": deleted, "before": before}


def answers(memos: MemOS, ids: dict[str, Any]) -> Any:
    """Return what an installation answers, to be compared."""
    return (
        [memos.memories.history(item) for item in (*ids["talk"], ids["lyon"], ids["deleted"])],
        [memos.memories.list(cube=cube, limit=1000) for cube in ("default", "work")],
        memos.cubes.list(),
        [(hit.item, hit.score) for hit in memos.search("where does Maya live").hits],
        [hit.item.memory for hit in memos.search("cello Cremona", as_of=ids["before"]).hits],
        [hit.item.id for hit in memos.search("work", cubes=["work"]).hits],
    )


def assert_works(memos: MemOS, ids: dict[str, Any]) -> None:
    """Check what only works when history, requests and chains came along."""
    assert memos.maintenance.verify().clean
    again = memos.add(
        [{"role": "user", "name": "Maya", "content": "I live in Paris."}, {"role": "assistant", "content": ODD},
         {"role": "user", "content": "The cello is from Mirecourt."}],
        conversation="talk", idempotency_key="key-1", tags=["home"],
    )  # fmt: skip
    assert (again.replayed, again.item_ids) == (True, ids["talk"])
    assert memos.memories.rollback(ids["deleted"], 1).memory == "soon deleted"
    assert memos.memories.rollback(ids["talk"][2], 1).memory == "The cello is from Mirecourt."
    assert memos.add("said afterwards", conversation="talk").indexed
    assert memos.maintenance.verify().clean


@pytest.mark.heavy
def test_a_restored_installation_answers_as_the_first_did(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home") as memos:
        ids = fill(memos)
        memos.maintenance.backup(tmp_path / "backup")
        told = answers(memos, ids)
    seen: list[tuple[int, int]] = []
    done = put_back(tmp_path / "backup", settings, tmp_path / "new", on_items=lambda *now: seen.append(now))
    assert (done.indexed, done.differences, done.erased_again) == (True, (), 0)
    assert seen[-1][0] == seen[-1][1]
    with opened(settings, tmp_path / "new") as memos:
        assert answers(memos, ids) == told
        assert_works(memos, ids)


@pytest.mark.heavy
def test_a_moved_installation_answers_as_the_first_did_and_comes_back(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home") as memos:
        ids = fill(memos)
        told = answers(memos, ids)
    before = bytes_of_ledger(tmp_path / "home")
    for source, target in (("home", "there"), ("there", "back")):
        done = moved(settings, tmp_path / source, tmp_path / target)
        assert (done.indexed, done.differences, done.known) == (True, (), 0)
    assert bytes_of_ledger(tmp_path / "home") == before
    with opened(settings, tmp_path / "back") as memos:
        assert answers(memos, ids) == told
        assert_works(memos, ids)


def bytes_of_ledger(home: Path) -> dict[str, list[str]]:
    with sqlite_ledger(home) as ledger:
        return contents(ledger)


@pytest.mark.heavy
def test_what_was_erased_since_is_in_no_byte_of_the_restored_folder(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home") as memos:
        item = memos.add(
            [{"role": "user", "name": "Quillfeather", "content": SECRET, "message_id": "door-77"},
             {"role": "user", "content": "and something else"}],
            conversation="xylophone-talk", tags=["xylophone-tag"],
        ).item_ids[0]  # fmt: skip
        kept = memos.add("kept words").item_ids[0]
        memos.cubes.create("temp", description="the marimba affair")
        memos.maintenance.backup(tmp_path / "backup")
        receipt = memos.erase([item, memos.memories.list(filter={"conversation": "xylophone-talk"})[1].id])
        assert receipt.state == "purged"
        assert (receipt.backups, receipt.untold_backups) == ((str(tmp_path / "backup"),), ())
        assert memos.cubes.drop("temp").backups == (str(tmp_path / "backup"),)
    assert put_back(tmp_path / "backup", settings, tmp_path / "new").erased_again == 2
    for needle in (b"xylophone", b"Quillfeather", b"door-77", b"marimba"):
        assert needle not in bytes_of(tmp_path / "new"), needle
    with opened(settings, tmp_path / "new") as memos:
        assert memos.get(kept).memory == "kept words"
        assert memos.memories.erase_receipt(receipt.id).state == "purged"
        with pytest.raises(NotFound, match=receipt.id):
            memos.get(item)
        assert memos.maintenance.verify().clean


def test_a_restore_over_an_installation_leaves_nothing_of_it_in_the_indexes(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home") as memos:
        ids = memos.add(["alpha one", "beta two", "gamma three"], conversation="c").item_ids
        memos.update(ids[0], "alpha changed before")
        memos.maintenance.backup(tmp_path / "backup")
        memos.update(ids[0], "alpha changed after")
        memos.update(ids[1], "beta changed after")
        memos.erase(ids[2])
        later = memos.add("delta that came after").item_ids[0]
    with pytest.raises(Conflict, match="--replace"):
        put_back(tmp_path / "backup", settings, tmp_path / "home")
    done = put_back(tmp_path / "backup", settings, tmp_path / "home", replace=True)
    assert (done.items, done.erased_again, done.differences) == (2, 1, ())
    with opened(settings, tmp_path / "home") as memos:
        assert {item.memory for item in memos.memories.list()} == {"alpha changed before", "beta two"}
        assert {hit.item.id for hit in memos.search("delta gamma after")} <= set(ids[:2])
        with pytest.raises(NotFound):
            memos.get(later)
        memos.update(ids[0], "alpha changed otherwise")
        assert memos.search("otherwise").hits[0].item.id == ids[0]
        assert memos.maintenance.verify().clean
    assert b"gamma three" not in bytes_of(tmp_path / "home")


def test_indexes_left_beside_a_lost_ledger_do_no_harm(tmp_path: Path, settings: Settings) -> None:
    home = tmp_path / "home"
    with opened(settings, home) as memos:
        ids = memos.add(["alpha one", "beta two"], conversation="c").item_ids
        memos.maintenance.backup(tmp_path / "backup")
        memos.update(ids[0], "alpha changed after")
        memos.add("delta that came after")
    for path in home.glob("ledger.db*"):
        path.unlink()
    assert put_back(tmp_path / "backup", settings, home).differences == ()
    with opened(settings, home) as memos:
        assert memos.maintenance.verify().clean
        assert {hit.item.memory for hit in memos.search("delta alpha")} == {"alpha one", "beta two"}


def test_an_empty_installation_is_backed_up_restored_and_moved(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home"):
        pass
    backup(at(settings, tmp_path / "home"), tmp_path / "backup")
    put_back(tmp_path / "backup", settings, tmp_path / "new")
    moved(settings, tmp_path / "home", tmp_path / "moved")
    for name in ("new", "moved"):
        with opened(settings, tmp_path / name) as memos:
            assert [cube.id for cube in memos.cubes.list()] == ["default"]
            assert memos.maintenance.verify().clean


@pytest.mark.heavy
def test_a_backup_under_load_is_of_one_moment(tmp_path: Path, settings: Settings) -> None:
    stop, failed = threading.Event(), []

    def work(memos: MemOS, number: int) -> None:
        seed = random.Random(number)
        mine: list[str] = []
        try:
            while not stop.is_set():
                said = [f"thread{number} one {len(mine)}", f"thread{number} two {len(mine)}"]
                mine += memos.add(said, conversation=f"c{number}").item_ids
                memos.update(seed.choice(mine), f"thread{number} changed {seed.random()}")
                if seed.random() < 0.1:
                    memos.erase(mine.pop(seed.randrange(len(mine))), wait=False)
        except MemosError as error:
            failed.append(error)

    with opened(settings, tmp_path / "home") as memos:
        memos.add([f"from before {n}" for n in range(900)], conversation="before")
        threads = [threading.Thread(target=work, args=(memos, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        manifests = [memos.maintenance.backup(tmp_path / f"backup{number}") for number in range(3)]
        stop.set()
        for thread in threads:
            thread.join()
        assert failed == []
        memos.maintenance.finish_erasures()
        erased = _erased(memos)
        assert memos.maintenance.verify().clean
    assert manifests[0].rows < manifests[2].rows
    for number, manifest in enumerate(manifests):
        home = tmp_path / f"new{number}"
        done = put_back(tmp_path / f"backup{number}", settings, home)
        assert done.differences == ()
        assert done.items == manifest.tables["items"].rows - done.erased_again
        with opened(settings, home) as memos:
            listed = memos.memories.list(limit=10_000)
            assert len(listed) == done.items
            assert not erased & {item.id for item in listed}
            texts = {item.memory for item in listed}
            assert sum(text.startswith("from before") for text in texts) == 900
            assert memos.maintenance.verify().clean


def _erased(memos: MemOS) -> set[str]:
    with memos.ledger.read() as connection:
        return set(connection.exec_driver_sql("SELECT item_id FROM tombstone_items").scalars())


def test_a_backup_waits_for_no_erasure_and_an_erasure_for_a_backup(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home") as memos:
        ids = [memos.add(f"number {n}").item_ids[0] for n in range(3)]
        memos.add([f"more {n}" for n in range(900)], conversation="c")
        receipts = []
        threads = []

        def erase_some(_done: int, _total: int) -> None:
            if not threads:
                threads.append(threading.Thread(target=lambda: receipts.append(memos.erase(ids[1]))))
                threads[0].start()
            memos.erase(ids.pop(), wait=False) if len(ids) > 2 else None

        memos.maintenance.backup(tmp_path / "backup", on_progress=erase_some)
        threads[0].join()
        assert receipts[0].state == "purged"
        assert receipts[0].untold_backups == ()


def test_a_backup_of_an_installation_in_use_is_made_by_its_own_process(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home") as memos:
        memos.add("one")
        with pytest.raises(BackendUnavailable, match="in use"):
            backup(at(settings, tmp_path / "home"), tmp_path / "backup")
        with pytest.raises(BackendUnavailable, match="in use"):
            put_back(tmp_path / "backup", settings, tmp_path / "home", replace=True)
        with pytest.raises(BackendUnavailable, match="in use"):
            moved(settings, tmp_path / "home", tmp_path / "new")
        memos.maintenance.backup(tmp_path / "backup")
        with pytest.raises(InvalidInput, match="own folder"):
            memos.maintenance.backup(tmp_path / "home" / "backup")
    with pytest.raises(BackendUnavailable, match="closed"):
        memos.maintenance.backup(tmp_path / "another")


def test_what_is_not_there_or_would_be_lost_is_refused(tmp_path: Path, settings: Settings) -> None:
    for wrong in (lambda: backup(at(settings, tmp_path / "none"), tmp_path / "backup"),
                  lambda: put_back(tmp_path / "none", settings, tmp_path / "new"),
                  lambda: moved(settings, tmp_path / "none", tmp_path / "new")):  # fmt: skip
        with pytest.raises(NotFound):
            wrong()
    assert not (tmp_path / "none").exists()
    with opened(settings, tmp_path / "home") as memos:
        memos.add("one")
    with pytest.raises(InvalidInput, match="same folder"):
        moved(settings, tmp_path / "home", tmp_path / "x" / ".." / "home")
    with opened(settings, tmp_path / "other") as memos:
        memos.add("two")
    with pytest.raises(Conflict, match="contains memories already"):
        moved(settings, tmp_path / "home", tmp_path / "other")


def test_a_copy_that_version_01_did_not_finish_is_not_opened_backed_up_or_moved(
    tmp_path: Path, settings: Settings
) -> None:
    with opened(settings, tmp_path / "home") as memos:
        memos.add([f"number {n}" for n in range(300)], conversation="c")

    with sqlite_ledger(tmp_path / "home") as source, sqlite_ledger(tmp_path / "new") as target:
        with source.read() as connection:
            told = {"ledger": rows.ledger_id(connection), "source": "sqlite:home", "stamp": "", "tables": {}}
        with target.write() as connection:
            connection.execute(sa.insert(t.meta).values(key=rows.COPYING, value=json.dumps(told)))
    refused: tuple[Callable[[], object], ...] = (
        lambda: opened(settings, tmp_path / "new"),
        lambda: backup(at(settings, tmp_path / "new"), tmp_path / "backup"),
        lambda: moved(settings, tmp_path / "new", tmp_path / "third"),
    )
    for call in refused:
        with pytest.raises(BackendUnavailable, match=r"unfinished copy.*run the same `memos data migrate` again"):
            call()
    assert moved(settings, tmp_path / "home", tmp_path / "new").indexed
    with opened(settings, tmp_path / "new") as memos:
        assert memos.maintenance.verify().clean
    assert moved(settings, tmp_path / "home", tmp_path / "new").indexed


def test_a_restore_for_another_embedder_says_so(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home") as memos:
        item = memos.add(SECRET).item_ids[0]
        memos.add("kept")
        memos.maintenance.backup(tmp_path / "backup")
        memos.erase(item)
    done = restore(tmp_path / "backup", at(settings, tmp_path / "new"), embedder=WordEmbedder(32, "smaller"))
    assert not done.indexed
    assert b"xylophone" not in bytes_of(tmp_path / "new")
    with MemOS.open(tmp_path / "new", settings=settings, embedder=WordEmbedder(32, "smaller")) as memos:
        memos.maintenance.reembed()
        assert memos.search("kept").hits[0].item.memory == "kept"
        assert memos.maintenance.verify().clean


CHILD = """
import sys
from pathlib import Path
from memos import Settings
from memos.kernel.relocation import migrate, restore
from tests.fakes import WordEmbedder
what, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
settings = Settings(limits={"min_free_bytes": 0}, index={"wait_s": 30})
at = lambda home: settings.model_copy(update={"home": home})
tell = lambda done, total: print(done, total, flush=True)
if what == "restore":
    restore(source, at(target), embedder=WordEmbedder(), on_rows=tell, on_items=tell)
else:
    migrate(at(source), at(target), embedder=WordEmbedder(), on_rows=tell, on_items=tell)
print("done", flush=True)
"""


@pytest.mark.heavy
@pytest.mark.parametrize("what", ["restore", "migrate"])
def test_kills_at_any_moment_leave_the_old_or_the_whole(what: str, tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home") as memos:
        item = memos.add(SECRET).item_ids[0]
        memos.add([f"number {n}" for n in range(900)], conversation="c")
        memos.maintenance.backup(tmp_path / "backup")
        memos.erase(item)
        told = sorted(entry.memory for entry in memos.memories.list(limit=10_000))
    source = tmp_path / ("backup" if what == "restore" else "home")
    target, cut_off = tmp_path / "new", 0
    for lines in (1, 3, 5, 7, 8, 9, 2, 10):
        process = forks.Script(CHILD, what, str(source), str(target))
        seen = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait()
        assert "" not in seen or "done\n" in seen, "it failed"
        cut_off += "done\n" not in seen
        try:
            with opened(settings, target) as memos:
                found = sorted(entry.memory for entry in memos.memories.list(limit=10_000))
                assert found in ([], told)
                assert memos.maintenance.verify(repair=True).clean
        except BackendUnavailable as error:
            assert "unfinished copy" in str(error)
            found = []
        if found:
            shutil.rmtree(target)
    assert cut_off > 3
    if what == "restore":
        put_back(source, settings, target)
    else:
        moved(settings, source, target)
    with opened(settings, target) as memos:
        assert sorted(entry.memory for entry in memos.memories.list(limit=10_000)) == told
        assert memos.maintenance.verify().clean
    assert b"xylophone" not in bytes_of(target)


def on_server(settings: Settings, home: Path, url: str) -> Settings:
    return settings.model_copy(update={"home": home, "ledger_url": SecretStr(url)})


def test_an_installation_moves_to_postgresql_and_back(
    tmp_path: Path, settings: Settings, postgres_server: PostgresServer
) -> None:
    with opened(settings, tmp_path / "home") as memos:
        ids = fill(memos)
        told = answers(memos, ids)
    server = on_server(settings, tmp_path / "server", postgres_server.url())
    there = migrate(at(settings, tmp_path / "home"), server, embedder=WordEmbedder())
    assert (there.indexed, there.differences) == (True, ())
    assert "p0stgres" not in repr(there)
    with opened(server, server.home) as memos:
        assert answers(memos, ids) == told
        assert_works(memos, ids)
        told = answers(memos, ids)
        with pytest.raises(BackendUnavailable):
            migrate(server, at(settings, tmp_path / "early"), embedder=WordEmbedder())
    migrate(server, at(settings, tmp_path / "back"), embedder=WordEmbedder())
    with opened(settings, tmp_path / "back") as memos:
        assert answers(memos, ids) == told
        assert memos.maintenance.verify().clean


def test_a_backup_of_a_server_is_made_while_others_write_and_restored_to_another(
    tmp_path: Path, settings: Settings, postgres_server: PostgresServer
) -> None:
    server = on_server(settings, tmp_path / "server", postgres_server.url())
    with opened(server, server.home) as memos:
        item = memos.add(SECRET).item_ids[0]
        memos.add("kept words")
        backup(server, tmp_path / "backup")
        receipt = memos.erase(item)
        assert (receipt.backups, receipt.untold_backups) == ((str(tmp_path / "backup"),), ())
    other = on_server(settings, tmp_path / "other", postgres_server.url())
    assert restore(tmp_path / "backup", other, embedder=WordEmbedder()).erased_again == 1
    with opened(other, other.home) as memos:
        assert [entry.memory for entry in memos.memories.list()] == ["kept words"]
        assert memos.search("kept").hits[0].item.memory == "kept words"
        assert memos.maintenance.verify().clean
    assert restore(tmp_path / "backup", other, embedder=WordEmbedder(), replace=True).differences == ()


# Places


def test_a_folder_is_an_embedded_installation_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMOS_LEDGER_URL", "postgresql://elsewhere/db")
    monkeypatch.setenv("MEMOS_QDRANT__URL", "http://elsewhere:6333")
    monkeypatch.setenv("MEMOS_EMBED__THREADS", "3")
    found = settings_of("--from", str(tmp_path))
    assert (found.home, found.ledger_url, found.qdrant.url, found.embed.threads) == (tmp_path, None, None, 3)


def test_a_toml_file_says_where_the_stores_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMOS_NEO4J__URL", "bolt://elsewhere:7687")
    file = tmp_path / "servers.toml"
    file.write_text(
        f'home = "{tmp_path}/h"\nledger_url = "postgresql://u:pw@host/db"\n[qdrant]\nurl = "http://host:6333"\n'
    )
    found = settings_of("--to", str(file))
    assert found.ledger_url is not None
    assert found.ledger_url.get_secret_value() == "postgresql://u:pw@host/db"
    assert (found.home, found.qdrant.url, found.neo4j.url) == (tmp_path / "h", "http://host:6333", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('ledger = "x"', "unknown setting 'ledger'"),
        ("[qdrant]\nuri = 1", "qdrant.uri"),
        ("home = [", "cannot be read"),
        ("retention_days = -1", "retention_days"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_toml_file_that_is_wrong_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput, match=message) as refused:
        settings_of("--to", str(file))
    assert "\n" not in str(refused.value)
    with pytest.raises(NotFound):
        settings_of("--to", str(tmp_path / "none.toml"))


# The command line


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMOS_")}
    done = forks.command(arguments, env={**kept, "MEMOS_HOME": str(home)})
    assert "Traceback" not in done.stderr
    return done


def told(home: Path, *arguments: str) -> Any:
    done = run(home, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


@pytest.mark.heavy
def test_the_commands_back_up_restore_and_move(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "backup"
    item, _ = (told(home, "add", text)["item_ids"][0] for text in (SECRET, "The cello is from Mirecourt."))
    made = told(home, "data", "backup", str(folder))
    assert made["folder"] == str(folder)
    assert run(home, "data", "backup", str(folder)).returncode == Conflict.exit_code
    assert run(home, "data", "backup", str(tmp_path / "second")).stdout.startswith("backed up ")
    erased = run(home, "memory", "erase", "-y", item)
    assert f"still in the backup {folder} (a restore leaves it out)" in erased.stdout
    assert [entry["folder"] for entry in told(home, "data", "backups")] == [str(folder), str(tmp_path / "second")]
    shutil.rmtree(tmp_path / "second")
    assert str(tmp_path / "second") not in run(home, "data", "backups", "--forget", str(tmp_path / "second")).stdout
    new = tmp_path / "new"
    done = run(new, "data", "restore", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert "restored 1 items" in done.stdout
    assert b"xylophone" not in bytes_of(new)
    assert run(new, "data", "restore", str(folder)).returncode == Conflict.exit_code
    assert told(new, "data", "restore", str(folder), "--replace")["items"] == 1
    there = tmp_path / "there.toml"
    there.write_text(f'home = "{tmp_path / "there"}"\n')
    assert "equal" in run(home, "data", "migrate", "--from", str(new), "--to", str(there)).stdout
    assert told(tmp_path / "there", "search", "cello")["hits"][0]["item"]["memory"].startswith("The cello")
    assert run(home, "data", "restore", str(tmp_path / "none")).returncode == NotFound.exit_code
    (folder / "items.jsonl.gz").write_bytes(b"")
    failed = run(tmp_path / "third", "data", "restore", str(folder))
    assert (failed.returncode, failed.stderr.count("\n")) == (8, 1)


def test_a_locked_folder_is_named(tmp_path: Path, settings: Settings) -> None:
    with opened(settings, tmp_path / "home"):
        pass
    lock = FolderLock(tmp_path / "home")
    lock.acquire()
    try:
        with pytest.raises(MemosError, match=f"in use by process {os.getpid()}"):
            backup(at(settings, tmp_path / "home"), tmp_path / "backup")
    finally:
        lock.release()
