"""Imports of every format into a real store: once, resumable after a kill, cut files told, memory small."""

from __future__ import annotations

import json
import signal
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.errors import InvalidInput
from memos.kernel.importing import ImportSummary, import_export
from memos.reader.importers.base import BRANCH, HIDDEN
from memos.reader.importers.formats import Format
from tests.fakes import WordEmbedder
from tests.support import forks


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def items(memos: MemOS, cube: str = "default") -> list[tuple[str | None, int | None, str]]:
    found = memos.memories.list(cube=cube, limit=10_000)
    return sorted((item.conversation or "", item.position or 0, item.memory) for item in found)


def chatgpt(name: str, *texts: str) -> dict[str, Any]:
    mapping: dict[str, Any] = {"root": {"parent": None, "children": ["0"], "message": None}}
    for number, text in enumerate(texts):
        author, content = {"role": ("user", "assistant")[number % 2]}, {"content_type": "text", "parts": [text]}
        message = {"id": f"{name}-{number}", "author": author, "content": content, "create_time": 1e9 + number}
        mapping[str(number)] = {"parent": str(number - 1) if number else "root", "children": [], "message": message}
    return {"conversation_id": name, "mapping": mapping, "current_node": str(len(texts) - 1)}


def claude(name: str, *texts: str) -> dict[str, Any]:
    turns = [
        {
            "uuid": f"{name}-{n}",
            "sender": ("human", "assistant")[n % 2],
            "text": text,
            "created_at": "2025-01-01T00:00:00Z",
        }
        for n, text in enumerate(texts)
    ]
    return {"uuid": name, "name": "A title", "chat_messages": turns}


