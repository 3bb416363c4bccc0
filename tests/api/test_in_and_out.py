"""Imports, backups and erasures over HTTP: previews first, progress while it goes on, receipts at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import IndexSettings, LimitSettings, TaskSettings, UpkeepSettings
from tests.api.conftest import Server
from tests.api.keys import keys_of
from tests.fakes import WordEmbedder
from tests.reader.importers.exports import zipped

EXPORTS = Path(__file__).parents[2] / "examples" / "data"
BYTES = {"Content-Type": "application/octet-stream"}


def send(server: Server, path: str, data: bytes, who: str = "ana", **query: Any) -> Any:
    return server.http.post(path, content=data, params=query, headers=server.headers(who) | BYTES)


def test_a_preview_stores_nothing_and_an_import_stores_once(server: Server) -> None:
    data = (EXPORTS / "chatgpt_conversations.json").read_bytes()
    told = send(server, "/api/v1/imports/preview", data, name="conversations.json").json()
    assert (told["format"], told["more"], told["bad_count"]) == ("chatgpt", False, 0)
    assert told["messages"] > 0
    assert told["first"][0]["text"]
    assert server.memos.memories.list(cube="ana", actor="ana") == []
    done = send(server, "/api/v1/imports", data, name="conversations.json").json()
    assert (done["added"], done["known"]) == (told["messages"], 0)
    again = send(server, "/api/v1/imports", data, name="conversations.json").json()
    assert (again["added"], again["known"]) == (0, told["messages"])


def test_an_import_tells_its_progress_line_by_line(server: Server) -> None:
    data = json.dumps([{"role": "user", "content": f"I saw bird {n}"} for n in range(120)]).encode()
    answer = send(server, "/api/v1/imports", data, who="ben", name="birds.json", progress=True)
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines() if line]
    assert [line["progress"]["done"] for line in lines[:-1]] == [50, 100, 120]
    assert lines[-1]["result"]["added"] == 120
    wrong = send(server, "/api/v1/imports", b'[{"role": "user"}]', name="a.json", progress=True, on_bad="stop").text
    assert json.loads(wrong.splitlines()[-1])["error"]["message"].startswith("file: a.json: ")


def test_what_cannot_be_imported_is_refused_in_words(server: Server) -> None:
    told = send(server, "/api/v1/imports", b'[{"role": "user"}]', name="a.json").json()
    assert (told["added"], told["bad"]) == (0, [{"place": "entry 1", "problem": "has no content"}])
    answer = send(server, "/api/v1/imports", b'[{"role": "user"}]', name="a.json", on_bad="stop")
    assert answer.status_code == 400
    assert "/proc/" not in answer.text
    assert "has no content" in answer.json()["error"]["message"]
    assert send(server, "/api/v1/imports/preview", b"[]", cube="ben").status_code == 404
    assert send(server, "/api/v1/imports", b"[]", format="nonsense").status_code == 400
    secret = send(
        server, "/api/v1/imports/preview", b'[{"role":"user","content":"key sk-ant-api03-' + b"a1" * 46 + b'-AA"}]'
    )
    assert "sk-ant-api03-a1" not in secret.text


def test_an_archive_is_imported_as_it_comes_and_a_bomb_is_not_unpacked(server: Server, tmp_path: Path) -> None:
    chat = "\n".join(["03/04/26, 10:00 - Ana: I keep bees.", "03/04/26, 10:01 - Ben: How many?"])
    data = zipped(tmp_path / "a.zip", {"_chat.txt": chat, "a.jpg": b"x"}).read_bytes()
    refused = send(server, "/api/v1/imports/preview", data, name="WhatsApp Chat - Ana.zip")
    assert "date_order" in refused.json()["error"]["message"]
    asked = {"name": "WhatsApp Chat - Ana.zip", "date_order": "day", "time_zone": "Europe/Paris"}
    told = send(server, "/api/v1/imports/preview", data, **asked).json()
    assert (told["format"], told["messages"], told["first"][0]["said_at"]) == ("whatsapp", 2, "2026-04-03T08:00:00Z")
    done = send(server, "/api/v1/imports", data, **asked).json()
    assert (done["added"], done["conversations"], done["bad"]) == (2, 1, [])
    assert send(server, "/api/v1/imports", data, **asked).json()["known"] == 2
    bomb = zipped(tmp_path / "b.zip", {"bomb.json": b" " * 20_000_000}).read_bytes()
    answer = send(server, "/api/v1/imports", bomb, name="bomb.zip")
    assert answer.status_code == 400
    assert "unpack to more than" in answer.json()["error"]["message"]
    assert "/proc/" not in answer.text


def test_an_erasure_takes_what_its_preview_counted(server: Server) -> None:
    http, mine = server.http, server.headers("ana")
    for text in ("My sister Eva is a nurse.", "Eva lives in Oslo.", "I like tea."):
        server.memos.add(text, cube="ana", actor="ana", conversation="family" if "Eva" in text else "drinks")
    wanted = {"cube": "ana", "filter": {"conversation": "family"}}
    told = http.post("/api/v1/erasures/preview", json=wanted, headers=mine).json()
    assert (told["items"], told["conversations"]) == (2, 1)
    assert {each["memory"] for each in told["sample"]} == {"My sister Eva is a nurse.", "Eva lives in Oslo."}
    stale = http.post("/api/v1/erasures", json=wanted | {"expected": 1}, headers=mine)
    assert stale.status_code == 409
    receipt = http.post("/api/v1/erasures", json=wanted | {"expected": 2}, headers=mine).json()
    assert receipt["state"] == "purged"
    assert len(receipt["item_ids"]) == 2 + told["derived"]
    assert http.post("/api/v1/erasures/preview", json=wanted, headers=mine).json()["items"] == 0
    everything = http.post("/api/v1/erasures", json={"cube": "ana", "filter": {}, "expected": 1}, headers=mine)
    assert everything.json()["error"]["field"] == "filter"
    assert http.post("/api/v1/erasures/preview", json={"cube": "ana"}, headers=server.headers("ben")).status_code == 404


def test_backups_need_an_admin_and_a_place(server: Server) -> None:
    assert server.http.get("/api/v1/backups", headers=server.headers("ana")).status_code == 403
    assert server.http.post("/api/v1/backups", json={}, headers=server.headers("ana")).status_code == 403
    refused = server.http.post("/api/v1/backups", json={}, headers=server.headers("admin"))
    assert refused.status_code == 409
    assert "MEMOS_UPKEEP__BACKUP_FOLDER" in refused.text


@pytest.mark.parametrize("workers", [1])
def test_a_backup_is_a_task_into_the_configured_folder(tmp_path: Path, workers: int) -> None:
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        tasks=TaskSettings(workers=workers),
        upkeep=UpkeepSettings(backup_folder=tmp_path / "backups"),
    )
    with (
        MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos,
        TestClient(create_app(memos)) as http,
    ):
        headers = {"Authorization": f"Bearer {keys_of(memos).admin}"}
        memos.add("I live in Rome.")
        task = http.post("/api/v1/backups", json={}, headers=headers).json()["task"]
        memos.tasks.wait(task, timeout_s=60)
        plan = http.get("/api/v1/backups", headers=headers).json()
        assert plan["folder"] == str(tmp_path / "backups")
        manual = [each for each in plan["backups"] if "/manual-" in each["folder"]]
        assert len(manual) == 1
        assert (Path(manual[0]["folder"]) / "manifest.json").exists()
