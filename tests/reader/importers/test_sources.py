"""The files of an export: ZIP archives, folders and patterns as people have them, and archives that mean harm."""

from __future__ import annotations

import stat
import struct
import zipfile
from pathlib import Path

import pytest

from memos.errors import InvalidInput
from memos.reader.importers import sources
from memos.reader.importers.formats import Format
from memos.reader.importers.sources import open_export
from tests.reader.importers.exports import left_out, problems, read, said, write, zipped

HELLO = {"id": "a", "messages": [{"role": "user", "content": "hello"}]}
ONE = [("a", "user", "hello")]


def chatgpt(name: str, text: str) -> dict[str, object]:
    message = {"id": f"m-{name}", "author": {"role": "user"}, "create_time": 1e9, "content": {"parts": [text]}}
    return {"conversation_id": name, "current_node": "1", "mapping": {"1": {"parent": None, "message": message}}}


CHATGPT = {
    "user.json": {"id": "user-1", "email": "ana@example.org"},
    "chat.html": "<html></html>",
    "message_feedback.json": [],
    "conversations-2.json": [chatgpt("c", "third")],
    "conversations-10.json": [chatgpt("d", "fourth")],
    "conversations-1.json": [chatgpt("a", "first"), chatgpt("b", "second")],
    "file-1.png": b"\x89PNG",
    "__MACOSX/._user.json": b"\0",
}
FOUR = [("a", "user", "first"), ("b", "user", "second"), ("c", "user", "third"), ("d", "user", "fourth")]


def test_chatgpts_archive_of_numbered_files_is_read_in_their_order(tmp_path: Path) -> None:
    format_, records = read(zipped(tmp_path / "export.zip", CHATGPT))
    assert (format_, said(records), problems(records)) == (Format.CHATGPT, FOUR, [])
    assert left_out(records) == {
        "user.json, which holds no conversations": 1, "files of the type .html": 1, "files of the type .png": 1,
    }  # fmt: skip
    assert next(each.place for each in records if each.message) == "conversations-1.json: entry 1, message 1"


def test_the_same_files_are_read_as_folder_pattern_and_list(tmp_path: Path) -> None:
    folder = write(tmp_path / "unpacked", CHATGPT)
    assert said(read(folder)[1]) == FOUR
    assert said(read(str(folder / "conversations-*.json"))[1]) == FOUR
    assert said(read([folder / "conversations-1.json", str(folder / "conversations-2.json")])[1]) == FOUR[:3]
    with pytest.raises(InvalidInput, match="matches no file"):
        read(str(folder / "nothing-*.json"))


def test_a_damaged_file_of_several_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    files = {**CHATGPT, "conversations-2.json": '[{"mapping": {', "conversations-3.json": b"\xff\xfe[\0]\0"}
    format_, records = read(zipped(tmp_path / "export.zip", files))
    assert (format_, said(records)) == (Format.CHATGPT, [FOUR[0], FOUR[1], FOUR[3]])
    [cut, encoded] = problems(records)
    assert cut[0] == "conversations-2.json"
    assert "file ends inside entry 1" in cut[1]
    assert encoded == (
        "conversations-3.json", "is not UTF-8: it begins as UTF-16 does; convert the file to UTF-8",
    )  # fmt: skip


def test_an_archive_keeps_its_own_name_where_its_path_does_not_say_it(tmp_path: Path) -> None:
    path = zipped(tmp_path / "upload", {"_chat.txt": "[2026-01-05, 10:00:00] Ana: hi"})
    assert said(read(path, name="WhatsApp Chat - Ana.zip")[1]) == [("Ana", "Ana", "hi")]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../etc/passwd.json", sources.UNSAFE), ("/etc/passwd.json", sources.UNSAFE),
        ("a/../../b.json", sources.UNSAFE), ("C:\\a.json", sources.UNSAFE), ("..\\b.json", sources.UNSAFE),
        ("inner.zip", sources.NESTED), ("inner.tar.gz", sources.NESTED),
    ],
)  # fmt: skip
def test_what_is_not_read_of_an_archive_is_counted_by_reason(tmp_path: Path, name: str, reason: str) -> None:
    format_, records = read(zipped(tmp_path / "export.zip", {"chat.json": HELLO, name: HELLO}))
    assert (format_, said(records), left_out(records)) == (Format.GENERIC, ONE, {reason: 1})
    with pytest.raises(InvalidInput, match="holds no files that can be read"):
        read(zipped(tmp_path / "alone.zip", {name: HELLO}))
    assert {path.name for path in tmp_path.iterdir()} == {"export.zip", "alone.zip"}  # nothing was unpacked


