"""Encryption at rest: no file tells anything without the key, conversions survive kills, erased cubes lose theirs."""

from __future__ import annotations

import base64
import importlib
import json
import os
import shutil
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import keyring
import numpy as np
import pytest
from keyring.backend import KeyringBackend
from typer.testing import CliRunner

from memos import MemOS, Settings
from memos.cli.app import app
from memos.errors import (
    BackendUnavailable,
    Conflict,
    IntegrityError,
    InvalidInput,
    MemosError,
    NotFound,
    PermissionDenied,
)
from memos.kernel import doctor, encryption
from memos.kernel.relocation import migrate, restore
from memos.memcube.activation.blocks import Block, Tier
from memos.memcube.activation.store import BlockStore
from memos.memcube.encryption import vault
from memos.memcube.encryption.files import MAGIC
from memos.memcube.encryption.keys import KEYS_FILE, Keyring, KeyState, copy_name, master_key, read_keys
from memos.memcube.encryption.vault import BlockSealer
from memos.memcube.installation import BACKUP_PATHS, PATHS, TABLES, DataKind
from memos.memcube.ledger import sqlcipher
from memos.memcube.parametric.forgetting import FOLDER as ADAPTERS
from tests.fakes import FixedClock, WordEmbedder
from tests.support.adapters import active, allow, with_files

pytestmark = pytest.mark.usefixtures("private_memory")

SECRET = "The door code is 47B19-xylophone."


@pytest.fixture
def key(tmp_path: Path) -> str:
    (tmp_path / "master").write_bytes(os.urandom(32))
    return f"file:{tmp_path / 'master'}"


@pytest.fixture
def sealed(settings: Settings, key: str, tmp_path: Path) -> Settings:
    return settings.model_copy(update={"encryption_key": key, "home": tmp_path / "home"})


def opened(settings: Settings, **options: Any) -> MemOS:
    return MemOS.open(settings.home, settings=settings, embedder=WordEmbedder(), **options)


def texts(memos: MemOS) -> set[str]:
    return {item.memory for cube in memos.cubes.list() for item in memos.memories.list(cube=cube.id, limit=1000)}


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files, but for the lock that names its holder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


# What can be read without the key


