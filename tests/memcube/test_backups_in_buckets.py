"""Backups in a bucket of an S3-compatible store: made, told of erasures, listed, restored, removed; what fails."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import UnauthenticatedError
from obstore.store import S3Store
from typer.testing import CliRunner

from memos import MemOS, Settings
from memos.cli.app import app
from memos.core.settings import UpkeepSettings
from memos.errors import BackendUnavailable, Conflict, IntegrityError, InvalidInput, NotFound, PermissionDenied
from memos.kernel.relocation import restore
from memos.memcube.backup import backups, places
from tests.fakes import WordEmbedder
from tests.support.servers import s3_server as servers
from tests.support.servers.fixtures import unavailable
from tests.support.servers.s3_server import S3Server

pytestmark = pytest.mark.heavy
BUCKET = "memories"
WHERE = f"s3://{BUCKET}/backups/monday"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    if not servers.program().exists():
        unavailable("no S3-compatible store: run scripts/install_servers.sh")
    with S3Server() as running:
        yield running


@pytest.fixture
def s3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    """Yield a client of a store with one empty bucket, which the environment names."""
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(places, "_CONNECT", timedelta(seconds=1))
    monkeypatch.setattr(places, "_RETRIES", 0)
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/{BUCKET}", method="PUT")).close()
    client = S3Store(BUCKET, client_options={"allow_http": True})
    yield client
    obstore.delete(client, keys(client))


def keys(client: S3Store) -> list[str]:
    return [entry["path"] for part in obstore.list(client) for entry in part]


def opened(home: Path, **fields: Any) -> MemOS:
    return MemOS.open(settings=Settings(home=home, **fields), embedder=WordEmbedder())


def test_a_backup_in_a_bucket_is_restored_without_what_was_erased_since(s3: S3Store, tmp_path: Path) -> None:
    with opened(tmp_path / "here") as memos:
        kept, gone = memos.add(["I keep bees.", "I sold the piano."]).item_ids
        made = memos.maintenance.backup(WHERE)
        assert [each.folder for each in memos.maintenance.backups()] == [WHERE]
        receipt = memos.erase(gone)
        assert receipt.backups == (WHERE,)
        assert receipt.untold_backups == ()
        with pytest.raises(Conflict, match="holds a backup already"):
            memos.maintenance.backup(WHERE)
        with pytest.raises(Conflict, match="still exists"):
            memos.maintenance.forget_backup(WHERE)
    assert {f"backups/monday/{name}" for name in ("manifest.json", "erased.jsonl", "items.jsonl.gz")} <= set(keys(s3))
    done = restore(WHERE, Settings(home=tmp_path / "there"), embedder=WordEmbedder())
    assert (done.backup, done.items, done.erased_again) == (made.id, 1, 1)
    with opened(tmp_path / "there") as memos:
        assert [hit.item.id for hit in memos.search("bees piano").hits] == [kept]


def test_the_commands_take_urls(s3: S3Store, tmp_path: Path) -> None:
    with opened(tmp_path / "here") as memos:
        memos.add("I keep bees.")
    run = CliRunner().invoke
    done = run(app, ["data", "backup", WHERE, "--data-dir", str(tmp_path / "here"), "--json"])
    assert done.exit_code == 0, done.output
    assert f'"folder": "{WHERE}"' in done.output
    listed = run(app, ["data", "backups", "--data-dir", str(tmp_path / "here")])
    assert WHERE in listed.output
    done = run(app, ["data", "restore", WHERE, "--data-dir", str(tmp_path / "there")])
    assert "restored 1 items" in done.output


def test_an_upload_that_was_cut_off_is_no_backup_and_is_written_over(
    s3: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "here") as memos:
        memos.add("I keep bees.")

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(places.BucketPlace, "put_last", killed)
            patch.setattr(places.BucketPlace, "unlink", killed)  # nobody tidies up
            with pytest.raises(KeyboardInterrupt):
                memos.maintenance.backup(WHERE)
        assert len(keys(s3)) > 10
        with pytest.raises(NotFound, match=r"no manifest\.json"):
            restore(WHERE, Settings(home=tmp_path / "there"), embedder=WordEmbedder())
        memos.maintenance.backup(WHERE)
    assert restore(WHERE, Settings(home=tmp_path / "there"), embedder=WordEmbedder()).items == 1


def test_a_changed_object_is_noticed(s3: S3Store, tmp_path: Path) -> None:
    with opened(tmp_path / "here") as memos:
        memos.add("I keep bees.")
        memos.maintenance.backup(WHERE)
    key = "backups/monday/versions.jsonl.gz"
    content = bytes(obstore.get(s3, key).bytes())
    obstore.put(s3, key, content[:-9] + b"x" + content[-8:])
    with pytest.raises(IntegrityError, match=r"versions\.jsonl\.gz"):
        restore(WHERE, Settings(home=tmp_path / "there"), embedder=WordEmbedder())
    obstore.delete(s3, key)
    with pytest.raises(IntegrityError, match=r"versions\.jsonl\.gz is missing"):
        restore(WHERE, Settings(home=tmp_path / "there"), embedder=WordEmbedder())


def test_only_the_newest_periodic_backups_stay(s3: S3Store, tmp_path: Path) -> None:
    folder = f"s3://{BUCKET}/daily/"
    with opened(tmp_path, upkeep=UpkeepSettings(backup_folder=folder, backups_kept=1)) as memos:
        memos.maintenance.backup(f"{folder}mine")
        for _ in range(2):
            memos.tasks.wait(memos.maintenance.start_backup(), timeout_s=60)
        for name in ("periodic-1", "periodic-2"):
            memos.maintenance.backup(f"{folder}{name}")
        backups.keep_newest(memos.ledger, folder, 1)
        names = [each.folder.rpartition("/")[2] for each in memos.maintenance.backups()]
        assert sorted(name.partition("-")[0] for name in names if not name.startswith("periodic")) == [
            "manual",
            "manual",
            "mine",
        ]
        assert "periodic-1" not in names  # the day's own backup may be newer than the second
    assert "periodic-1" not in {key.split("/")[1] for key in keys(s3)}


@pytest.mark.parametrize(
    ("where", "kind", "message"),
    [
        ("s3://nowhere-at-all/x", NotFound, "nowhere-at-all"),
        ("s3://memories", InvalidInput, "a bucket and a prefix"),
        ("s3://memories/a/../b", InvalidInput, "a bucket and a prefix"),
        ("s3:///x", InvalidInput, "a bucket and a prefix"),
    ],
)
def test_places_that_are_none_are_refused(
    s3: S3Store, tmp_path: Path, where: str, kind: type[Exception], message: str
) -> None:
    with opened(tmp_path) as memos, pytest.raises(kind, match=message):
        memos.maintenance.backup(where)


def test_a_prefix_with_other_files_is_left_alone(s3: S3Store, tmp_path: Path) -> None:
    obstore.put(s3, "backups/monday/holiday.jpg", b"x")
    obstore.put(s3, "backups/monday-2/x", b"x")  # a neighbour, not a part
    with opened(tmp_path) as memos, pytest.raises(Conflict, match=r"holiday\.jpg"):
        memos.maintenance.backup(WHERE)
    assert len(keys(s3)) == 2


def test_wrong_keys_and_a_store_that_is_away_are_told_apart(
    s3: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(places.BucketPlace):
        def names(self) -> set[str]:
            with self._errors():
                raise UnauthenticatedError("InvalidAccessKeyId")

    with pytest.raises(PermissionDenied, match="AWS_ACCESS_KEY_ID"):
        Refusing(WHERE).names()
    with opened(tmp_path / "here") as memos:
        item = memos.add("I sold the piano.").item_ids[0]
        memos.maintenance.backup(WHERE)
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            memos.maintenance.backup(f"{WHERE}-2")
        receipt = memos.erase(item)
        assert receipt.untold_backups == (WHERE,)


def test_an_encrypted_backup_has_its_keys_beside_it_until_they_are_destroyed(s3: S3Store, tmp_path: Path) -> None:
    (tmp_path / "master").write_bytes(os.urandom(32))
    key = f"file:{tmp_path / 'master'}"
    with opened(tmp_path / "here", encryption_key=key) as memos:
        memos.add("I keep bees.")
        memos.cubes.create("work")
        memos.add("a thing about work", cube="work")
        memos.maintenance.backup(WHERE)
        with pytest.raises(InvalidInput, match="no prefix for the keys"):
            memos.maintenance.backup(f"s3://{BUCKET}/monday")
        assert memos.cubes.drop("work").key_destroyed
    names = keys(s3)
    assert {"backups/monday/items.sealed"} <= set(names)
    assert len([name for name in names if name.startswith("backups/keys-")]) == 1
    assert not any(b"bees" in bytes(obstore.get(s3, name).bytes()) for name in names)
    there = Settings(home=tmp_path / "there", encryption_key=key)
    done = restore(WHERE, there, embedder=WordEmbedder())
    assert (done.items, done.unreadable) == (1, 1)
    with opened(tmp_path / "there", encryption_key=key) as memos:
        assert [item.memory for item in memos.memories.list()] == ["I keep bees."]