def locomo(name: str, *texts: str) -> dict[str, Any]:
    turns = [{"speaker": ("Ann", "Ben")[n % 2], "dia_id": f"D1:{n}", "text": text} for n, text in enumerate(texts)]
    return {"sample_id": name, "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}}


def longmemeval(name: str, *texts: str) -> dict[str, Any]:
    turns = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    sessions = {
        "haystack_session_ids": [name],
        "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [turns],
    }
    return {"question_id": f"q-{name}", "question": "What?", **sessions}


def langchain(name: str, *texts: str) -> dict[str, Any]:
    messages = [{"type": ("human", "ai")[n % 2], "data": {"content": text}} for n, text in enumerate(texts)]
    return {"id": name, "messages": messages}


def generic(name: str, *texts: str) -> dict[str, Any]:
    return {"id": name, "messages": [{"role": "user", "content": text, "chat_time": 1e9} for text in texts]}


MAKERS: dict[Format, Callable[..., dict[str, Any]]] = {
    Format.CHATGPT: chatgpt, Format.CLAUDE: claude, Format.LOCOMO: locomo, Format.LONGMEMEVAL: longmemeval,
    Format.LANGCHAIN: langchain, Format.GENERIC: generic,
}  # fmt: skip


def test_every_format_is_imported_once_however_often_and_goes_on_where_it_grew(memos: MemOS, tmp_path: Path) -> None:
    for format, make in MAKERS.items():
        memos.cubes.create(format)
        path = write(tmp_path / "export.json", [make("a", "yes", "yes", "and no"), make("b", "yes")])
        first = import_export(memos, path, cube=format)
        assert (first.format, first.added, first.known, first.bad) == (format, 4, 0, ())
        assert (first.conversations, first.left_out, first.out_of_order, first.indexed) == (2, 0, 0, True)
        again = import_export(memos, path, cube=format)
        assert (again.added, again.known, again.conversations) == (0, 4, 2)
        longer = [make("a", "yes", "yes", "and no", "yes"), make("b", "yes"), make("c", "yes")]
        grown = import_export(memos, write(path, longer), cube=format)
        assert (grown.added, grown.known) == (2, 4)
        assert [memory for _, _, memory in items(memos, format)] == ["yes", "yes", "and no", "yes", "yes", "yes"]
    assert memos.maintenance.verify().clean


@pytest.mark.parametrize("format", MAKERS)
def test_of_a_cut_file_nothing_is_stored_or_all_before_the_cut(memos: MemOS, tmp_path: Path, format: Format) -> None:
    whole = json.dumps([MAKERS[format](name, f"{name} one", f"{name} two") for name in "abc"])
    path = tmp_path / "cut.json"
    path.write_text(whole[:-20])
    with pytest.raises(InvalidInput) as caught:
        import_export(memos, path, cube="default", on_bad="stop")
    end = f"entry 3 is not JSON: the file ends there, in line 1 after {len(whole) - 20:,} bytes"
    assert end in str(caught.value)
    assert items(memos) == []
    summary = import_export(memos, path, cube="default")
    assert (summary.added, summary.format) == (4, format)
    [bad] = summary.bad
    assert end.startswith(bad.place)
    assert "download may be incomplete" in bad.problem
    assert [memory for _, _, memory in items(memos)] == ["a one", "a two", "b one", "b two"]
    path.write_text(whole)
    summary = import_export(memos, path, cube="default")
    assert (summary.added, summary.known, summary.bad) == (2, 4, ())


def test_a_session_of_several_questions_is_stored_once(memos: MemOS, tmp_path: Path) -> None:
    again = longmemeval("a", "one", "two")
    again["haystack_dates"] = ["2021/01/01 (Fri) 00:00"]
    path = write(tmp_path / "questions.json", [longmemeval("a", "one", "two"), again, longmemeval("b", "three")])
    summary = import_export(memos, path, cube="default")
    assert (summary.added, summary.known, summary.conversations, summary.out_of_order) == (3, 2, 2, 0)
    assert [memory for _, _, memory in items(memos)] == ["one", "two", "three"]


def test_a_time_without_a_zone_is_in_the_cubes_and_wrong_order_is_told_not_mended(memos: MemOS, tmp_path: Path) -> None:
    memos.cubes.create("paris", time_zone="Europe/Paris")
    times = ["May 20, 2023 2:21 PM", "2023/05/20 (Sat) 02:21", 1684592460, "Sat, 20 May 2023 14:21:00 +0000"]
    path = write(tmp_path / "export.json", [{"content": f"{n}", "chat_time": time} for n, time in enumerate(times)])
    summary = import_export(memos, path, cube="paris")
    assert (summary.added, summary.out_of_order) == (4, 1)
    found = memos.memories.list(cube="paris")
    assert [item.memory for item in found] == ["0", "1", "2", "3"]
    assert [f"{item.valid_from:%d %H:%M}" for item in found] == ["20 12:21", "20 00:21", "20 14:21", "20 14:21"]
    path = write(tmp_path / "export.json", [{"content": "x", "chat_time": "03/04/2023"}])
    with pytest.raises(InvalidInput, match=r"entry 1 .*'03/04/2023' is ambiguous.*ISO 8601"):
        import_export(memos, path, cube="paris", on_bad="stop")


def test_what_is_left_out_is_counted(memos: MemOS, tmp_path: Path) -> None:
    conversation = chatgpt("a", "question", "answer", "", "thanks")
    conversation["mapping"]["other"] = {**conversation["mapping"]["1"], "children": []}
    summary = import_export(memos, write(tmp_path / "conversations.json", [conversation]), cube="default")
    assert (summary.added, summary.left_out, summary.bad) == (3, 2, ())
    assert summary.left_out_by == {BRANCH: 1, HIDDEN: 1}


def test_a_format_can_be_forced(memos: MemOS, tmp_path: Path) -> None:
    path = write(tmp_path / "export.json", [{**generic("a", "read as told"), "chat_messages": []}])
    assert import_export(memos, path, cube="default").format is Format.CLAUDE
    summary = import_export(memos, path, cube="default", format=Format.GENERIC)
    assert (summary.format, summary.added) == (Format.GENERIC, 1)
    with pytest.raises(InvalidInput, match="entry 1 is not a LoCoMo sample"):
        import_export(memos, path, cube="default", format=Format.LOCOMO, on_bad="stop")


def test_progress_counts_to_the_end_with_bad_records(memos: MemOS, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = write(tmp_path / "export.json", [generic("a", *map(str, range(60))), 5, generic("b", "", "x")])
    import_export(
        memos, path, cube="default", on_bad="skip", on_progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(52, 63), (63, 63)]  # conversations that are short are stored together


def test_a_file_changed_while_it_is_read_stops_the_import(memos: MemOS, tmp_path: Path) -> None:
    lines = [json.dumps({"content": f"{n} " + "words " * 400}) for n in range(200)]
    path = tmp_path / "export.jsonl"
    path.write_text("\n".join(lines))

    def change(done: int, total: int) -> None:
        if done == 50:
            path.write_text("\n".join([*lines[:100], "x" * 100_000]))

    with pytest.raises(InvalidInput, match=r"line \d+ is not JSON.*changed while it was read"):
        import_export(memos, path, cube="default", on_progress=change, on_bad="stop")
    path.write_text("\n".join(lines))
    assert import_export(memos, path, cube="default").added + 50 <= 200
    assert len(items(memos)) == 200


def test_a_large_file_on_one_line_is_checked_in_little_memory(memos: MemOS, tmp_path: Path) -> None:
    text = "a few words " * 400
    chats = [generic(f"chat-{n}", *(f"{n} {m} {text}" for m in range(20))) for n in range(220)]
    path = write(tmp_path / "large.json", [*chats, {"content": "x", "chat_time": "soon"}])
    size = path.stat().st_size
    assert size > 20_000_000
    assert path.read_bytes().count(b"\n") == 0
    del chats
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="entry 221 is refused: chat_time 'soon'"):
            import_export(memos, path, cube="default", on_bad="stop")
        assert tracemalloc.get_traced_memory()[1] < size / 5
    finally:
        tracemalloc.stop()
    assert items(memos) == []


# Imports a file and prints after each batch how far it is.
CHILD = """
import sys
from pathlib import Path
from memos import MemOS, Settings
from memos.kernel.importing import import_export
from memos.memcube.indexing import projection
from tests.fakes import WordEmbedder
projection.FLUSH_EVERY_ROWS, projection.FLUSH_EVERY_S = 40, 0.2
settings = Settings(index={"wait_s": 30}, limits={"min_free_bytes": 0})
with MemOS.open(sys.argv[1], settings=settings, embedder=WordEmbedder()) as memos:
    import_export(memos, Path(sys.argv[2]), cube="default", on_progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.heavy
@pytest.mark.parametrize("format", [Format.CHATGPT, Format.GENERIC])
def test_a_killed_import_run_again_ends_as_an_undisturbed_one(
    memos: MemOS, settings: Settings, tmp_path: Path, format: Format
) -> None:
    chats = [MAKERS[format](name, *(f"{name} says {n // 2}" for n in range(200))) for name in "abcd"]
    path = write(tmp_path / "export.json", chats)
    home = tmp_path / "killed"
    with forks.Script(CHILD, str(home), str(path)) as process:
        for _ in range(5):
            done = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as again:
        kept = len(items(again))
        assert done <= kept < 800
        summary = import_export(again, path, cube="default")
        assert (summary.added, summary.known, summary.bad) == (800 - kept, kept, ())
        assert again.maintenance.verify().clean
        resumed = items(again)
    undisturbed: ImportSummary = import_export(memos, path, cube="default")
    assert undisturbed.added == 800
    assert resumed == items(memos)