def forms(text: str) -> list[bytes]:
    """Return how a text may stand in a file: in the encodings in use, and as JSON, base64 and hexadecimal."""
    raw = text.encode()
    shifted = [base64.b64encode(b"\0" * shift + raw)[4:-4] for shift in range(3)]
    wide = [text.encode(name) for name in ("utf-16-le", "utf-16-be", "utf-32-le")]
    return [raw, raw.upper(), *wide, *shifted, raw.hex().encode(), json.dumps(text)[1:-1].encode()]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield every file without its empty pages, and what it unpacks to."""
    for path, raw in files_of(folder).items():
        written = raw.replace(bytes(4096), b"")
        yield Path(path), written
        with suppress(zlib.error):
            yield Path(path), zlib.decompress(raw, 47)


def found(folder: Path, needles: list[str]) -> set[tuple[str, str]]:
    """Return which of the needles stand in which files, in any form."""
    every = [(needle, form) for needle in needles for form in forms(needle)]
    heads = np.array(sorted({int.from_bytes(form[:8], "little") for _, form in every}), dtype="<u8")
    begins = np.zeros(1 << 16, dtype=bool)
    begins[heads & 0xFFFF] = True  # looked up at every place, so that few are compared
    told = set()
    for path, raw in contents(folder):
        views = [np.frombuffer(raw[at : at + (len(raw) - at) // 8 * 8], dtype="<u8") for at in range(8)]
        likely_views = [view[begins[view & 0xFFFF]] for view in views]
        there = {int(head) for view in likely_views for head in np.unique(view[np.isin(view, heads)])}
        likely = [(needle, form) for needle, form in every if int.from_bytes(form[:8], "little") in there]
        told |= {(needle, path.name) for needle, form in likely if form in raw}
    return told


def fill_everywhere(memos: MemOS) -> list[str]:
    """Put unusual strings in by every route; return them."""
    told: list[str] = []

    def odd(what: str) -> str:
        told.append(f"q{len(told):03d}x{what}zyx")
        return told[-1]

    cube = odd("cube")
    memos.cubes.create(cube, description=odd("description"))
    for at in range(5):
        memos.add(
            [
                {"role": "user", "name": odd("Speaker"), "content": f"I keep {odd('bees')} in Lyon."},
                {"role": "assistant", "content": odd("answer")},
                {"role": "tool", "name": odd("tool"), "content": odd("result"), "tool_call_id": f"c{at}"},
            ],
            cube=cube,
            conversation=odd("talk"),
            tags=[odd("tag")],
            info={odd("field"): odd("value")},
            idempotency_key=odd("idempotency"),
        )
    item = memos.memories.list(cube=cube, limit=1)[0].id
    memos.update(item, odd("update"), cube=cube, reason=odd("reason"))
    memos.feedback(f"No, I live in {odd('Town')}.", cube=cube, speaker=odd("Person"))
    memos.search(f"where does {odd('question')} live", cubes=[cube])
    memos.delete(memos.add(odd("deleted"), cube=cube).item_ids[0], reason=odd("why"))
    memos.profiles.set_static(cube, "life.residence", odd("occupation"), odd("Subject"))
    memos.records.put(odd("id"), odd("record"), cube=cube, info={"field": odd("inside")})
    page = f"# {odd('Heading')}\n\n{odd('paragraph')} and more.".encode()
    memos.documents.wait(memos.documents.add((f"{odd('title')}.md", page), cube=cube).id, 60)
    memos.add([f"{at}: {odd('message')}" for at in range(200 - len(told))], cube=cube)
    return told


def test_of_200_strings_put_in_by_every_route_none_is_found_at_rest(
    sealed: Settings, settings: Settings, tmp_path: Path
) -> None:
    plain = settings.model_copy(update={"home": tmp_path / "plain"})
    with opened(plain) as memos:
        told = fill_everywhere(memos)
        memos._context.indexes.vector.flush()
        (tmp_path / "clear").mkdir()
        for path in plain.home.glob("ledger.db*"):
            shutil.copy(path, tmp_path / "clear")
        clear = found(tmp_path / "clear", told)
    assert len({needle for needle, _ in clear}) >= 195  # keys of requests are kept as digests
    with opened(sealed) as memos:
        assert fill_everywhere(memos) == told
        memos._context.indexes.vector.flush()
        memos.maintenance.backup(tmp_path / "backups" / "one")
        assert memos.maintenance.verify().clean
        assert (sealed.home / "ledger.db-wal").stat().st_size > 0
        vectors = [bytes(np.asarray(memos.embedder.embed_query(text))[:8]) for text in told[-5:]]
        assert found(sealed.home, told) | found(tmp_path / "backups", told) == set()
    assert found(sealed.home, told) == set()
    assert not any(vector in raw for vector in vectors for raw in files_of(sealed.home).values())
    with opened(sealed) as memos:
        assert len({text for text in texts(memos) for needle in told if needle in text}) >= 70
        assert memos.maintenance.verify().clean


def test_whatever_holds_text_is_registered_with_what_seals_it() -> None:
    for place in (*PATHS, *BACKUP_PATHS):
        if place.holds is not DataKind.IDS:
            assert place.sealed_by, f"say in memos/memcube/installation.py what encrypts {place.name}"
            assert callable(_resolve(place.sealed_by))
    # Rows of a table with text belong to a cube, or to a request: nothing of them outlives its erasure.
    assert [table.name for table in TABLES if table.holds is not DataKind.IDS and not table.erased_by] == []


def _resolve(name: str) -> object:
    module, _, rest = name.rpartition(".")
    with suppress(ModuleNotFoundError):
        return getattr(importlib.import_module(module), rest)
    return getattr(_resolve(module), rest)


def test_every_file_of_an_encrypted_installation_is_sealed_or_holds_ids_alone(sealed: Settings) -> None:
    with opened(sealed) as memos:
        memos.add(SECRET)
    ids_only = {place.name for place in PATHS if place.holds is DataKind.IDS}
    for path, raw in files_of(sealed.home).items():
        name = Path(path).relative_to(sealed.home).parts[0]
        assert name in ids_only or raw.startswith(MAGIC) or name == "ledger.db", path
    assert not sqlcipher.is_plain(sealed.home / "ledger.db")


# Keys


@pytest.mark.parametrize("change", ["none", "other", "hex", "text"])
def test_without_the_right_key_nothing_is_opened_or_touched(sealed: Settings, tmp_path: Path, change: str) -> None:
    with opened(sealed) as memos:
        memos.add(SECRET)
    before = files_of(sealed.home)
    (tmp_path / "other").write_text(
        {"text": "a passphrase, not a key", "hex": os.urandom(32).hex()}.get(change, "")
        or base64.b64encode(b"7" * 32).decode()
    )
    place = None if change == "none" else f"file:{tmp_path / 'other'}"
    wanted = InvalidInput if change == "text" else PermissionDenied
    with pytest.raises(wanted, match="MEMOS_ENCRYPTION_KEY"):
        opened(sealed.model_copy(update={"encryption_key": place}))
    assert files_of(sealed.home) == before
    with opened(sealed) as memos:
        assert texts(memos) == {SECRET}


def test_a_key_that_is_set_for_a_plain_installation_is_refused(settings: Settings, sealed: Settings) -> None:
    with opened(settings.model_copy(update={"home": sealed.home})) as memos:
        memos.add(SECRET)
    with pytest.raises(InvalidInput, match="memos data encrypt"):
        opened(sealed)
    (sealed.home / "ledger.db").write_bytes(os.urandom(8192))
    with pytest.raises(IntegrityError, match=r"keys\.json is missing"):
        opened(sealed)


def test_without_the_extra_nothing_is_made(sealed: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlcipher3", None)
    with pytest.raises(BackendUnavailable, match="extra `encryption`"):
        opened(sealed)
    assert not {KEYS_FILE, "ledger.db"} & {path.name for path in sealed.home.iterdir()}


def test_a_master_key_is_read_from_a_file_a_variable_a_keyring_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = os.urandom(32)
    text = base64.b64encode(raw).decode()

    class Known(KeyringBackend):
        priority = 1

        def set_password(self, service: str, username: str, password: str) -> None:
            raise AssertionError("a key is never written")

        def get_password(self, service: str, username: str) -> str | None:
            return raw.hex() if (service, username) == ("memory", "hippocube") else None

    (tmp_path / "raw").write_bytes(raw)
    (tmp_path / "text").write_text(f"{text}\n")
    monkeypatch.setenv("A_KEY", raw.hex())
    before = keyring.get_keyring()
    keyring.set_keyring(Known())  # type: ignore[no-untyped-call]
    try:
        places = ["file:" + str(tmp_path / "raw"), "file:" + str(tmp_path / "text"), "env:A_KEY", "keyring:memory"]
        assert {master_key(place) for place in [*places, f"command:echo '{text}'"]} == {raw}
        for bad in (
            "env:NO_KEY",
            "keyring:other",
            "file:/nowhere",
            "command:/nowhere",
            "command:'",
            "pass:x",
            "env:HOME",
        ):
            with pytest.raises(InvalidInput, match="MEMOS_ENCRYPTION_KEY"):
                master_key(bad)
        with pytest.raises(BackendUnavailable, match="status 3"):
            master_key("command:sh -c 'exit 3'")
    finally:
        keyring.set_keyring(before)
    with pytest.raises(ValueError, match="encryption_key"):
        Settings(encryption_key="hunter2hunter2")


def test_the_master_key_is_rotated_while_the_installation_is_in_use(sealed: Settings, tmp_path: Path) -> None:
    (tmp_path / "new").write_text(os.urandom(32).hex())
    turned = sealed.model_copy(update={"encryption_key": f"file:{tmp_path / 'new'}"})
    with opened(sealed) as memos:
        memos.add(SECRET)
        memos.maintenance.backup(tmp_path / "backups" / "before")
        done = encryption.rotate(sealed, turned.encryption_key or "")
        assert (done.setting, done.not_renewed) == (turned.encryption_key, ())
        memos.cubes.create("later")
        memos.add("said afterwards", cube="later")
        memos.maintenance.backup(tmp_path / "backups" / "after")  # makes a key for the new cube
    with pytest.raises(PermissionDenied, match="rotate-key"):
        opened(sealed)
    with opened(turned) as memos:
        assert texts(memos) == {SECRET, "said afterwards"}
    for name in ("before", "after"):
        place = turned.model_copy(update={"home": tmp_path / name})
        assert restore(tmp_path / "backups" / name, place, embedder=WordEmbedder()).unreadable == 0


# Conversions


def fill(memos: MemOS) -> None:
    memos.add([SECRET, "The cello is from Mirecourt."], conversation="c")
    memos.cubes.create("work")
    memos.add("a thing about work", cube="work")
    allow(memos.ledger)
    id_ = active(memos.ledger, [memos.memories.list()[0].id])
    with_files(memos._installation.adapters or Path(), id_)
    memos._installation.keep_adapters()


def state_of(settings: Settings) -> tuple[set[str], list[str], bool]:
    """Return what an installation knows, its adapters in use, and whether its index is that of the ledger."""
    with opened(settings) as memos:
        adapters = sorted(path.name for path in (memos._installation.adapters or Path()).iterdir())
        report = memos.maintenance.verify()
        return texts(memos), adapters, [each for each in report.differences if each.store == "vector"] == []


def test_an_installation_is_converted_both_ways(sealed: Settings) -> None:
    plain = sealed.model_copy(update={"encryption_key": None})
    with opened(plain) as memos:
        fill(memos)
        memos.maintenance.backup(sealed.home.parent / "old" / "one")
    before = state_of(plain)
    with pytest.raises(InvalidInput, match="is not set"):
        encryption.encrypt(plain)
    done = encryption.encrypt(sealed)
    assert (done.encrypted, done.plain_backups) == (True, (str(sealed.home.parent / "old" / "one"),))
    assert found(sealed.home, ["xylophone", "Mirecourt"]) == set()
    assert state_of(sealed) == before
    with pytest.raises(Conflict, match="already"):
        encryption.encrypt(sealed)
    encryption.decrypt(sealed)
    assert state_of(plain) == before
    assert {name for _, name in found(sealed.home, ["xylophone"])} >= {"ledger.db"}
    encryption.encrypt(sealed)
    assert state_of(sealed) == before


@pytest.mark.heavy
@pytest.mark.parametrize("way", [encryption.encrypt, encryption.decrypt])
def test_a_conversion_that_was_killed_at_any_step_is_run_again(
    sealed: Settings, way: Callable[[Settings], Any]
) -> None:
    plain, into = sealed.model_copy(update={"encryption_key": None}), way is encryption.encrypt
    with opened(plain if into else sealed) as memos:
        fill(memos)
    before = state_of(plain if into else sealed)
    whole = shutil.copytree(sealed.home, sealed.home.with_name("whole"))
    begun = read_keys(sealed.home / KEYS_FILE)
    for step in (3, 12, 24):
        shutil.rmtree(sealed.home)
        shutil.copytree(whole, sealed.home)
        assert killed_at(step, lambda: way(sealed))
        if read_keys(sealed.home / KEYS_FILE) != begun:  # else it was killed before it began
            with pytest.raises(MemosError, match=r"run `memos data \w+` again"):
                opened(sealed)
        with suppress(Conflict):  # all was done
            way(sealed)
        assert state_of(sealed if into else plain) == before, step


def killed_at(step: int, work: Callable[[], Any]) -> bool:
    """Run in a child process that is killed before one of the calls that change the disk; False if it ended before."""
    child = os.fork()
    if child == 0:
        left = [step]

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return real(*arguments, **options)

            return call

        os.fsync, os.mkdir = counted(os.fsync), counted(os.mkdir)
        os.replace, os.rename, os.unlink = counted(os.replace), counted(os.rename), counted(os.unlink)
        sqlcipher.copy, shutil.rmtree = counted(sqlcipher.copy), counted(shutil.rmtree)  # type: ignore[assignment]
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_it_is_converted_by_a_command_and_the_doctor_says_so(
    sealed: Settings, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = sealed.model_copy(update={"encryption_key": None})
    with opened(plain) as memos:
        memos.add(SECRET)
    monkeypatch.setenv("MEMOS_HOME", str(sealed.home))
    assert said_by_doctor(plain)[0] == "missing"
    monkeypatch.setenv("MEMOS_ENCRYPTION_KEY", key)
    assert said_by_doctor(sealed)[0] == "bad"
    run = CliRunner().invoke(app, ["data", "encrypt", "--json"])
    assert json.loads(run.output) == {"home": str(sealed.home), "encrypted": True, "plain_backups": []}
    assert said_by_doctor(sealed)[0] == "good"
    assert "env:NOWHERE" not in CliRunner().invoke(app, ["data", "rotate-key", "--to", "env:NOWHERE"]).output
    monkeypatch.setenv("NEXT_KEY", os.urandom(32).hex())
    run = CliRunner().invoke(app, ["data", "rotate-key", "--to", "env:NEXT_KEY"])
    assert "MEMOS_ENCRYPTION_KEY=env:NEXT_KEY" in run.output
    assert said_by_doctor(sealed)[0] == "bad"
    monkeypatch.setenv("MEMOS_ENCRYPTION_KEY", "env:NEXT_KEY")
    assert CliRunner().invoke(app, ["data", "decrypt"]).exit_code == 0
    with opened(plain) as memos:
        assert texts(memos) == {SECRET}


def said_by_doctor(settings: Settings) -> tuple[str, str]:
    [finding] = [each for each in doctor.examine(settings, server=lambda _: iter(())) if each.what == "encryption"]
    return finding.state, finding.told


# Backups, and erased cubes


def test_a_backup_is_restored_elsewhere_with_the_copy_of_its_keys(sealed: Settings, tmp_path: Path) -> None:
    with opened(sealed) as memos:
        fill(memos)
        before = texts(memos)
        memos.maintenance.backup(tmp_path / "backups" / "one")
    assert found(tmp_path / "backups", ["xylophone", "Mirecourt", "about work"]) == set()
    new = sealed.model_copy(update={"home": tmp_path / "new"})
    done = restore(tmp_path / "backups" / "one", new, embedder=WordEmbedder())
    assert (done.indexed, done.differences, done.unreadable) == (True, (), 0)
    with opened(new) as memos:
        assert texts(memos) == before
        assert memos.maintenance.verify().differences == ()
    with pytest.raises(PermissionDenied, match="is encrypted"):
        restore(
            tmp_path / "backups" / "one",
            sealed.model_copy(update={"home": tmp_path / "no", "encryption_key": None}),
            embedder=WordEmbedder(),
        )
    alone = shutil.copytree(tmp_path / "backups" / "one", tmp_path / "elsewhere" / "one")
    other = sealed.model_copy(update={"home": tmp_path / "other"})
    with pytest.raises(NotFound, match="--keys"):
        restore(alone, other, embedder=WordEmbedder())
    restore(alone, other, embedder=WordEmbedder(), keys_file=sealed.home / KEYS_FILE)
    with opened(other) as memos:
        assert texts(memos) == before


def test_a_backup_made_before_cannot_be_read_for_an_erased_cube(sealed: Settings, tmp_path: Path) -> None:
    with opened(sealed) as memos:
        memos.cubes.create("work")
        memos.add("a thing about work", cube="work")
        memos.add([SECRET, "They keep xylophones."], cube="work", conversation="c")
        memos.add("I stay.")
        memos.documents.wait(memos.documents.add(("a.md", b"# Work\n\nA whole document."), cube="work").id, 60)
        memos.maintenance.backup(tmp_path / "backups" / "one")
        # Out of the program's reach: no list of erasures comes to it, and it is in nobody's register.
        copied = shutil.copytree(tmp_path / "backups" / "one", tmp_path / "far" / "one")
        old_keys = shutil.copy(sealed.home / KEYS_FILE, tmp_path / "old-keys.json")
        receipt = memos.cubes.drop("work")
        assert receipt.state == "purged"
        assert receipt.removed["data_keys"] == 1
        assert receipt.key_destroyed
        memos.cubes.create("work")
        memos.add("a new start", cube="work")
        memos.maintenance.backup(tmp_path / "backups" / "two")
    left = read_keys(tmp_path / "backups" / copy_name(read_keys(sealed.home / KEYS_FILE).id))  # type: ignore[union-attr]
    assert left == read_keys(sealed.home / KEYS_FILE)
    for number, folder in enumerate((tmp_path / "backups" / "one", copied)):
        new = sealed.model_copy(update={"home": tmp_path / f"new{number}"})
        done = restore(folder, new, embedder=WordEmbedder(), keys_file=sealed.home / KEYS_FILE)
        assert (done.unreadable, done.differences) == (1, ())
        with opened(new) as memos:
            assert texts(memos) == {"I stay."}
            assert memos.maintenance.verify().clean
    whole = sealed.model_copy(update={"home": tmp_path / "whole"})
    restore(tmp_path / "backups" / "two", whole, embedder=WordEmbedder())
    with opened(whole) as memos:
        assert texts(memos) == {"I stay.", "a new start"}
    # What is said in the docs: who kept an old copy of the keys, and has the master key, reads the old backup.
    kept = sealed.model_copy(update={"home": tmp_path / "kept"})
    restore(copied, kept, embedder=WordEmbedder(), keys_file=Path(old_keys))
    with opened(kept) as memos:
        assert SECRET in texts(memos)


def test_a_sealed_backup_that_was_changed_is_refused(sealed: Settings, tmp_path: Path) -> None:
    with opened(sealed) as memos:
        memos.add(SECRET)
        memos.maintenance.backup(tmp_path / "backups" / "one")
    changes: tuple[Callable[[bytes], bytes], ...] = (
        lambda raw: raw[:-40],
        lambda raw: raw[:60] + bytes([raw[60] ^ 1]) + raw[61:],
        lambda raw: raw + b"more",
    )
    for change in changes:
        folder = shutil.copytree(tmp_path / "backups" / "one", tmp_path / "backups" / "changed")
        path = folder / "versions.sealed"
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(IntegrityError, match=r"versions\.sealed"):
            restore(folder, sealed.model_copy(update={"home": tmp_path / "new"}), embedder=WordEmbedder())
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / "new")


def test_an_installation_is_moved_into_an_encrypted_one_and_back(sealed: Settings, tmp_path: Path) -> None:
    plain = sealed.model_copy(update={"encryption_key": None, "home": tmp_path / "plain"})
    with opened(plain) as memos:
        memos.add([SECRET, "The cello is from Mirecourt."])
        before = texts(memos)
    migrate(plain, sealed, embedder=WordEmbedder())
    assert found(sealed.home, ["xylophone"]) == set()
    back = plain.model_copy(update={"home": tmp_path / "back"})
    migrate(sealed, back, embedder=WordEmbedder())
    with opened(back) as memos:
        assert texts(memos) == before


# Files in memory


def test_what_a_killed_program_left_is_taken_up_and_after_a_restart_the_index_is_brought_up_to_date(
    sealed: Settings, private_memory: Path
) -> None:
    with opened(sealed) as memos:
        memos.add("sealed at the end")
    assert list(private_memory.iterdir()) == []

    def crash() -> None:
        memos = opened(sealed)
        memos.add("said before the end")
        memos._context.indexes.vector.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    assert killed_at(1_000, crash)
    assert len(list(private_memory.iterdir())) == 1
    with opened(sealed) as memos:
        assert memos.maintenance.verify().clean
    assert killed_at(1_000, crash)
    for left in private_memory.iterdir():  # as a restart of the machine does
        shutil.rmtree(left)
    with opened(sealed) as memos:
        memos.maintenance.catch_up()
        assert memos.maintenance.verify().clean
        assert {hit.item.memory for hit in memos.search("said before the end").hits} >= {"said before the end"}
    [index] = (sealed.home / "vector").iterdir()
    index.write_bytes(index.read_bytes()[:-100])
    with opened(sealed) as memos:
        memos.maintenance.catch_up()
        assert memos.maintenance.verify().clean


def test_an_erased_sentence_leaves_the_sealed_index_with_the_receipt(sealed: Settings) -> None:
    with opened(sealed) as memos:
        item = memos.add(SECRET).item_ids[0]
    [index] = (sealed.home / "vector").iterdir()
    before = index.stat().st_ino
    with opened(sealed) as memos:
        assert memos.search("door code").hits
    assert index.stat().st_ino == before  # what was only read is not written again
    with opened(sealed) as memos:
        assert memos.erase(item).state == "purged"
        assert index.stat().st_ino != before


def test_a_folder_in_memory_of_somebody_else_is_refused(sealed: Settings, private_memory: Path) -> None:
    with opened(sealed) as memos:
        [folder] = private_memory.iterdir()
        assert folder == memos.scratch
    folder.mkdir(mode=0o755)
    with pytest.raises(BackendUnavailable, match="others can read it"):
        opened(sealed)
    folder.rmdir()
    folder.symlink_to(sealed.home)
    with pytest.raises(BackendUnavailable, match="belongs to somebody else"):
        opened(sealed)
    folder.unlink()


def test_without_a_folder_in_memory_nothing_is_encrypted(sealed: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "_MEMORY", ())
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(BackendUnavailable, match="tmpfs"):
        opened(sealed)


# Blocks of KV, and adapters


def test_blocks_are_sealed_and_gone_with_the_key_of_their_cube(tmp_path: Path) -> None:
    keys = Keyring.create(tmp_path / KEYS_FILE, os.urandom(32), KeyState.ON)
    folder = tmp_path / "activation"
    made = [
        Block(f"{at:064x}", None, "f" * 64, cube, "F32", (2, 1, 1, 64, 4), 0.1)
        for at, cube in enumerate(("alpha", "beta", "alpha"))
    ]
    array = np.arange(512, dtype="<f4").reshape(made[0].shape)

    def store() -> BlockStore:
        budgets = {Tier.HOST: 1 << 20, Tier.DISK: 1 << 20}
        return BlockStore(budgets, FixedClock(), folder=folder, sealer=BlockSealer(keys))

    first = store()
    for block in made:
        assert first.adopt(block, array)
    first.close()
    raw = b"".join(files_of(folder).values()) + "".join(files_of(folder)).encode()
    assert not any(
        each in raw for each in (array.tobytes()[:64], b"alpha", b"beta", made[0].key[:32].encode(), b"f" * 64)
    )
    for path in folder.glob("index.db*"):  # the index is made again from the blocks
        path.unlink()
    second = store()
    assert [block.cube for block, _, _ in second.blocks()] == ["alpha", "beta", "alpha"] or len(second.blocks()) == 3
    with second.checkout([made[1].key]) as lease:
        assert np.array_equal(lease.arrays()[0] if hasattr(lease, "arrays") else array, array)
    assert second.verify() == []
    keys.destroy([("alpha", FixedClock().now())])
    assert sorted(second.verify()) == sorted([made[0].key, made[2].key])
    second.close()


def test_adapters_are_sealed_with_the_key_of_their_cube_and_removed_with_their_rows(sealed: Settings) -> None:
    with opened(sealed) as memos:
        fill(memos)
        [held] = (sealed.home / ADAPTERS).iterdir()
        assert held.read_bytes().startswith(MAGIC)
    with opened(sealed) as memos:
        assert (memos._installation.adapters / held.name.removesuffix(".sealed")).is_dir()  # type: ignore[operator]
        memos.erase([item.id for item in memos.memories.list()])
        assert list((sealed.home / ADAPTERS).iterdir()) == []


# Scans for what was erased


def test_a_scan_reads_what_is_sealed_and_says_what_it_cannot(sealed: Settings, tmp_path: Path) -> None:
    with opened(sealed) as memos:
        memos.cubes.create("work")
        kept = memos.add("They keep xylophones in Mirecourt.", cube="work")
        memos.maintenance.backup(tmp_path / "backups" / "one")
        erased = memos.erase(memos.add(SECRET).item_ids[0])
    with opened(sealed) as memos:
        check = memos.erasures.verify(erased, texts=["47B19-xylophone"])
        assert (check.passed, check.problems) == (True, ())
        looked = memos.erasures.verify(erased, texts=["xylophones in Mirecourt"], folders=[tmp_path / "backups"])
        assert looked.scan is not None
        places = {Path(trace.place.partition(": ")[0]).name for trace in looked.scan.remnants}
        assert {"ledger", "versions.sealed", "messages.sealed"} <= places
        assert looked.scan.unread == ()
        with_points = memos.erasures.verify(erased, texts=[kept.item_ids[0]])
        assert with_points.scan is not None
        told = {trace.place.rpartition("/vector/")[2] for trace in with_points.scan.remnants}
        assert any(".sealed: in/" in place for place in told)  # the payloads of the sealed index
        assert memos._installation.vault is not None
        sealer, block = memos._installation.vault.blocks(), sealed.home / "activation" / "ab"
        block.mkdir(parents=True)
        (block / f"{sealer.name('k')}.safetensors").write_bytes(sealer.seal("k", "work", b"a pangolin in a block"))
        of_block = memos.erasures.verify(erased, texts=["a pangolin in a block"])
        assert of_block.scan is not None
        assert [Path(trace.place).parent for trace in of_block.scan.remnants] == [block]
    with opened(sealed.model_copy(update={"home": tmp_path / "plain", "encryption_key": None})) as memos:
        mine = memos.erase(memos.add("something else to erase").item_ids[0])
        check = memos.erasures.verify(mine, texts=["xylophone"], folders=[tmp_path / "backups"])
        assert not check.passed
        assert check.scan is not None
        assert any("versions.sealed: is encrypted" in line for line in check.scan.unread)
