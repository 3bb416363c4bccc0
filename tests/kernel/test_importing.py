"""Imports of chat exports: every shape read, every bad record named, and nothing ever stored twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.errors import Conflict, InvalidInput, MemosError, NotFound
from memos.kernel.importing import ImportSummary, OnBad, import_export

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


def bring(memos: MemOS, path: Path, on_bad: OnBad = "stop", **options: Any) -> ImportSummary:
    return import_export(memos, path, cube="default", on_bad=on_bad, **options)


def stored(memos: MemOS) -> list[tuple[str | None, str]]:
    return [(item.conversation, item.memory) for item in memos.memories.list(limit=10_000)]


def refused(
    memos: MemOS, path: Path, *words: str, error: type[MemosError] = InvalidInput, on_bad: OnBad = "stop"
) -> None:
    """Expect one sentence that names the file and these words, and nothing stored by it."""
    before = stored(memos)
    with pytest.raises(error) as caught:
        bring(memos, path, on_bad)
    told = str(caught.value)
    for word in (path.name, *words):
        assert word in told
    assert "\n" not in told
    assert stored(memos) == before


def say(number: int, **fields: object) -> dict[str, Any]:
    return {"role": "user" if number % 2 else "assistant", "content": f"line {number}", **fields}


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_lines(path: Path, *records: object) -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_the_example_exports_are_read_whole_and_found(memos: MemOS) -> None:
    document = json.loads((DATA / "chat_export.json").read_text(encoding="utf-8"))
    told = [(entry["id"], message["content"]) for entry in document for message in entry["messages"]]
    summary = bring(memos, DATA / "chat_export.json")
    assert (summary.added, summary.known, summary.bad, summary.indexed) == (len(told), 0, (), True)
    assert stored(memos) == told
    lines = [json.loads(line) for line in (DATA / "chat_export.jsonl").read_text(encoding="utf-8").splitlines()]
    summary = bring(memos, DATA / "chat_export.jsonl")
    assert (summary.added, summary.known, summary.bad) == (len(lines), 0, ())
    assert stored(memos)[len(told) :] == [(line["conversation"], line["content"]) for line in lines]
    [hit, *_] = memos.search("separate 32 A circuit for the electrician").hits
    assert "32 A circuit" in hit.sources[0].passage
    assert memos.maintenance.verify().clean


@pytest.mark.parametrize("name", ["chat_export.json", "chat_export.jsonl"])
def test_the_same_file_twice_adds_nothing(memos: MemOS, tmp_path: Path, name: str) -> None:
    first = bring(memos, DATA / name)
    before = stored(memos)
    again = bring(memos, DATA / name)
    assert (again.added, again.known) == (0, first.added)
    renamed = shutil.copy(DATA / name, tmp_path / name)
    assert bring(memos, Path(renamed)).added == 0
    assert stored(memos) == before


SHAPES: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "messages": ([say(1), say(2)], [("export", "line 1"), ("export", "line 2")]),
    "conversations": (
        [{"id": "a", "messages": [say(1)]}, {"title": "b", "messages": [say(2)]}, {"messages": [say(3)]}],
        [("a", "line 1"), ("b", "line 2"), ("export-3", "line 3")],
    ),
    "an object with conversations": ({"conversations": [{"id": "a", "messages": [say(1)]}]}, [("a", "line 1")]),
    "an object with sessions": ({"sessions": [{"id": 7, "messages": [say(1)]}]}, [("7", "line 1")]),
    "one conversation": ({"id": "a", "messages": [say(1), say(2)]}, [("a", "line 1"), ("a", "line 2")]),
    "one message": (say(1), [("export", "line 1")]),
    "messages that name their conversation": (
        [say(1, conversation="x"), say(2, conversation_id="y"), say(3)],
        [("x", "line 1"), ("y", "line 2"), ("export", "line 3")],
    ),
    "other names of fields": (
        [{"speaker": "Maya", "text": "line 1", "timestamp": 1_700_000_000, "likes": 3}],
        [("export", "line 1")],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_documented_shape_is_read(memos: MemOS, tmp_path: Path, shape: str) -> None:
    document, expected = SHAPES[shape]
    summary = bring(memos, write(tmp_path / "export.json", document))
    assert (summary.added, summary.bad) == (len(expected), ())
    assert stored(memos) == expected


def test_lines_may_hold_messages_or_conversations_and_blank_ones_are_skipped(memos: MemOS, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mixed.jsonl", say(1), "", {"id": "a", "messages": [say(2), say(3)]}, "   ", say(4))
    assert bring(memos, path).added == 4
    assert [memory for _, memory in stored(memos)] == ["line 1", "line 2", "line 3", "line 4"]


def test_a_byte_order_mark_and_windows_line_ends_are_read(memos: MemOS, tmp_path: Path) -> None:
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(json.dumps(say(n)).encode() + b"\r\n" for n in (1, 2)))
    assert bring(memos, path).added == 2


def test_unicode_line_separators_inside_a_message_do_not_end_its_line(memos: MemOS, tmp_path: Path) -> None:
    odd = "one\u2028two\u2029three\x85four"
    path = write_lines(tmp_path / "odd.jsonl", say(1, content=odd), say(2))
    assert bring(memos, path).added == 2
    assert stored(memos)[0][1] == odd


def test_a_conversation_of_many_batches_keeps_its_order(memos: MemOS, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = write_lines(tmp_path / "long.jsonl", *(say(n) for n in range(123)))
    summary = bring(memos, path, on_progress=lambda done, total: seen.append((done, total)))
    assert summary.added == 123
    assert seen == [(50, 123), (100, 123), (123, 123)]
    assert [item.position for item in memos.memories.list(limit=1000)] == list(range(123))
    assert [memory for _, memory in stored(memos)] == [f"line {n}" for n in range(123)]


def test_repeated_words_are_kept_as_often_as_they_were_said(memos: MemOS, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "yes.jsonl", *(say(1, content="yes") for _ in range(60)))
    assert bring(memos, path).added == 60
    again = bring(memos, path)
    assert (again.added, again.known, len(stored(memos))) == (0, 60, 60)


def test_a_longer_export_of_the_same_chat_adds_only_what_is_new(memos: MemOS, tmp_path: Path) -> None:
    bring(memos, write_lines(tmp_path / "chat.jsonl", *(say(n) for n in range(70))))
    longer = write_lines(tmp_path / "chat.jsonl", *(say(n) for n in range(90)))
    summary = bring(memos, longer)
    assert (summary.added, summary.known) == (20, 70)
    assert [memory for _, memory in stored(memos)] == [f"line {n}" for n in range(90)]


BAD_LINES: list[tuple[Any, str]] = [
    ("{not json", "is not JSON"),
    ('{"role": "user", "content": "cut of', "is not JSON"),
    ("[" * 5000, "is not JSON"),
    ('{"content": ' + "9" * 5000 + "}", "is not JSON"),
    ('"just text"', "str"),
    ("17", "int"),
    ("null", "NoneType"),
    ({"role": "user"}, "no content"),
    ({"messages": [5]}, "int"),
    (say(3, content=None), "no content"),
    (say(3, role="robot"), "'robot'"),
    (say(3, content="  "), "empty"),
    (say(3, content=5), "int"),
    (say(3, chat_time="soon"), "is not a time"),
    (say(3, chat_time=float("nan")), "is not a time"),
    (say(3, name=5), "name"),
    ('{"role": "user", "content": "lone \\ud800 surrogate"}', "surrogate"),
    ('{"role": "user", "content": "nul \\u0000 here"}', "NUL"),
    (say(3, conversation="x" * 300), "256"),
    (say(3, message_id="m1", content="other words"), "'m1'"),
]


@pytest.mark.parametrize(("bad", "word"), BAD_LINES, ids=[word + str(n) for n, (_, word) in enumerate(BAD_LINES)])
def test_a_bad_record_stops_the_import_or_is_skipped_and_named(
    memos: MemOS, tmp_path: Path, bad: Any, word: str
) -> None:
    path = write_lines(tmp_path / "chat.jsonl", say(1, message_id="m1"), say(2), bad, say(4))
    refused(memos, path, "line 3", word, "--on-bad skip")
    summary = bring(memos, path, "skip")
    assert summary.added + summary.known == 3
    [record] = summary.bad
    assert record.place.startswith("line 3")
    assert word in record.problem
    assert [memory for _, memory in stored(memos)] == ["line 1", "line 2", "line 4"]
    assert bring(memos, path, "skip").added == 0
    mended = write_lines(path, say(1, message_id="m1"), say(2), say(3), say(4))
    summary = bring(memos, mended)
    assert (summary.added, summary.known, summary.bad) == (1, 3, ())
    assert sorted(memory for _, memory in stored(memos)) == ["line 1", "line 2", "line 3", "line 4"]


def test_a_message_id_that_is_stored_with_other_text_is_a_conflict_or_skipped(memos: MemOS, tmp_path: Path) -> None:
    bring(memos, write_lines(tmp_path / "chat.jsonl", say(1, message_id="m1")))
    path = write_lines(tmp_path / "chat.jsonl", say(2), say(3, message_id="m1"), say(4))
    refused(memos, path, "line 1 to line 3", "'m1'", "--on-bad skip", error=Conflict)
    summary = bring(memos, path, "skip")
    assert (summary.added, [record.place for record in summary.bad]) == (2, ["line 2"])


def test_an_empty_alias_does_not_hide_the_content(memos: MemOS, tmp_path: Path) -> None:
    both = [
        {"content": "line 1", "text": None},
        {"text": "an alias", "content": "line 2"},
        {"text": None, "content": "line 3"},
    ]
    assert bring(memos, write(tmp_path / "export.json", both)).added == 3
    assert [memory for _, memory in stored(memos)] == ["line 1", "line 2", "line 3"]


def test_a_record_refused_in_a_late_batch_stores_nothing_of_the_early_ones(memos: MemOS, tmp_path: Path) -> None:
    records = [say(n) for n in range(130)]
    path = write_lines(tmp_path / "chat.jsonl", *records[:120], say(120, role="robot"), *records[121:])
    refused(memos, path, "line 121 ", "'robot'")
    summary = bring(memos, write_lines(path, *records))
    assert (summary.added, summary.known) == (130, 0)
    assert [memory for _, memory in stored(memos)] == [f"line {n}" for n in range(130)]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".txt"])
@pytest.mark.parametrize("content", [b"", b"  \n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(memos: MemOS, tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"empty{suffix}"
    path.write_bytes(content)
    refused(memos, path, "empty", "chat export")


@pytest.mark.parametrize("on_bad", ["stop", "skip"])
@pytest.mark.parametrize("indent", [None, 0, 2])
def test_a_cut_off_json_file_is_refused(memos: MemOS, tmp_path: Path, indent: int | None, on_bad: OnBad) -> None:
    whole = json.dumps([{"id": "a", "messages": [say(n) for n in range(9)]}], indent=indent)
    path = tmp_path / "cut.json"
    path.write_text(whole[: len(whole) * 2 // 3])
    refused(memos, path, "is not JSON", "ends inside entry", on_bad=on_bad)


def test_a_cut_off_last_line_is_the_only_one_skipped(memos: MemOS, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cut.jsonl", say(1), say(2), say(3))
    path.write_text(path.read_text()[:-12])
    refused(memos, path, "line 3", "is not JSON")
    assert bring(memos, path, "skip").added == 2


def test_a_file_that_is_not_utf8_is_refused_with_the_line(memos: MemOS, tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(json.dumps(say(1)).encode() + b'\n{"role": "user", "content": "caf\xe9"}\n')
    refused(memos, path, "not UTF-8", "0xe9", "line 2", "convert")
    path.write_bytes(json.dumps([say(1)]).encode("utf-16"))
    refused(memos, path, "not UTF-8")


@pytest.mark.parametrize(
    "content", ["17", '"text"', "true", "[" * 5000, "9" * 5000, "<html></html>", "role,content\nuser,hi"]
)
def test_a_file_of_another_kind_is_refused(memos: MemOS, tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    refused(memos, path)


@pytest.mark.parametrize("document", [[], {}, {"messages": []}, {"conversations": []}, [{"id": "a", "messages": []}]])
def test_an_export_without_messages_stores_nothing(memos: MemOS, tmp_path: Path, document: Any) -> None:
    path = write(tmp_path / "none.json", document)
    if document == {}:
        refused(memos, path, "no content")
    else:
        assert bring(memos, path).added == 0
    assert stored(memos) == []


@pytest.mark.parametrize("document", [
    {"conversations": {"a": [1]}}, {"conversations": "none"}, [[say(1)]], [None],
     [{"messages": {"1": 2}}], {"mapping": {}},
])  # fmt: skip
def test_records_of_a_wrong_shape_are_named(memos: MemOS, tmp_path: Path, document: Any) -> None:
    path = write(tmp_path / "wrong.json", document)
    refused(memos, path, "entry 1")
    summary = bring(memos, path, "skip")
    assert (summary.added, len(summary.bad)) == (0, 1)


def test_a_file_that_cannot_be_opened_is_refused(memos: MemOS, tmp_path: Path) -> None:
    refused(memos, tmp_path / "missing.json", "cannot be read", "No such file")
    (tmp_path / "folder.json").mkdir()
    refused(memos, tmp_path / "folder.json", "holds no files")


def test_an_unknown_cube_is_not_found_and_the_file_untouched(memos: MemOS, tmp_path: Path) -> None:
    path = write(tmp_path / "export.json", [say(1)])
    with pytest.raises(NotFound, match="memos cube create nowhere"):
        import_export(memos, path, cube="nowhere")
    assert stored(memos) == []


@pytest.mark.parametrize("name", ["plain", "sealed"])
def test_the_file_of_a_cube_is_refused_with_what_loads_it(name: str, memos: MemOS) -> None:
    refused(memos, Path(__file__).resolve().parents[1] / "data" / f"{name}.memcube", "memos cube load")
