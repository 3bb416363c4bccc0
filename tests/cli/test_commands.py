"""The command line: commands in JSON and for people, the exit codes, and never a traceback.

They run in this process where nothing speaks against it; all of them share one folder, named by MEMOS_HOME.
"""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app
from memos.errors import BackendUnavailable, Conflict, IntegrityError, InvalidInput, NotFound, PermissionDenied
from memos.memcube.installation import FolderLock
from memos.version import __version__
from tests.fakes import WordEmbedder
from tests.support.servers.openai_server import OpenAIServer, error

ROOT = Path(__file__).resolve().parents[2]
EXPORT = ROOT / "examples" / "data" / "chat_export.json"
ODD = "odd [/red] :smile: 🎉 \x1b[31m שלום"
SPOKEN = {
    "cello": "My cello was built in Mirecourt in 1890.",
    "bakery": "The bakery closes at noon on Mondays.",
    "delete": "A remark to delete.",
    "delete too": "Another remark to delete.",
    "erase": "A remark to erase.",
    "erase json": "Another remark to erase.",
    "update": "The code name is Heron.",
    "odd": ODD,
}


@dataclass(frozen=True)
class Store:
    """One folder and the ids of what was said in it."""

    home: Path
    ids: dict[str, str]

    def run(self, *arguments: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[str]:
        """Run one command on this folder, in this process and with words for an embedder; it never ends by an error."""
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(MemOS, "open", partial(MemOS.open, embedder=WordEmbedder()))
            done = CliRunner(env={**self.env(), **env}).invoke(app, arguments, input=stdin, prog_name="memos")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    def process(self, *arguments: str | bytes, **env: str) -> subprocess.CompletedProcess[str]:
        """Run one command on this folder, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "memos", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=120,
            env={**os.environ, **self.env(), **env},
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err
        return subprocess.CompletedProcess(arguments, done.returncode, out, err)

    def env(self) -> dict[str, str]:
        """Return what the environment of a command on this folder says of it."""
        return {"MEMOS_HOME": str(self.home)}

    def said(self, *arguments: str, **options: Any) -> str:
        """Return what a command that works prints for people."""
        done = self.run(*arguments, **options)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def told(self, *arguments: str, **options: Any) -> Any:
        """Return the JSON a command that works prints."""
        return json.loads(self.said(*arguments, "--json", **options))

    def failed(self, error_code: int, *arguments: str, **options: Any) -> str:
        """Return the one line a command that fails prints for people."""
        done = self.run(*arguments, **options)
        assert (done.returncode, done.stdout) == (error_code, ""), done
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr


def typed(store: Store, answer: str, *arguments: str) -> str:
    """Return what a command shows on a terminal where somebody types this answer."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "memos", *arguments]
    environment = {**os.environ, **store.env()}
    with subprocess.Popen(command, cwd=ROOT, stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        os.write(ours, answer.encode())
        process.wait(timeout=120)
        shown = os.read(ours, 65_536).decode()
    os.close(ours)
    return shown


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    home = tmp_path_factory.mktemp("cli") / "home"
    with MemOS.open(home, embedder=WordEmbedder()) as memos:
        ids = {name: memos.add(text, conversation=name).item_ids[0] for name, text in SPOKEN.items()}
        for cube in ("talk", "work"):
            memos.cubes.create(cube)
            paris = {"role": "user", "name": "Maya", "content": "I live in Paris."}
            ids[cube] = memos.add(paris, cube=cube).item_ids[0]
    return Store(home, ids)


def test_version_is_the_packages(store: Store) -> None:
    assert store.said("version") == __version__ + "\n"
    assert store.told("version") == {"version": __version__}


def test_what_is_added_is_found(store: Store) -> None:
    item = store.said("add", "Nadia's parrot is called Osiris.", "--name", "Nadia", "--tag", "pets").strip()
    found = store.told("search", "What is the parrot called?", "--filter", '{"tags": "pets"}', "--explain")
    assert [hit["item"]["id"] for hit in found["hits"]] == [item]
    assert found["hits"][0]["sources"][0]["passage"] == "Nadia's parrot is called Osiris."
    assert "Nadia: Nadia's parrot" in store.said("search", "parrot", "--token-budget", "40", "-k", "1")


def test_a_search_explains_its_hits_and_what_is_missing(store: Store) -> None:
    item = store.ids["cello"]
    text = store.said("search", SPOKEN["cello"], "--explain")
    assert f"{item}: turn #1" in text
    assert "gave" in text
    assert store.told("search", SPOKEN["cello"], "--why-not", item)["stage"] == "found"
    assert store.said("search", SPOKEN["cello"], "--min-relevance", "1") == "nothing found in default\n"
    assert item in store.said("search", SPOKEN["cello"], COLUMNS="80")  # in one piece, to be copied
    store.said("cube", "create", "elsewhere")
    there = store.said("search", SPOKEN["cello"], "--why-not", item, "--cube", "elsewhere")
    assert there == "cube: it is in the cube default, which was not searched\n"
    missing = store.said("search", SPOKEN["cello"], "--why-not", item, "--filter", '{"tags": "no such tag"}')
    assert missing.startswith("filter: it does not match the filter: tags eq 'no such tag'")


def test_a_search_can_be_told_not_to_rerank_and_says_when_nothing_can(store: Store) -> None:
    assert store.told("search", SPOKEN["cello"], "--no-rerank")["missing_arms"] == []


def test_standard_input_is_added_once_for_one_key(store: Store) -> None:
    said = "from standard input: déjà vu\n".encode()
    first = store.told("add", "-", "--idempotency-key", "k", stdin=said)
    again = store.told("add", "-", "--idempotency-key", "k", stdin=said)
    assert (again["item_ids"], again["replayed"]) == (first["item_ids"], True)


def test_get_shows_a_memory_with_its_source(store: Store) -> None:
    item = store.ids["cello"]
    found = store.told("show", item)
    assert (found["id"], found["memory"], found["status"]) == (item, SPOKEN["cello"], "active")
    text = store.said("show", item)
    assert item in text
    assert f"[0:{len(SPOKEN['cello'])}] user" in text


def test_list_shows_whole_ids_and_passes_filters_on(store: Store) -> None:
    listed = store.told("list", "--filter", '{"memory": {"like": "bakery"}}')
    assert [item["id"] for item in listed] == [store.ids["bakery"]]
    text = store.said("list", "--limit", "2", "--offset", "1")
    assert store.ids["bakery"] in text
    assert store.ids["cello"] not in text


def test_a_message_of_a_month_that_is_over_is_of_that_month_and_does_not_end_with_it(store: Store) -> None:
    store.said("add", "The regatta was rowed in May 2019.")
    text = store.said("list", "--filter", '{"memory": {"like": "regatta"}}')
    assert "of 2019-05-01 to 2019-06-01" in text
    assert "until" not in text


def test_a_time_to_live_is_given_with_its_unit_and_shown(store: Store) -> None:
    [item] = store.told("add", "The parcel is next door.", "--ttl", "1.5h")["item_ids"]
    found = store.told("show", item)
    stored, end = (datetime.fromisoformat(found[name]) for name in ("created_at", "expires_at"))
    assert end - stored == timedelta(minutes=90)
    assert f"expires {end:%F %T}" in store.said("show", item)


def test_odd_text_is_shown_as_it_is_but_steers_no_terminal(store: Store) -> None:
    text = store.said("search", "odd", COLUMNS="120")
    assert "odd [/red] :smile: 🎉 \\x1b[31m שלום" in text
    assert "\x1b" not in text
    ascii_only = store.process("show", store.ids["odd"], "--json", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert json.loads(ascii_only.stdout)["memory"] == ODD


def test_update_history_and_rollback_tell_one_story(store: Store) -> None:
    item = store.ids["update"]
    assert store.told("edit", item, "The code name is Osprey.", "--expected-version", "1")["version"] == 2
    assert "Kestrel" in store.said("edit", item, "The code name is Kestrel.", "--reason", "renamed", COLUMNS="150")
    assert "The code name is Kestrel." in store.said("search", "code name Kestrel", COLUMNS="150")
    assert store.told("memory", "rollback", item, "1")["memory"] == SPOKEN["update"]
    assert "Osprey" in store.said("memory", "rollback", item, "2", COLUMNS="150")
    entries = store.told("memory", "history", item)
    assert [(entry["version"], entry["reason"]) for entry in entries] == [
        (1, "added"), (2, "updated"), (3, "renamed"), (4, "rolled back to version 1"), (5, "rolled back to version 2"),
    ]  # fmt: skip
    assert "renamed" in store.said("memory", "history", item, COLUMNS="150")


def test_feedback_says_what_it_replaced(store: Store) -> None:
    receipt = store.told("feedback", "No, I moved to Lyon.", "--speaker", "Maya", "--cube", "talk")
    assert receipt["superseded"] == [store.ids["talk"]]
    text = store.said("feedback", "No, I moved to Brest.", "--speaker", "Maya", "--cube", "talk")
    assert text == f"superseded: {receipt['item_id']}\n"


def test_delete_says_what_it_deleted(store: Store) -> None:
    item = store.ids["delete"]
    assert store.told("forget", item) == {"deleted": [item]}
    assert store.said("forget", item, store.ids["delete too"]) == "deleted 1\n"
    assert f"memos memory rollback {item}" in store.failed(NotFound.exit_code, "show", item)
    assert store.told("memory", "rollback", item)["status"] == "active"
    assert store.told("forget", item) == {"deleted": [item]}


def test_erase_asks_first_and_gives_a_receipt(store: Store) -> None:
    item = store.ids["erase"]
    assert store.run("memory", "erase", item, stdin=b"n\n").returncode == 1
    assert "--yes: is required" in store.failed(InvalidInput.exit_code, "memory", "erase", item)
    assert "Permanently erase 1 memories? [y/N]: " in typed(store, "no\n", "memory", "erase", item)
    assert store.told("show", item)["id"] == item
    assert ": purged, 1 items" in store.said("memory", "erase", item, stdin=b"y\n")
    receipt = store.told("memory", "erase", store.ids["erase json"], "--yes")
    assert (receipt["state"], receipt["item_ids"]) == ("purged", [store.ids["erase json"]])


def test_cubes_are_made_listed_and_dropped(store: Store) -> None:
    made = store.told("cube", "create", "home", "--time-zone", "Europe/Paris", "--description", "not the job")
    assert (made["id"], made["time_zone"], made["items"]) == ("home", "Europe/Paris", 0)
    assert store.said("cube", "create", "play [/x]") == "play [/x]\n"
    items = {cube["id"]: cube["items"] for cube in store.told("cube", "list")}
    assert (items["work"], items["play [/x]"]) == (1, 0)
    assert "Europe/Paris" in store.said("cube", "list", COLUMNS="150")
    assert store.told("cube", "drop", "work", "--yes")["receipt"]["state"] == "purged"
    assert store.said("cube", "drop", "play [/x]", "-y") == "dropped play [/x]\n"
    assert store.run("cube", "drop", "default", stdin=b"n\n").returncode == 1


def test_an_export_is_imported_once(store: Store) -> None:
    first = store.told("import", str(EXPORT))
    assert first["added"] > 0
    assert (first["known"], first["bad"], first["format"]) == (0, [], "generic")
    assert (first["left_out"], first["out_of_order"], first["indexed"]) == (0, 0, True)
    told = f"0 added, {first['added']} known, 0 bad (generic, {first['conversations']} conversations)\n"
    assert store.said("import", str(EXPORT)) == told


def test_an_import_tells_what_was_bad_left_out_and_out_of_order(store: Store, tmp_path: Path) -> None:
    turns = [
        {"sender": "human", "text": "later", "created_at": "2025-01-02"},
        {"sender": "assistant", "text": "earlier", "created_at": "2025-01-01"},
        {"sender": "assistant", "text": ""},
        *({"sender": "nobody\x1b[31m", "text": "x"} for _ in range(60)),
    ]
    export = tmp_path / "conversations.json"
    export.write_text(json.dumps([{"uuid": "c", "chat_messages": turns}]))
    assert "entry 1, message 4 is refused: role" in store.failed(2, "import", str(export), "--on-bad", "stop")
    shown = store.said("import", str(export), "--preview")
    assert "claude: 2 messages of 1 conversations" in shown
    assert "nothing was stored" in shown
    text = store.said("import", str(export), "--format", "claude")
    lines = text.splitlines()
    assert lines[0] == "2 added, 0 known, 60 bad, 1 left out, 1 out of order (claude, 1 conversations)"
    assert lines[1] == "left out: 1 hidden or empty turns"
    assert lines[2].startswith("entry 1, message 4 is refused: role ")
    assert len(lines) == 53
    assert lines[-1] == "and 10 more bad records; --json lists them all"
    assert "\x1b" not in text
    assert len(store.told("import", str(export))["bad"]) == 60
    export.write_text(json.dumps([{"uuid": "c", "chat_messages": turns[3:]}]))
    none = store.run("import", str(export), "--format", "claude")
    assert (none.returncode, none.stdout.splitlines()[0]) == (
        InvalidInput.exit_code, "0 added, 0 known, 60 bad (claude, 0 conversations)",
    )  # fmt: skip


def test_the_indexes_are_verified_and_rebuilt(store: Store) -> None:
    report = store.told("data", "verify", "--repair")
    assert report["differences"] == []
    assert f"{report['items']} items, clean" in store.said("data", "verify")
    assert store.told("data", "reindex") == {"items": report["items"]}
    assert store.said("data", "reindex", "-c", "talk", "-c", "default").startswith("reindexed ")
    assert store.told("data", "reembed") == {"items": report["items"]}
    assert store.said("data", "reembed") == f"embedded {report['items']} items\n"


def test_verify_fails_when_the_ledger_was_tampered_with(tmp_path: Path, store: Store) -> None:
    mine = Store(tmp_path, {})
    with MemOS.open(tmp_path, embedder=WordEmbedder()) as memos:
        memos.add("an honest remark")
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("UPDATE events SET body = '{}'")
    connection.close()
    found = mine.run("data", "verify", "--json")
    assert found.returncode == 1
    [difference] = json.loads(found.stdout)["differences"]
    assert difference["kind"] == "broken"
    assert "was changed" in difference["detail"]


def test_a_receipt_is_verified_however_it_is_given(tmp_path: Path) -> None:
    mine = Store(tmp_path / "home", {})
    item = mine.told("add", "The spare key is under the flowerpot")["item_ids"][0]
    mine.told("add", "The flowerpot is blue")
    receipt = json.dumps(mine.told("memory", "erase", item, "--yes"))
    (tmp_path / "receipt.json").write_text(receipt, "utf-8-sig")
    (tmp_path / "erased.txt").write_text("The flowerpot is blue\n", "utf-8-sig")
    for given in (receipt, str(tmp_path / "receipt.json")):
        assert mine.told("data", "erasure", "verify", given, "--no-scan")["passed"]
    texts = ("--text", str(tmp_path / "erased.txt"))
    still = mine.run("data", "erasure", "verify", str(tmp_path / "receipt.json"), *texts)
    assert still.returncode == 1
    assert "found: " in still.stdout
    assert "is not JSON" in mine.failed(InvalidInput.exit_code, "data", "erasure", "verify", "x" * 5_000)


WRONG: list[tuple[int, list[str], list[str]]] = [
    (InvalidInput.exit_code, ["add", "   "], ["messages[0].content", "empty"]),
    (InvalidInput.exit_code, ["add", "x", "--ttl", "7"], ["--ttl", "7d"]),
    (InvalidInput.exit_code, ["add", "x", "--ttl", "0s"], ["ttl_s", "above 0"]),
    (InvalidInput.exit_code, ["search", "x", "--filter", "{tags"], ["--filter", "is not JSON"]),
    (InvalidInput.exit_code, ["search", "x", "--min-relevance", "nan"], ["min_relevance", "from 0 to 1"]),
    (InvalidInput.exit_code, ["search", "x", "--rerank"], ["rerank", "MEMOS_RERANK__MODEL"]),
    (InvalidInput.exit_code, ["list", "--filter", "[" * 5000], ["--filter", "is not JSON"]),
    (InvalidInput.exit_code, ["list", "--filter", '{"version": ' + "9" * 5000 + "}"], ["--filter", "is not JSON"]),
    (InvalidInput.exit_code, ["import", "/no/such/file"], ["/no/such/file", "cannot be read"]),
    (InvalidInput.exit_code, ["import", "x", "--on-bad", "panic"], ["--on-bad", "skip, stop"]),
    (InvalidInput.exit_code, ["import", "x", "--format", "xml"], ["--format", "chatgpt, claude, gemini"]),
    (InvalidInput.exit_code, ["demo", "--svg", "/no/such/folder/x.svg"], ["--svg", "does not exist"]),
    (InvalidInput.exit_code, ["memory", "erase", "x"], ["--yes", "nothing was changed"]),
    (InvalidInput.exit_code, ["cube", "drop", "talk"], ["--yes", "nothing was changed"]),
    (NotFound.exit_code, ["show", "no-such-item"], ["'no-such-item'", "memos list"]),
    (NotFound.exit_code, ["search", "x", "-c", "nowhere"], ["'nowhere'", "memos cube create nowhere"]),
    (Conflict.exit_code, ["cube", "create", "default"], ["'default'", "another id"]),
    (PermissionDenied.exit_code, ["list", "--data-dir", "/proc/nowhere"], ["/proc/nowhere", "--data-dir"]),
]


@pytest.mark.parametrize(("code", "arguments", "words"), WRONG, ids=[" ".join(wrong[1])[:40] for wrong in WRONG])
def test_a_wrong_call_is_one_sentence_and_an_exit_code(
    store: Store, code: int, arguments: list[str], words: list[str]
) -> None:
    told = store.failed(code, *arguments)
    for word in words:
        assert word in told


def test_errors_are_json_when_json_is_asked_for(store: Store) -> None:
    for arguments, code, error_code, field in (
        (["list", "--filter", "{", "--json"], InvalidInput.exit_code, "invalid_input", "--filter"),
        (
            ["edit", store.ids["cello"], "x", "--expected-version", "9", "--json"],
            Conflict.exit_code,
            "conflict",
            None,
        ),
    ):
        done = store.run(*arguments)
        error = json.loads(done.stderr)["error"]
        assert (done.returncode, done.stdout, error["code"], error.get("field")) == (code, "", error_code, field)


@pytest.mark.parametrize("arguments", [["search", "x", "--bogus"], ["frobnicate"]])
def test_a_command_that_does_not_exist_shows_how_to_get_help(store: Store, arguments: list[str]) -> None:
    done = store.run(*arguments)
    assert (done.returncode, done.stdout) == (InvalidInput.exit_code, "")
    assert "Usage: " in done.stderr
    assert "-h" in done.stderr


def test_bytes_that_are_not_utf8_are_refused(store: Store) -> None:
    done = store.process("add", b"caf\xe9")
    assert (done.returncode, "argument 2: is not valid UTF-8" in done.stderr) == (InvalidInput.exit_code, True)
    told = store.failed(InvalidInput.exit_code, "add", "-", stdin=b"fine\ncaf\xe9\n")
    assert "byte 0xe9 in line 2" in told
    assert "NUL" in store.failed(InvalidInput.exit_code, "add", "-", stdin=b"a\0b")


@pytest.mark.parametrize(("name", "value", "words"), [
    ("MEMOS_EMBED__MODEL", "gpt", ["MEMOS_EMBED__MODEL", "minilm"]),
    ("MEMOS_TIME_ZONE", "Mars/Olympus", ["MEMOS_TIME_ZONE", "Europe/Paris"]),
    ("MEMOS_EMBED", "rubbish", ["MEMOS_EMBED: ", "MEMOS_EMBED__THREADS"]),
    ("MEMOS_SERVER__PORTT", "1", ["MEMOS_SERVER__PORTT", "did you mean `MEMOS_SERVER__PORT`"]),
    ("MEMOS_LEDGER_URL", "rubbish", ["ledger_url", "postgresql"]),
])  # fmt: skip
def test_a_wrong_setting_is_named(store: Store, name: str, value: str, words: list[str]) -> None:
    told = store.failed(InvalidInput.exit_code, "list", **{name: value})
    for word in words:
        assert word in told


def test_who_waits_for_tasks_is_told_which_failed_and_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path / "home", {})
    with OpenAIServer(lambda _: error(400, "no such model")) as model:
        wrong = {"MEMOS_CHAT_MODEL__BASE_URL": model.url, "MEMOS_CHAT_MODEL__MODEL": "m"}
        store.said("add", "I live in Rome.", "--mode", "fine", **wrong)
        told = store.said("task", "wait", **wrong)
    assert told == "no task waits; 1 failed: memos task list --state failed; memos task retry ID\n"
    [task] = store.told("task", "list", "--state", "failed")
    store.said("task", "retry", task["id"])
    assert store.said("task", "wait") == "no task waits\n"
    assert store.told("task", "show", task["id"])["state"] == "done"


def test_a_folder_in_use_and_a_damaged_one_have_their_exit_codes(tmp_path: Path) -> None:
    mine = Store(tmp_path, {})
    lock = FolderLock(tmp_path)
    lock.acquire()
    assert f"process {os.getpid()} " in mine.failed(BackendUnavailable.exit_code, "list")
    lock.release()
    (tmp_path / "ledger.db").write_bytes(b"not a database" * 1000)
    assert "Nothing was changed" in mine.failed(IntegrityError.exit_code, "list")


def test_the_data_dir_option_goes_before_memos_home(store: Store, tmp_path: Path) -> None:
    store.said("add", "elsewhere", "--data-dir", str(tmp_path / "other"))
    assert [item["memory"] for item in store.told("list", "--data-dir", str(tmp_path / "other"))] == ["elsewhere"]


@pytest.mark.parametrize(
    ("alias", "ours"),
    [
        (["--user-id", "ana"], ["--actor", "ana"]),
        (["--conversation-id", "work"], ["--conversation", "work"]),
        (["--run-id=work", "--thread-id", "work"], ["--conversation", "work"]),
        (["--timestamp", "2026-01-02"], ["--chat-time", "2026-01-02"]),
        (["--infer"], ["--mode", "fine"]),
        (["--no-infer", "--mode", "rough"], ["--mode", "rough"]),
        (["--cubes", "default"], ["--cube", "default"]),
    ],
)
def test_options_may_have_the_words_of_other_programs(tmp_path: Path, alias: list[str], ours: list[str]) -> None:
    store = Store(tmp_path, {})

    def added(*options: str) -> tuple[object, ...]:
        receipt = store.told("add", "The bakery closes at noon.", "--chat-time=2026-01-01", *options)
        [version] = store.told("memory", "history", receipt["item_ids"][0])
        state = version["after"]
        return version["actor"], state["conversation"], state["said_at"], receipt["task"] is None

    def timed(*options: str) -> tuple[object, ...]:
        receipt = store.told("add", "The bakery closes at noon.", *options)
        return (store.told("show", receipt["item_ids"][0])["said_at"],)

    check = timed if "--timestamp" in alias else added
    assert check(*alias) == check(*ours)


def test_two_options_for_one_thing_are_refused_and_help_shows_ours(store: Store) -> None:
    told = store.failed(2, "search", "cello", "--limit", "1", "--top-k", "2")
    assert told == "Error: limit: is another word for `top_k`, which has another value; give one of them\n"
    for where in ((), ("--cubes", "default"), ("--cubes", "default", "--cube", "default")):
        assert len(store.told("search", "cello", "--limit", "1", *where)["hits"]) == 1
    assert store.told("search", "cello", "--threshold", "1")["hits"] == []
    assert store.run("search", "cello", "--session-id", "x").returncode == 2
    assert "--user-id" not in store.said("add", "--help")
