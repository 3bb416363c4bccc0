"""One folder, one process, many tools: what a server has open is used through it, by every command and from Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main
from click.testing import CliRunner
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api import endpoint
from memos.api import serialization as wire
from memos.api.app import create_app
from memos.api.local import routes as calls
from memos.api.local.client import served
from memos.api.local.routes import alone
from memos.api.local.sharing import in_background
from memos.cli import app as cli
from memos.cli import tree
from memos.core.settings import IndexSettings, LimitSettings
from memos.core.tokens import Tokens
from memos.core.types import TaskState
from memos.errors import BackendTimeout, BackendUnavailable, Conflict, InvalidInput, MemosError, ModelError, NotFound
from memos.scheduler.rules import TierSettings
from tests.fakes import WordEmbedder

COMMAND = typer.main.get_command(cli.app)
EXPORT = Path(__file__).parents[2] / "examples" / "data" / "chat_export.json"


class Served(NamedTuple):
    """A folder that a server has open: the installation itself, and as tools see it."""

    home: Path
    memos: MemOS
    remote: MemOS

    def run(self, *words: str) -> tuple[int, str]:
        """Run one command on the folder, which it could not open itself; return how it ends and what it says."""
        done = CliRunner().invoke(COMMAND, [*words, "--data-dir", str(self.home)])
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        return done.exit_code, done.output

    def told(self, *words: str) -> Any:
        """Return the JSON of a command that works."""
        code, said = self.run(*words, "--json")
        assert code == 0, (words, said)
        return json.loads(said)


@pytest.fixture(scope="module")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = Settings(
        index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000),
        heat=TierSettings(short_capacity=1),
    )  # fmt: skip
    home: Path = tmp_path_factory.mktemp("served")
    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos,
        in_background(home, lambda token, stopping: create_app(memos, local_token=token, stopping=stopping)),
    ):
        remote = served(home)
        assert remote is not None
        with remote:
            yield Served(home, memos, remote)


def test_a_call_gives_what_it_gives_in_one_process(served_folder: Served) -> None:
    memos, remote = served_folder.memos, served_folder.remote
    receipt = remote.add("The otter lives in Oslo", tags=("zoo",), info={"$": ["a", "\u2028"]})
    item = receipt.item_ids[0]
    assert remote.get(item) == memos.get(item)
    assert remote.memories.history(item) == memos.memories.history(item)
    assert remote.update(item, "The otter lives in Rome", tags=["zoo"]) == memos.get(item)
    ours, theirs = memos.search("otter"), remote.search("otter", filter={"tags": {"contains": "zoo"}})
    assert [hit.item for hit in theirs] == [hit.item for hit in ours]
    assert remote.cubes.list() == memos.cubes.list()
    assert remote.tasks.counts().keys() <= set(TaskState)
    assert remote.profiles.template("default") == memos.profiles.template("default")
    first = remote.statistics.overview()
    assert remote.statistics.overview(since=first).seconds > 0
    assert remote.maintenance.verify() == memos.maintenance.verify()


def test_words_of_other_programs_come_through(served_folder: Served) -> None:
    remote = served_folder.remote
    item = remote.add("The seal lives in Bergen", conversation_id="zoo", metadata={"a": 1}).item_ids[0]
    assert (remote.get(memory_id=item).conversation, remote.get(item).info) == ("zoo", {"a": 1})
    assert remote.update(memory_id=item, metadata={"a": 2}).info == {"a": 2}
    assert remote.context(session_id="zoo") == served_folder.memos.context("zoo")
    with pytest.raises(InvalidInput, match="another word for `item`"):
        remote.get(item, memory_id="other")
    with pytest.raises(TypeError, match="unexpected keyword argument 'usr'"):
        remote.add("x", usr="ana")  # type: ignore[call-arg]


def test_bytes_and_files_come_and_go(served_folder: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, data = served_folder.remote, bytes(range(32, 127)) + b"\n# Otters\n"
    kept = remote.documents.add(("odd 名 name.md", data))
    assert remote.documents.content(kept.id) == data
    (tmp_path / "here.md").write_text("# Here\n\nBy a relative path.")
    monkeypatch.chdir(tmp_path)
    assert remote.documents.add("here.md").name == "here.md"
    assert remote.documents.wait(kept.id).name == "odd 名 name.md"


def test_progress_and_following_are_told_as_they_happen(served_folder: Served) -> None:
    remote, seen = served_folder.remote, []
    remote.add("something to index")
    assert remote.maintenance.reindex(on_progress=lambda done, total: seen.append((done, total))) >= 1
    assert seen
    stop = threading.Event()
    events = remote.events.follow(after=0, stop=stop)
    assert next(events).seq == 1
    stop.set()
    assert len(list(events)) < 10_000
    remote.tasks.wait()
    with pytest.raises(StopIteration):
        next(remote.events.follow(timeout_s=0.1))


ERRORS: list[tuple[Callable[[MemOS], object], type[MemosError]]] = [
    (lambda memos: memos.get("nothing"), NotFound),
    (lambda memos: memos.add(""), InvalidInput),
    (lambda memos: memos.add("lone \ud800 surrogate"), InvalidInput),
    (lambda memos: memos.add("nul", conversation="\0"), InvalidInput),
    (lambda memos: memos.add("x", info={"a": float("nan")}), InvalidInput),
    (lambda memos: memos.add("x", info={1: 2}), InvalidInput),  # type: ignore[dict-item]
    (lambda memos: memos.add({"role": "user", "content": object()}), InvalidInput),
    (lambda memos: memos.search("x", top_k=10**400), InvalidInput),
    (lambda memos: memos.search("x", top_k=10**5000), InvalidInput),
    (lambda memos: memos.search("x", cubes=7), InvalidInput),
    (lambda memos: memos.cubes.create("default"), Conflict),
    (lambda memos: next(memos.tasks.follow("none")), NotFound),  # type: ignore[arg-type]
    (lambda memos: memos.tasks.wait("none"), NotFound),
    (lambda memos: memos.chat("hello"), BackendUnavailable),
    (lambda memos: next(memos.chat.stream("hello")), BackendUnavailable),
    (lambda memos: memos.documents.add("/no/such/file.md"), InvalidInput),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_are_those_of_one_process(served_folder: Served, number: int) -> None:
    wrong, kind = ERRORS[number]
    told = []
    for memos in (served_folder.memos, served_folder.remote):
        with pytest.raises(kind) as caught:
            wrong(memos)
        assert type(caught.value) is kind
        told.append(caught.value)
    assert told[0].exit_code == told[1].exit_code
    if number not in (6, 8):  # what cannot be sent is refused before it is
        assert str(told[0]) == str(told[1])
        assert vars(told[0]) == vars(told[1])


def test_wrong_use_is_an_error_of_the_program_as_ever(served_folder: Served) -> None:
    remote: Any = served_folder.remote
    with pytest.raises(TypeError):
        remote.search("x", no_such=1)
    with pytest.raises(AttributeError):
        remote.ledger  # noqa: B018
    with pytest.raises(BackendUnavailable, match="stop the server"):
        remote.maintenance.reembed()


def test_an_error_keeps_what_it_has() -> None:
    spent = ModelError("no answer", permanent=True, tokens=Tokens(3, 4))
    error = wire.error_of(wire.unpacked(json.loads(wire.as_json(wire.error_told(spent)))))
    assert isinstance(error, ModelError)
    assert (str(error), error.permanent, error.tokens) == ("no answer", True, Tokens(3, 4))
    assert isinstance(wire.error_of(wire.error_told(BackendTimeout("late"))), BackendTimeout)


def test_every_part_of_the_facade_can_be_called(served_folder: Served) -> None:
    not_callable = {
        "settings",
        "clock",
        "ledger",
        "embedder",
        "listeners",
        "idempotency",
        "models",
        "quotas",
        "submissions",
    }
    parts = {
        name
        for name, value in vars(served_folder.memos).items()
        if not name.startswith("_") and type(value).__module__.startswith("memos.")
    } - not_callable
    assert parts == set(calls.PARTS) - {""}, "name new parts in memos.api.calls, or here what only routes use"
    for name in calls.names():
        calls.adapter(name)
    assert served_folder.remote.statistics.totals().cubes == served_folder.memos.statistics.totals().cubes
    assert {"chat", "chat.stream"} <= calls.names()
    assert not calls.names() & {"open", "close", "reembed", "asker"}


def test_the_routes_are_for_the_local_token_alone(served_folder: Served) -> None:
    found = endpoint.find(served_folder.home)
    assert found is not None
    memos = served_folder.memos
    with MemOS.open(served_folder.home / "other", embedder=WordEmbedder()) as other:
        other.users.create("root", admin=True)
        key = other.keys.create("root", "test").secret
        with TestClient(create_app(other, local_token="the token")) as http:
            for secret, status in (("the token", 200), (key, 403), ("wrong", 401)):
                headers = {"Authorization": f"Bearer {secret}"}
                assert http.get("/local/about", headers=headers).status_code == status
                body = {"call": "cubes.list", "arguments": {}}
                answer = http.post("/local/call", json=body, headers=headers)
                assert answer.status_code == status
                assert status == 200 or "default" not in answer.text
            headers = {"Authorization": "Bearer the token"}
            for wrong in (b"", b"[]", b'{"call": 1}', b'{"call": "add", "arguments": {"$": "no"}}', b"[" * 9000):
                assert http.post("/local/call", content=wrong, headers=headers).status_code == 400
            for name in ("close", "__init__", "_scope", "tasks._get", "settings", "ledger.close", "users", "a" * 9000):
                answer = http.post("/local/call", json={"call": name, "arguments": {}}, headers=headers)
                assert wire.error_of(json.loads(answer.text)["error"]).exit_code == InvalidInput.exit_code
            told = http.get("/local/about", headers=headers).text
            assert "key" not in told
        with TestClient(create_app(other)) as http:
            assert http.get("/local/about").status_code == 404
    assert memos.cubes.list()


class Furnished(NamedTuple):
    """A folder with something of everything; `names` are what stands for ids in commands."""

    folder: Served
    names: dict[str, str]


@pytest.fixture(scope="module")
def furnished(served_folder: Served) -> Furnished:
    memos = served_folder.memos
    item = memos.add("My otter lives in Oslo. I live in Oslo.", conversation="talk").item_ids[0]
    for number in range(4):
        messages = [{"role": role, "content": f"otter number {number}"} for role in ("user", "assistant")]
        memos.add(messages, conversation="talk")
    memos.tasks.wait()
    memos.profiles.set_static("default", "life.residence", "Oslo", "Maya")
    memos.knowledge.create("papers")
    memos.documents.wait(memos.knowledge.add("papers", ("otters.md", b"# Otters\n\nThey swim.")).id)
    memos.tasks.wait()
    return Furnished(served_folder, {"ITEM": item, "TASK": memos.tasks.list(limit=1)[0].id})


READING = (
    "search otter", "search otter --explain", "search otter --why-not ITEM", "search otter --cube none", "show ITEM",
    "show nothing", "list", "list --filter {", "memory history ITEM", "cube list", "data backups", "memory topics",
    "memory context talk", "memory context --max-tokens 0", "memory extractions ITEM", "task list", "task show TASK",
    "task cancel TASK", "task retry TASK", "task wait TASK", "profile show", "profile show --tokens 100",
    "profile subjects", "profile history life.residence", "profile history life.residence --subject none",
    "profile diff 2020-01-01 2100-01-01", "profile templates", "cube retention list", "cube retention run --dry-run",
    "memory relations ITEM", "memory review relations", "memory review decide ITEM ITEM --holds",
    "memory review list", "memory tools list", "memory tools show none", "model kv list", "model kv stat",
    "model kv drop", "model kv verify", "model adapter list", "model adapter preview",
    "model adapter show none", "model adapter train", "model adapter activate none", "model adapter remove none",

    "model adapter forget none", "model adapter forget ITEM", "model adapter allow none",
    "model adapter export none /nowhere/out", "docs list", "docs show papers",
    "docs files papers", "cube events", "data verify", "memory reflect", "cube create papers",
    "export none /nowhere/out", "cube inspect /nowhere/in", "cube load /nowhere/in", "cube share default none",
    "cube unshare default none", "cube shares default", "user list", "user create eve --kind ghost", "user show none",
    "user enable none", "user disable none", "user join none none", "user leave none none", "user members none",
    "user key create none laptop", "user key list", "user key revoke none", "user key rotate none",
    "user offboard none", "user audit", "cube transfer none none", "model kv warm", "model kv pin none",
    "model adapter allow --cube none", "model adapter disallow --cube none", "memory review approve ITEM",
    "memory move none long", "cube retention remove none",
)  # fmt: skip
"""Commands that end the same however often they are run."""

_TRIES = 5


@pytest.mark.heavy
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_command_says_through_the_server_what_it_says_without(
    furnished: Furnished, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = furnished.folder
    lines = [[furnished.names.get(word, word) for word in line.split()] for line in READING]
    for words in [[*line, "--json"] if form == "json" else line for line in lines]:
        for _ in range(_TRIES):  # background work may come between the two
            through = _steady(folder.run(*words))
            with monkeypatch.context() as alone:
                alone.setattr("memos.cli.shared.through_server", lambda *_: _Lent(folder.memos))
                direct = _steady(folder.run(*words))
            if through == direct:
                break
        assert through == direct, words


def _steady(said: tuple[int, str]) -> tuple[int, str]:
    """Leave out of what a command says the times a search took, and heat, which falls."""
    return said[0], re.sub(r'"timings_ms": \{[^}]*\}|"?(heat|visits)"?:? [0-9.]+', "", said[1])


class _Lent:
    """An installation that a command may use and not close."""

    def __init__(self, memos: MemOS) -> None:
        self._memos = memos

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memos, name)

    def __enter__(self) -> MemOS:
        return self._memos

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.heavy
def test_commands_change_memories_through_the_server(furnished: Furnished, tmp_path: Path) -> None:
    folder, memos = furnished.folder, furnished.folder.memos
    item = folder.told("add", "Herons fish at dawn", "--conversation", "birds", "--tag", "zoo")["item_ids"][0]
    assert memos.get(item).tags == ("zoo",)
    assert folder.told("edit", item, "Herons fish at dusk")["version"] == 2
    assert folder.told("memory", "rollback", item, "1")["memory"] == memos.get(item).memory == "Herons fish at dawn"
    assert folder.told("feedback", "no, at noon", "--about", item)["related"] == [item]
    assert folder.told("forget", item) == {"deleted": [item]}
    receipt = folder.told("memory", "erase", item, "--yes")
    assert receipt["state"] == "purged"
    assert folder.told("data", "erasure", "show", receipt["id"])["forms"] == receipt["forms"]
    (tmp_path / "receipt.json").write_text(json.dumps(receipt))
    (tmp_path / "erased.txt").write_text("Herons fish at\n")
    texts = ("--text", str(tmp_path / "erased.txt"))
    check = folder.told("data", "erasure", "verify", str(tmp_path / "receipt.json"), *texts)
    assert (check["passed"], check["scan"]["texts"], check["scan"]["remnants"]) == (True, 1, [])
    folder.told("add", "I saw Marabou Stork at dawn", "--name", "Heron Watcher")
    seen = folder.told("data", "subject", "preview", "Heron Watcher", "--person")
    made = folder.told("data", "subject", "export", "Heron Watcher", str(tmp_path / "held.zip"), "--person")
    done = folder.told("data", "subject", "forget", "Heron Watcher", "--person", "--yes")
    assert (seen["goes"], made["memories"], done["erased"]) == (1, 1, 1)
    (tmp_path / "forgotten.json").write_text(json.dumps(done))
    check = folder.told("data", "erasure", "verify", str(tmp_path / "forgotten.json"), "--no-scan")
    assert (check["receipt"], check["passed"]) == (done["receipts"][0]["id"], True)
    assert folder.told("import", str(EXPORT))["added"] > 0
    assert folder.told("data", "reindex")["items"] > 0
    assert folder.told("evaluate", "--sample", "5", "--save", str(tmp_path / "found.json"))["evaluation"]["questions"]
    assert folder.told("evaluate", "--compare", str(tmp_path / "found.json"))["changed"] == []
    assert folder.run("demo")[0] == 0
    assert folder.told("cube", "create", "work")["id"] == "work"
    assert folder.told("cube", "edit", "work", "--description", "for work")["description"] == "for work"
    assert folder.told("cube", "drop", "work", "--yes")["cube"] == "work"
    assert folder.told("data", "backup", str(tmp_path / "backup"))["rows"] > 0
    assert [made["folder"] for made in folder.told("data", "backups")] == [str(tmp_path / "backup")]
    assert folder.run("data", "backups", "--forget", str(tmp_path / "backup"))[0] == Conflict.exit_code
    assert memos.maintenance.backups()


def test_commands_steer_the_background_through_the_server(furnished: Furnished) -> None:
    folder, memos = furnished.folder, furnished.folder.memos
    segment = memos.tiers.segments()[0].id
    assert folder.told("memory", "pin", segment)["pinned"]
    assert memos.tiers.segments()[0].pinned
    assert not folder.told("memory", "unpin", segment)["pinned"]
    for command in (
        ["memory", "analyse"],
        ["memory", "consolidate"],
        ["memory", "extract"],
        ["memory", "move", segment, "long"],
        ["task", "wait"],
    ):
        folder.told(*command)
    assert "default" in folder.run("task", "top", "--once")[1]
    seen = folder.run("cube", "events", "--follow", "--after", "0", "--limit", "3", "--json")[1]
    assert [json.loads(line)["seq"] for line in seen.splitlines()] == [1, 2, 3]


def test_commands_keep_order_through_the_server(furnished: Furnished, tmp_path: Path) -> None:
    folder, memos = furnished.folder, furnished.folder.memos
    set_ = folder.told("profile", "set", "life.residence", "Rome", "--subject", "Ben")
    assert memos.profiles.get("default", "Ben").traits[0].value == set_["value"] == "Rome"
    assert folder.told("profile", "rollback", "life.residence", "1", "--subject", "Ben")["value"] == "Rome"
    folder.told("profile", "unset", "life.residence", "--subject", "Ben")
    assert folder.told("profile", "use", "standard")["cube"] == "default"
    rule = folder.told("cube", "retention", "add", "archive", "--tag", "never")["id"]
    assert folder.told("cube", "retention", "run", "--yes") == []
    assert folder.told("cube", "retention", "remove", rule)["id"] == rule
    for command in ("memory review approve", "memory review edit", "memory review reject"):
        item = memos.add(f"wait for {command}").item_ids[0]
        memos.update(item, status="pending")
        assert folder.told(*command.split(), item, *(["as edited"] if command.endswith("edit") else []))["id"] == item
    (tmp_path / "swans.md").write_text("# Swans\n\nThey fly.")
    assert folder.told("docs", "create", "birds")["id"] == "birds"
    [kept] = folder.told("docs", "add", "birds", str(tmp_path / "swans.md"))["files"]
    assert folder.told("docs", "delete", "birds", kept["id"])["state"] == "deleted"
    assert folder.told("docs", "drop", "birds", "--yes")["state"] == "purged"


def test_what_needs_the_folder_for_itself_says_so(served_folder: Served, tmp_path: Path) -> None:
    home = str(served_folder.home)
    for words in (["data", "restore", str(tmp_path)], ["data", "reembed"]):
        code, said = served_folder.run(*words)
        assert (code, "stop the server" in said) == (BackendUnavailable.exit_code, True), said
    done = CliRunner().invoke(COMMAND, ["data", "migrate", "--from", home, "--to", str(tmp_path / "new")])
    assert done.exit_code == BackendUnavailable.exit_code
    assert "stop the server" in done.output
    assert not (tmp_path / "new").exists()


def test_who_waits_is_told_when_the_server_ends(tmp_path: Path) -> None:
    ended: list[BaseException | None] = []
    waiting = threading.Event()

    def follow(remote: MemOS) -> None:
        try:
            for _ in remote.events.follow(after=0):
                waiting.set()
            ended.append(None)
        except MemosError as error:
            ended.append(error)

    def wait(remote: MemOS, task: str) -> None:
        try:
            remote.tasks.wait(task)
        except MemosError as error:
            ended.append(error)

    with MemOS.open(tmp_path, embedder=WordEmbedder()) as memos:
        with in_background(tmp_path, lambda token, stopping: alone(memos, token, stopping)):
            remote = served(tmp_path)
            assert remote is not None
            messages = [{"role": "user", "content": f"heron {number}"} for number in range(40)]
            memos.add(messages, conversation="long")
            [task, *_] = memos.tasks.list(states=["waiting"])  # for two seconds yet
            threads = [threading.Thread(target=follow, args=(remote,))]
            threads += [threading.Thread(target=wait, args=(remote, task.id)) for _ in range(60)]
            for thread in threads:
                thread.start()
            assert waiting.wait(60)
            assert remote.search("heron")  # who waits keeps nobody else waiting
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert ended
        assert all(error is None or isinstance(error, BackendUnavailable) for error in ended)
        assert endpoint.find(tmp_path) is None
        assert memos.maintenance.check_ready() is None


@pytest.mark.heavy
def test_the_documents_program_runs(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    [block] = re.findall(
        r"^```python\n(.*?)^```", (root / "docs/reference/mcp.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True,
        text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "The release is on Friday.\n"


def test_every_command_is_tried_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    # Without a folder, or with tests of their own.
    apart = {
        "version",
        "data encrypt",
        "data decrypt",
        "data rotate-key",
        "data preview",
        "model test",
        "serve",
        "console",
        "mcp",
        "task work",
        "data migrate",
        "doctor",
    }
    apart |= {command for command, _ in tree.walk() if command.startswith(("mcp ", "claude "))}
    for command, _ in tree.walk():
        words = '", "'.join(command.split())
        tried = command in apart or f'"{words}"' in source or f'"{command} ' in source or f'"{command}"' in source
        assert tried, f"`memos {command}` is not tried through a server"


def test_a_server_that_is_gone_or_another_program_is_not_believed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    told: list[bytes] = []

    class Liar(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(bytes(self.headers))
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b'"i am it!"')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as liar:
        thread = threading.Thread(target=liar.serve_forever)
        thread.start()
        taken = f"http://127.0.0.1:{liar.server_port}"
        for content in ("", "{", "[]", '{"url": 1}', json.dumps({"url": taken, "token": "secret", "pid": 1})):
            (home / endpoint.FILE).write_text(content)
            assert served(home) is None
        liar.shutdown()
        thread.join()
    assert len(told) == 1
    assert b"secret" not in told[0]
    assert served(home) is None  # nobody listens there now
    (home / endpoint.FILE).write_text(json.dumps({"url": "http://127.0.0.1:1/", "token": "secret", "pid": 1}))
    done = CliRunner().invoke(COMMAND, ["cube", "list", "--json", "--data-dir", str(home)])
    assert done.exit_code == 0


def test_commands_load_nothing_heavy_where_a_server_runs(served_folder: Served) -> None:
    heavy = ("numpy", "sqlalchemy", "fastapi", "httpx2", "pydantic_settings", "memos.kernel", "memos.core.settings")
    program = (
        "import atexit, sys; from memos.cli.app import main; "
        "atexit.register(lambda: sys.stderr.write('\\n'.join(sys.modules))); main()"
    )
    env = {name: value for name, value in os.environ.items() if not name.upper().startswith("MEMOS_")}
    for words in (["add", "The owl lives in Turin"], ["search", "owl"], ["search", "owl", "--json"], ["list"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words, "--data-dir", str(served_folder.home)],
            env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert words[0] == "add" or "Turin" in done.stdout
        assert not [name for name in done.stderr.split() if name.startswith(heavy)], words
