"""Receipts of erasures: signed, chained into the audit log, and checked against every file and row."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import sqlite3
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.api.serialization import view
from memos.core.erasures import ReceiptCheck
from memos.core.settings import Settings as AllSettings
from memos.core.types import EraseReceipt
from memos.errors import IntegrityError, InvalidInput, PermissionDenied
from memos.kernel.doctor import State, examine
from memos.memcube.receipts import fingerprint
from memos.memcube.scan import Passages, Scan, Texts
from memos.memcube.signing import FILE
from tests.fakes import WordEmbedder

SECRET = "My brother Quillfeather keeps the pangolin in Zanzibar."


def opened(home: Path, settings: Settings) -> MemOS:
    return MemOS.open(home, settings=settings, embedder=WordEmbedder())


def as_json(receipt: EraseReceipt) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(view(receipt)))
    return told


def changed_ledger(home: Path, statement: str) -> None:
    """Change a closed ledger by other means."""
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute(statement)
    connection.close()


def test_a_receipt_counts_every_form_before_and_after(memos: MemOS, tmp_path: Path) -> None:
    ids = memos.add(["Before it.", SECRET, "After it."], conversation="c", idempotency_key="k").item_ids
    memos.update(ids[1], SECRET + " And more.")
    memos.transfer.dump("default", tmp_path / "life.memcube")
    memos.maintenance.backup(tmp_path / "backup")
    receipt = memos.erase(ids[1])
    forms = {form.name: (form.before, form.after) for form in receipt.forms}
    assert (
        forms.items()
        >= {
            "memories": (1, 0),
            "versions": (2, 0),
            "messages": (1, 0),
            "sources": (1, 0),
            "vectors": (2, 0),
            "windows": (1, 0),
            "events": (1, 0),
            "idempotency": (1, 0),
            "dumps": (1, 1),
            "backups": (1, 1),
        }.items()
    )
    assert forms["graph"][0] > 0
    assert forms["graph"][1] == 0
    assert receipt.key_destroyed is None  # no cube has a key of its own


def test_a_receipt_holds_until_it_or_the_ledger_is_changed(memos: MemOS) -> None:
    item = memos.add(SECRET).item_ids[0]
    receipt = memos.erase(item)
    assert SECRET[:16] not in json.dumps(as_json(receipt))
    check = memos.erasures.verify(as_json(receipt), texts=["Quillfeather", "pangolin"])
    assert (check.passed, check.signature, check.signed_here, check.in_audit_log) == (True, "valid", True, True)
    assert check.scan is not None
    assert check.scan.fingerprints == len(receipt.fingerprints) > 0
    assert check.scan.files > 10
    again = memos.memories.erase_receipt(receipt.id)
    assert again.fingerprints == ()
    assert memos.erasures.verify(json.dumps(view(again))).passed
    assert memos.erasures.verify(receipt.id).passed


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda told: told | {"item_ids": []}, "changed after it was signed"),
        (lambda told: told | {"forms": [{"name": "backups", "before": 0, "after": 0}]}, "changed after it was signed"),
        (lambda told: told | {"note": "by hand"}, "'note' is no field of a receipt"),
        (lambda told: told | {"signature": None}, "not signed"),
        (lambda told: told | {"public_key": "AAAA"}, "public key is none"),
    ],
)
def test_a_changed_receipt_is_told(
    memos: MemOS, change: Callable[[dict[str, Any]], dict[str, Any]], problem: str
) -> None:
    receipt = as_json(memos.erase(memos.add(SECRET).item_ids[0]))
    check = memos.erasures.verify(change(receipt), scan=False)
    assert not check.passed
    assert problem in " ".join(check.problems)


def test_what_is_no_receipt_is_refused(memos: MemOS) -> None:
    receipt = as_json(memos.erase(memos.add(SECRET).item_ids[0]))
    fields: list[tuple[str, Any]] = [("forms", 3), ("removed", {"a": "b"}), ("at", 1), ("item_ids", ["\ud800"])]
    fields += [("id", 10**30), ("id", "a\0b"), ("id", "\ud800"), ("audit_number", 10**30), ("audit_number", "1")]
    fields += [("forms", [{"name": "backups", "before": float("inf"), "after": 0}]), ("key_destroyed", 1)]
    for wrong in ("{", "{}", "[]", *({**receipt, name: value} for name, value in fields)):
        with pytest.raises(InvalidInput, match="receipt"):
            memos.erasures.verify(wrong, scan=False)
    with pytest.raises(InvalidInput, match="too short"):
        memos.erasures.verify(receipt, texts=["a"])


def test_a_receipt_of_another_installation_is_foreign(tmp_path: Path, settings: Settings) -> None:
    with opened(tmp_path / "one", settings) as memos:
        receipt = memos.erase(memos.add(SECRET).item_ids[0])
    with opened(tmp_path / "two", settings) as memos:
        check = memos.erasures.verify(receipt, scan=False)
    assert (check.signature, check.signed_here, check.state) == ("valid", False, None)
    assert not check.passed


def test_receipts_of_a_former_key_stay_readable_and_a_lost_or_open_key_is_told(
    tmp_path: Path, settings: Settings
) -> None:
    key = tmp_path / FILE
    with opened(tmp_path, settings) as memos:
        receipt = memos.erase(memos.add(SECRET).item_ids[0])
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.unlink()
    with opened(tmp_path, settings) as memos:
        check = memos.erasures.verify(receipt, scan=False)
        assert (check.passed, check.signed_here) == (True, True)
        newer = memos.erase(memos.add(SECRET).item_ids[0])
        assert newer.public_key != receipt.public_key
    key.chmod(0o644)
    with pytest.raises(PermissionDenied, match="chmod 600"):
        opened(tmp_path, settings)
    key.chmod(0o600)
    key.write_text("nonsense")
    with pytest.raises(IntegrityError, match="no key"):
        opened(tmp_path, settings)


TAMPERED = {
    "UPDATE access_log SET actor = 'somebody' WHERE number = 2": "entry 2 was changed",
    "UPDATE access_log SET kind = 'sign-in' WHERE number = 2": "entry 2 does not follow entry 1",
    "DELETE FROM access_log WHERE number = 2": "entry 2 is missing",
    "DELETE FROM access_log WHERE number = 3": "the log ends at entry 2",
    "UPDATE meta SET value = 'x' WHERE key = 'audit:head'": "the head of the chain was changed",
    "DELETE FROM meta WHERE key = 'audit:head'": "the head of the chain is missing",
}


def test_a_changed_audit_log_is_told_everywhere(tmp_path: Path, settings: Settings) -> None:
    home = tmp_path / "home"
    with opened(home, settings) as memos:
        receipts = [memos.erase(memos.add(SECRET).item_ids[0], wait=False) for _ in range(3)]
        assert memos.audit.verify().intact
    for number, (statement, problem) in enumerate(TAMPERED.items()):
        copy = tmp_path / str(number)
        copy.mkdir()
        shutil.copy(home / "ledger.db", copy)
        changed_ledger(copy, statement)
        found = examine(AllSettings(home=copy), server=lambda _: iter(()), embedder=lambda _: iter(()))
        told = [(each.state, each.told) for each in found if each.what == "audit"]
        assert [(state, problem in line) for state, line in told] == [(State.BAD, True)], problem
    changed_ledger(home, "UPDATE access_log SET actor = 'somebody' WHERE number = 2")
    with opened(home, settings) as memos:
        assert memos.audit.verify().problem == "entry 2 was changed"
        assert [each.store for each in memos.maintenance.verify().differences] == ["audit"]
        assert "entry 2 was changed" in str(memos.erasures.verify(receipts[1], scan=False).problems)


def test_remnants_are_found_and_what_is_said_again_is_not_one(memos: MemOS, tmp_path: Path) -> None:
    receipt = memos.erase(memos.add(SECRET).item_ids[0])
    memos.add(SECRET)
    memos.maintenance.catch_up()
    check = memos.erasures.verify(receipt)
    assert check.scan is not None
    assert check.passed
    assert {trace.number for trace in check.scan.said_again} == set(range(len(receipt.fingerprints)))
    left = tmp_path / "elsewhere" / "copy.bin"
    left.parent.mkdir()
    left.write_bytes(b"\0" * 5_000 + zlib.compress(SECRET.encode()))
    memos.erase(memos.memories.list()[0].id)
    check = memos.erasures.verify(receipt, folders=[left.parent])
    assert not check.passed
    assert check.scan is not None
    assert {trace.place for trace in check.scan.remnants} == {str(left)}


ENCODED: dict[str, Callable[[str], bytes]] = {
    "utf-8": str.encode,
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "json": lambda text: json.dumps({"said": text}).encode(),
    "base64": lambda text: base64.b64encode(b"x" + text.encode()),
    "zlib": lambda text: zlib.compress(text.encode()),
    "gzip in zlib": lambda text: zlib.compress(gzip.compress(text.encode())),
    "cut off": lambda text: zlib.compress(b"before " * 50 + text.encode() + b"after " * 5_000)[:-9],
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_scan_reads_every_encoding(tmp_path: Path, encoding: str) -> None:
    text = 'Über die Brücke sagt Quillfeather: "Nie wieder nach Zanzibar, bitte sehr."'
    secret = bytes(32)
    (tmp_path / "some.bin").write_bytes(b"\x01" * 777 + ENCODED[encoding](text) + bytes(99))
    starts = [text.encode()[place : place + 16] for place in range(len(text.encode()) - 16)]
    for needles in (Texts([text]), Passages(secret, [fingerprint(secret, passage) for passage in starts])):
        scan = Scan(needles)
        scan.folder(tmp_path)
        assert scan.traces, type(needles)
    other = Scan(Texts(["nothing like this is in there"]))
    other.folder(tmp_path)
    assert not other.traces


def test_the_index_compresses_its_payloads_and_a_scan_reads_them(memos: MemOS) -> None:
    tag = "wombat-of-the-greenhouse"
    memos.add("hello", tags=[tag], info={"a": tag, "b": tag})
    memos.maintenance.catch_up()
    memos._context.indexes.vector.flush()
    scan = Scan(Texts([f'"a":["{tag}"],"b":["{tag}"]']))
    scan.folder(memos.home / "vector")
    assert {trace.encoding for trace in scan.traces.values()} == {"lz4: utf-8"}


def test_only_admins_scan_and_nobody_learns_of_others_receipts(memos: MemOS) -> None:
    for user in ("ana", "ben"):
        memos.users.create(user)
    receipt = memos.erase(memos.add(SECRET, cube="ana", actor="ana").item_ids, actor="ana")
    check: ReceiptCheck = memos.erasures.verify(receipt, scan=False, actor="ana")
    assert check.passed
    with pytest.raises(PermissionDenied):
        memos.erasures.verify(receipt, actor="ana")
    with pytest.raises(Exception, match="receipt"):
        memos.erasures.verify(receipt.id, scan=False, actor="ben")
