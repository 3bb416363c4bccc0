"""The stream of entries: what `json` reads is read the same, bad entries are bad alone, and memory stays small."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memos.errors import InvalidInput
from memos.reader.importers import stream
from memos.reader.importers import stream as pieces
from memos.reader.importers.stream import read_entries

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(alphabet='a"\\{}[],\né🎉 '),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def written(folder: Path, content: str | bytes, name: str = "export.json") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def told(path: Path, **options: int) -> list[Any]:
    """Return each entry's place with its value, or with its problem as text after an exclamation mark."""
    return [
        (entry.place, entry.value if entry.problem is None else f"!{entry.problem}")
        for entry in read_entries(path, **options)
    ]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(document=st.lists(values, max_size=5), indent=st.sampled_from([None, 0, 2]), block=st.integers(1, 40))
def test_a_list_is_read_as_json_reads_it_wherever_its_blocks_end(
    tmp_path: Path, document: list[Any], indent: int | None, block: int
) -> None:
    path = written(tmp_path, json.dumps(document, indent=indent, ensure_ascii=False))
    with pytest.MonkeyPatch.context() as patch:
        for module in (stream, pieces):
            patch.setattr(module, "BLOCK", block)
        assert told(path) == [(f"entry {number}", value) for number, value in enumerate(document, start=1)]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    document=st.lists(st.dictionaries(st.text(max_size=3), values, min_size=1, max_size=3), max_size=4), data=st.data()
)
def test_of_a_cut_list_all_before_the_cut_is_read_and_the_cut_is_told(
    tmp_path: Path, document: list[Any], data: st.DataObject
) -> None:
    whole = json.dumps(document).encode()
    path = written(tmp_path, whole[: data.draw(st.integers(1, len(whole) - 1))])
    try:
        *read, (place, problem) = told(path)
    except InvalidInput as error:
        assert "is not JSON: the file ends inside entry 1, in line 1 after " in str(error)
    else:
        assert [value for _, value in read] == document[: len(read)]
        assert place == f"entry {len(read) + 1}"
        assert problem.startswith("!is not JSON: the file ends there, in line 1 after ")


@pytest.mark.parametrize(("bad", "problem"), [
    ('{"a": 9x}', "Expecting ',' delimiter in line 2"),
    ("{a}", "Expecting property name"),
    ("", "Expecting value in line 2"),
    ("[" * 90_000 + "]" * 90_000, "nested too deeply in line 2"),
    ('{"a": ' + "9" * 5000 + "}", "too many digits in line 2"),
    ('{"a": "one\ntwo"}', "Invalid control character"),
    ('"nul \0"', "Invalid control character"),
    (b'"caf\xe9"', "not UTF-8: byte 0xe9 in line 2"),
    (b'"\xed\xa0\x80"', "not UTF-8: byte 0xed in line 2"),
], ids=range(9))  # fmt: skip
def test_a_bad_entry_is_bad_alone_and_its_line_is_told(tmp_path: Path, bad: str | bytes, problem: str) -> None:
    raw = bad if isinstance(bad, bytes) else bad.encode()
    [first, (place, said), last] = told(written(tmp_path, b'["first",\n' + raw + b',\n"last"]'))
    assert (first, last) == (("entry 1", "first"), ("entry 3", "last"))
    assert place == "entry 2"
    assert said.startswith("!is not ")
    assert problem in said


def test_what_stands_behind_the_list_is_told(tmp_path: Path) -> None:
    assert told(written(tmp_path, "[1]\n\n")) == [("entry 1", 1)]
    [_, (place, problem)] = told(written(tmp_path, '[1]\n{"a": 1}'))
    assert (place, problem) == ("entry 2", "!comes after the end of the list, in line 1; remove it")


@pytest.mark.parametrize(("name", "content", "places"), [
    ("a.json", '{"a": 1}\n{"b": 2}\n', ["line 1", "line 2"]),
    ("a.json", '\ufeff\n\n{"a": 1}\r\n\r\n{"b": 2}', ["line 3", "line 5"]),
    ("a.json", '{"a": 1}\n', ["entry 1"]),
    ("a.jsonl", '{"a": 1}\n', ["entry 1"]),
    ("a.jsonl", '{\n"a": 1}\n', ["entry 1"]),
    ("a.jsonl", '[\n{"a": 1}]\n', ["entry 1"]),
    ("a.jsonl", "[1]\n[2]\n", ["line 1", "line 2"]),
    ("a.jsonl", '{bad\n{"a": 1}\n', ["line 1", "line 2"]),
    ("a.json", '{"sessions": [1, 2]}', ["entry 1", "entry 2"]),
])  # fmt: skip
def test_lists_lines_and_single_objects_are_told_apart(
    tmp_path: Path, name: str, content: str, places: list[str]
) -> None:
    assert [place for place, _ in told(written(tmp_path, content, name))] == places


def test_what_is_too_large_is_passed_over_and_what_follows_is_read(tmp_path: Path) -> None:
    long = '"' + "x" * 400_000 + '\\""'
    path = written(tmp_path, f'[{long},\n"y", {{"a": {long}}}, 1]')
    large = "!is larger than 1,000 bytes; split it into conversations"
    assert told(path, max_bytes=1000) == [("entry 1", large), ("entry 2", "y"), ("entry 3", large), ("entry 4", 1)]
    path = written(tmp_path, f'{{"a": 1}}\n{long}\n{{"b": 2}}\n', "a.jsonl")
    assert told(path, max_bytes=1000) == [("line 1", {"a": 1}), ("line 2", large), ("line 3", {"b": 2})]
    with pytest.raises(InvalidInput, match=r"one object of more than 1,000 bytes; give a list or JSONL"):
        told(written(tmp_path, f'{{"a": {long}}}'), max_bytes=1000)
    with pytest.raises(InvalidInput, match=r"is not JSON: it begins with b'<'"):
        told(written(tmp_path, "<html>" + long), max_bytes=1000)


@pytest.mark.parametrize(("content", "words"), [
    (b"\x1f\x8b rest", "gzip"),
    ("[1]".encode("utf-16"), "not UTF-8.*UTF-16.*convert"),
    (b"\0" * 5000, "is not JSON"),
], ids=["gzip", "utf-16", "zeros"])  # fmt: skip
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        told(written(tmp_path, content))


def test_a_pipe_is_refused_because_it_can_be_read_once_only(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"null: is not a regular file; save it"):
        told(Path("/dev/null"))


@pytest.mark.parametrize("name", ["one-line.json", "lines.jsonl", "pretty.json"])
def test_a_large_file_is_read_in_little_memory(tmp_path: Path, name: str) -> None:
    entry = {"id": "a", "messages": [{"role": "user", "content": "a few words " * 40} for _ in range(40)]}
    texts = {
        "one-line.json": json.dumps(entry),
        "lines.jsonl": json.dumps(entry),
        "pretty.json": json.dumps(entry, indent=1),
    }
    before, between, after = {"lines.jsonl": ("", "\n", "\n")}.get(name, ("[", ", ", "]"))
    path = written(tmp_path, before + between.join([texts[name]] * 1000) + after, name)
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        assert sum(1 for entry in read_entries(path) if entry.problem is None) == 1000
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
