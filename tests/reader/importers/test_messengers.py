"""Exports of Slack, Telegram and WhatsApp: who said what when, in which channel, and what was deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memos.errors import InvalidInput
from memos.reader.importers import stream
from memos.reader.importers.base import REMOVED, SERVICE
from memos.reader.importers.formats import Format
from tests.reader.importers.exports import left_out, problems, read, said, times, write, zipped

SLACK = {
    "users.json": [
        {"id": "U1", "name": "ana", "profile": {"display_name": "Ana", "real_name": "Ana Lopez"}},
        {"id": "U2", "name": "ben", "profile": {"display_name": "", "real_name": "Ben"}},
    ],
    "channels.json": [{"id": "C1", "name": "general", "members": ["U1", "U2"]}],
    "dms.json": [{"id": "D1", "members": ["U1", "U2"]}],
    "integration_logs.json": [],
    "general/2026-01-05.json": [
        {"type": "message", "user": "U1", "text": "<@U2> see <https://example.org|the plan> &amp; <#C1|general>",
         "ts": "1767607200.000100"},
        {"type": "message", "subtype": "channel_join", "user": "U2", "text": "<@U2> has joined", "ts": "1767607201.0"},
        {"type": "message", "user": "U2", "text": "Done.", "ts": "1767607300.000200", "thread_ts": "1767607200.000100",
         "files": [{"id": "F1", "name": "plan.pdf", "mimetype": "application/pdf"}]},
        {"type": "message", "subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted.",
         "ts": "1767607400.0"},
    ],
    "general/2026-01-06.json": [
        {"type": "message", "subtype": "bot_message", "bot_id": "B1", "username": "Deploys", "text": "Shipped!",
         "ts": "1767693600.0"},
        5,
    ],
    "D1/2026-01-05.json": [{"type": "message", "user": "U9", "text": "psst", "ts": "1767607500.0"}],
}  # fmt: skip


@pytest.mark.parametrize("pack", [zipped, write])
def test_slacks_channels_are_read_day_by_day_with_names(tmp_path: Path, pack: Any) -> None:
    format_, records = read(pack(tmp_path / "export.zip", SLACK))
    assert format_ is Format.SLACK
    assert said(records) == [
        ("dm: Ana, Ben", "U9", "psst"),
        ("#general", "Ana", "@Ben see the plan (https://example.org) & #general"),
        ("#general", "Ben", [{"type": "text", "text": "Done."}, {"type": "file", "file": {"filename": "plan.pdf"}}]),
        ("#general", "Deploys", "Shipped!"),
    ]
    assert [each.message["role"] for each in records if each.message] == ["user", "user", "user", "assistant"]
    assert times(records)[1] == "2026-01-05 10:00:00+00:00"
    assert [each.message.get("info") for each in records if each.message][2] == {"thread": "1767607200.000100"}
    assert left_out(records) == {SERVICE: 1, REMOVED: 1, "files that are no messages": 1}
    assert problems(records) == [("general/2026-01-06.json, message 2", "is int, not a message")]


TELEGRAM = {
    "name": "Ana", "type": "personal_chat", "id": 42, "messages": [
        {"id": 1, "type": "message", "date": "2026-01-05T11:00:00", "date_unixtime": "1767607200", "from": "Ana",
         "from_id": "user1", "text": [{"type": "bold", "text": "Hello"}, " you"], "text_entities": []},
        {"id": 2, "type": "service", "action": "phone_call", "date": "2026-01-05T11:00:01"},
        {"id": 3, "type": "message", "date": "2026-01-05T11:00:02", "from": None, "text": "",
         "photo": "photos/photo_1.jpg", "forwarded_from": "News"},
        {"id": 4, "type": "message", "date": "2026-01-05T11:00:03", "from": "Ben", "text": 'he said "messages": [1]',
         "file": "files/plan.pdf", "mime_type": "application/pdf"},
    ],
}  # fmt: skip


def test_a_chat_of_telegram_is_read(tmp_path: Path) -> None:
    format_, records = read(write(tmp_path, {"result.json": TELEGRAM}) / "result.json")
    assert format_ is Format.TELEGRAM
    assert said(records) == [
        ("Ana (42)", "Ana", "Hello you"),
        ("Ana (42)", "deleted account", [{"type": "image_url", "image_url": {}, "was": "photos/photo_1.jpg"}]),
        ("Ana (42)", "Ben", [
            {"type": "text", "text": 'he said "messages": [1]'}, {"type": "file", "file": {"filename": "plan.pdf"}}]),
    ]  # fmt: skip
    assert times(records)[:2] == ["2026-01-05 10:00:00+00:00", "2026-01-05 11:00:02"]
    assert (left_out(records), problems(records)) == ({SERVICE: 1}, [])


@pytest.mark.parametrize("block", [7, 100, 262_144])
def test_all_chats_of_an_account_are_read_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    account = {
        "about": "…", "personal_information": {"first_name": "Me"}, "contacts": {"list": [{"first_name": "Ana"}]},
        "chats": {"about": "…", "list": [
            TELEGRAM, {"name": 'The "A" team', "type": "private_group", "id": 7, "messages": []},
            {"type": "saved_messages", "id": 1, "messages": [{"id": 9, "type": "message", "date": "2026-01-06",
                                                               "from": "Me", "text": "milk"}]}]},
    }  # fmt: skip
    write(tmp_path, {"result.json": json.dumps(account, indent=1)})
    monkeypatch.setattr(stream, "BLOCK", block)
    records = read(zipped(tmp_path / "t.zip", {"DataExport/result.json": account}))[1]
    assert [name for name, _, _ in said(records)] == ["Ana (42)"] * 3 + ["Saved Messages (1)"]
    assert said(read(tmp_path / "result.json")[1]) == said(records)


def test_a_cut_export_of_telegram_is_read_up_to_the_cut(tmp_path: Path) -> None:
    path = write(tmp_path, {"result.json": json.dumps(TELEGRAM)[:-60]}) / "result.json"
    records = read(path)[1]
    assert [name for _, name, _ in said(records)] == ["Ana", "deleted account"]
    assert [(place, problem[:32]) for place, problem in problems(records)] == [
        ("chat 1, message 4", "is not JSON: the file ends there")
    ]


def chat(tmp_path: Path, *lines: str, name: str = "WhatsApp Chat with Ana.txt") -> Path:
    return write(tmp_path, {name: "\n".join(lines) + "\n"}) / name


IOS = [
    "\u200e[05.01.26, 10:00:00] Ana: \u200eMessages and calls are end-to-end encrypted.",
    "[05.01.26, 10:00:05] Ana: Shall we meet",
    "on Tuesday?",
    "[05.01.26, 10:01:00] Ben: \u200e<attached: 00000004-PHOTO-2026-01-05.jpg>",
    "[05.01.26, 10:01:30] Ben: \u200eThis message was deleted.",
    "[05.01.26, 22:02:00] Ben: Yes: at noon \u200e<This message was edited>",
]
ANDROID = [
    "1/13/26, 9:59 AM - Messages and calls are end-to-end encrypted.",
    "1/13/26, 10:00 AM - Ana: Shall we meet",
    "on Tuesday?",
    "1/13/26, 10:01 AM - Ben: IMG-20260113-WA0001.jpg (file attached)",
    "and a word",
    "1/13/26, 10:01\u202fPM - Ben: <Media omitted>",
    "1/13/26, 12:05 PM - Ana: You deleted this message",
]


def test_whatsapp_of_ios_is_read(tmp_path: Path) -> None:
    format_, records = read(zipped(tmp_path / "WhatsApp Chat - Ana.zip", {"_chat.txt": "\n".join(IOS), "a.jpg": b"x"}))
    assert format_ is Format.WHATSAPP
    assert [(name, content) for _, name, content in said(records)][1:] == [
        ("Ana", "Shall we meet\non Tuesday?"),
        ("Ben", [{"type": "image_url", "image_url": {}, "was": "00000004-PHOTO-2026-01-05.jpg"}]),
        ("Ben", "Yes: at noon"),
    ]
    assert {name for name, _, _ in said(records)} == {"Ana"}
    assert times(records)[1:] == ["2026-01-05 10:00:05", "2026-01-05 10:01:00", "2026-01-05 22:02:00"]
    assert left_out(records) == {REMOVED: 1, "files of the type .jpg": 1}


def test_whatsapp_of_android_is_read(tmp_path: Path) -> None:
    format_, records = read(chat(tmp_path, *ANDROID))
    assert format_ is Format.WHATSAPP
    assert said(records) == [
        ("Ana", "Ana", "Shall we meet\non Tuesday?"),
        ("Ana", "Ben", [
            {"type": "image_url", "image_url": {}, "was": "IMG-20260113-WA0001.jpg"},
            {"type": "text", "text": "and a word"}]),
        ("Ana", "Ben", [{"type": "file", "file": {}}]),
    ]  # fmt: skip
    assert times(records) == ["2026-01-13 10:00:00", "2026-01-13 10:01:00", "2026-01-13 22:01:00"]
    assert left_out(records) == {SERVICE: 1, REMOVED: 1}


@pytest.mark.parametrize(
    ("lines", "days"),
    [
        (["05/01/26, 10:00 - A: x", "13/01/26, 10:00 - A: y"], ["2026-01-05", "2026-01-13"]),  # no thirteenth month
        (["01/05/26, 10:00 - A: x", "01/13/26, 10:00 - A: y"], ["2026-01-05", "2026-01-13"]),
        (["03.04.26, 10:00 - A: x"], ["2026-04-03"]),  # dots are between day and month alone
        (["2026/4/3 上午10:00 - A: x"], ["2026-04-03"]),
        (["[2026-04-03, 10:00:00] A: x"], ["2026-04-03"]),
        (["01/05/26, 10:00 - A: x", "02/05/26, 10:00 - A: y", "01/06/26, 1:00 - A: z"],
         ["2026-05-01", "2026-05-02", "2026-06-01"]),  # only so does time go forward
        (["05/01/26, 10:00 - A: x", "05/02/26, 10:00 - A: y", "06/01/26, 1:00 - A: z"],
         ["2026-05-01", "2026-05-02", "2026-06-01"]),
        (["5/5/2026, 10:00 - A: x"], ["2026-05-05"]),
    ],
)  # fmt: skip
def test_the_whole_file_says_whether_the_day_or_the_month_comes_first(
    tmp_path: Path, lines: list[str], days: list[str]
) -> None:
    assert [time[:10] for time in times(read(chat(tmp_path, *lines))[1])] == days


def test_dates_that_may_be_read_in_two_ways_are_refused_unless_it_is_said(tmp_path: Path) -> None:
    path = chat(tmp_path, "03/04/26, 10:00 - A: x", "03/04/26, 10:05 - A: y")
    with pytest.raises(InvalidInput, match="the day or the month may come first; say which: date_order"):
        read(path)
    assert [time[:10] for time in times(read(path, date_order="day")[1])] == ["2026-04-03"] * 2
    assert [time[:10] for time in times(read(path, date_order="month")[1])] == ["2026-03-04"] * 2
    with pytest.raises(InvalidInput, match="two orders of day and month"):
        read(chat(tmp_path, "13/04/26, 10:00 - A: x", "04/13/26, 10:05 - A: y"))


def test_several_chats_are_read_and_a_diary_among_notes_is_none(tmp_path: Path) -> None:
    line = "13/01/26, 10:00 - A: x"
    chats = write(tmp_path / "chats", {"WhatsApp Chat with Ana.txt": line, "WhatsApp Chat with Ben (1).txt": line,
                                       "WhatsApp Chat with Eva.txt": "03/04/26, 10:00 - A: x"})  # fmt: skip
    records = read(chats)[1]
    assert [name for name, _, _ in said(records)] == ["Ana", "Ben"]
    assert [place for place, _ in problems(records)] == ["WhatsApp Chat with Eva.txt"]
    notes = write(tmp_path / "notes", {"a.md": "Water the beds.", "log.txt": "2026-01-05, 10:00 - started: now"})
    assert read(notes)[0] is Format.NOTES


def test_a_chat_in_another_encoding_is_told(tmp_path: Path) -> None:
    path = tmp_path / "_chat.txt"
    path.write_bytes("[2026-01-05, 10:00:00] Ana: ok\n[2026-01-05, 10:00:01] Ana: caf\xe9\n".encode("latin-1"))
    with pytest.raises(InvalidInput, match="is not UTF-8: byte 0xe9 in line 2; convert"):
        read(path)