def test_links_encrypted_and_doubled_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("chat.json", '{"id": "a", "messages": [{"role": "user", "content": "hello"}]}')
        link = zipfile.ZipInfo("link.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("chat.json", "[]")
        packed = zipfile.ZipInfo("packed.json")
        packed.compress_type = zipfile.ZIP_BZIP2
        archive.writestr(packed, "[]")
    raw = bytearray(path.read_bytes())
    place = raw.rfind(b"PK\x01\x02", 0, raw.rfind(b"packed.json"))
    assert left_out(read(path)[1]) == {sources.LINK: 1, sources.DOUBLE: 1, sources.METHOD: 1}
    raw[place + 8] |= 1  # the flag of encryption
    path.write_bytes(raw)
    assert left_out(read(path)[1]) == {sources.LINK: 1, sources.DOUBLE: 1, sources.LOCKED: 1}


def test_a_file_that_unpacks_to_far_more_than_its_size_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_RATIO_FROM_BYTES", 100_000)
    files = {"chat.json": HELLO, "bomb.json": b" " * 1_000_000}
    assert left_out(read(zipped(tmp_path / "export.zip", files))[1]) == {sources.BOMB: 1}
    monkeypatch.setattr(sources, "MOST_UNPACKED_BYTES", 50)
    with pytest.raises(InvalidInput, match=r"unpacks to .* bytes, more than the limit of 50; unpack it yourself"):
        read(tmp_path / "export.zip")
    monkeypatch.setattr(sources, "MOST_FILES", 1)
    with pytest.raises(InvalidInput, match="holds 2 files, more than the limit of 1"):
        read(tmp_path / "export.zip")


def test_a_size_that_lies_ends_the_file_there(tmp_path: Path) -> None:
    path = zipped(tmp_path / "export.zip", {"chat.jsonl": '{"content": "one"}\n{"content": "two"}\n'})
    raw = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        place = raw.find(mark)
        raw[place + at : place + at + 4] = struct.pack("<I", 19)  # the first line
    path.write_bytes(raw)
    with pytest.raises(InvalidInput, match=r"chat.jsonl: is damaged in its archive \(BadZipFile\)"):
        read(path)


@pytest.mark.parametrize("cut", [30, 200])
def test_a_cut_archive_is_told(tmp_path: Path, cut: int) -> None:
    path = zipped(tmp_path / "export.zip", CHATGPT)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InvalidInput, match="damaged ZIP archive; the download may be incomplete"):
        read(path)


def test_damage_inside_an_archive_is_told_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:  # stored, so that only the sum of the damaged file is wrong
        archive.writestr("a.jsonl", '{"content": "one"}\n')
        archive.writestr("b.jsonl", '{"content": "two"}\n')
    path.write_bytes(path.read_bytes().replace(b"two", b"owt"))
    records = read(path)[1]
    assert ("a", "user", "one") in said(records)
    assert problems(records) == [("b.jsonl", "is damaged in its archive (BadZipFile)")]


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", {"diary.json": [{"content": "secret"}]})
    folder = write(tmp_path / "export", {"chat.json": HELLO})
    (folder / "diary.json").symlink_to(secret / "diary.json")
    (folder / "more").symlink_to(secret)
    records = read(folder)[1]
    assert (said(records), left_out(records)) == (ONE, {sources.LINK: 2})
    (tmp_path / "mine.json").symlink_to(folder / "chat.json")  # one that is named is meant
    assert said(read(tmp_path / "mine.json")[1]) == ONE


def test_what_holds_nothing_known_says_what_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds nothing that is known; known are exports of chatgpt, claude"):
        read(write(tmp_path / "other", {"a.png": b"x", "b.txt": "hello"}))
    empty = tmp_path / "none"
    empty.mkdir()
    with pytest.raises(InvalidInput, match="holds no files"):
        read(empty)
    with pytest.raises(InvalidInput, match="no address of a store"):
        read("ftp://example.org/export.zip")
    with open_export(tmp_path / "other" / "b.txt") as export:
        assert export.single
