"""The routes of Claude Code's hooks, and the hook program itself in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.api import endpoint
from memos.api.app import create_app
from memos.api.hooks import plugin
from memos.api.hooks.plugin.ask_memory import project_of
from memos.api.hooks.plugin.transcripts import turns
from memos.api.local.sharing import in_background
from memos.core.settings import IndexSettings, LimitSettings
from tests.api.conftest import Server
from tests.fakes import WordEmbedder

SECRET = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"


def event(name: str, session: str = "s1", **more: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": session, "transcript_path": "/nowhere", **more}


def context(server: Server, who: str, given: dict[str, Any], **headers: str) -> str:
    """Return the context that an event is answered with, empty if it is answered with nothing."""
    answer = server.http.post("/hooks/claude-code", json=given, headers={**server.headers(who), **headers})
    if answer.status_code == 204:
        assert answer.content == b""
        return ""
    assert answer.status_code == 200, answer.text
    output = answer.json()["hookSpecificOutput"]
    assert output["hookEventName"] == given["hook_event_name"]
    return str(output["additionalContext"])


def store(server: Server, who: str, messages: list[dict[str, Any]], session: str, **headers: str) -> Any:
    body = {"session": session, "messages": messages}
    return server.http.post("/hooks/claude-code/messages", json=body, headers={**server.headers(who), **headers})


def test_a_prompt_is_answered_with_what_other_sessions_said_and_each_memory_once(server: Server) -> None:
    said = [{"role": "user", "content": "The otter lives in Oslo.", "message_id": "m1"}]
    assert store(server, "ana", said, "first").json() == {"stored": 1, "masked": 0}
    context(server, "ana", event("SessionStart", "second", source="startup"))
    asked = event("UserPromptSubmit", "second", prompt="Where does the otter live?")
    assert "The otter lives in Oslo." in context(server, "ana", asked)
    assert context(server, "ana", asked) == ""  # it stands in the session already
    context(server, "ana", event("SessionStart", "second", source="compact"))
    assert "otter" in context(server, "ana", asked)
    assert context(server, "ana", event("UserPromptSubmit", "first", prompt="Where does the otter live?")) == ""
    assert "otter" not in context(server, "ben", asked)


@pytest.mark.parametrize("prompt", ["/compact otter", "thanks!", "", "<task-notification>otter</task-notification>"])
def test_what_is_no_question_is_not_searched_for(server: Server, prompt: str) -> None:
    store(server, "ana", [{"role": "user", "content": "The otter lives in Oslo.", "message_id": "m1"}], "first")
    context(server, "ana", event("SessionStart", "quiet", source="startup"))
    assert context(server, "ana", event("UserPromptSubmit", "quiet", prompt=prompt)) == ""


def test_the_start_tells_who_the_user_is_and_a_prompt_does_if_the_start_could_not(server: Server) -> None:
    server.memos.profiles.set_static("ben", "life.residence", "Lyon", "ben", actor="ben")
    start = context(server, "ben", event("SessionStart", "told", source="startup"))
    assert "Lyon" in start
    assert start.rstrip().endswith("</memory>")
    assert "Lyon" not in context(server, "ben", event("UserPromptSubmit", "told", prompt="What next?"))
    assert "Lyon" in context(server, "ben", event("UserPromptSubmit", "untold", prompt="What next?"))
    assert "Lyon" in context(server, "ben", event("SubagentStart", "told"))
    assert context(server, "ben", event("Stop", "told")) == ""


def test_messages_are_stored_once_and_never_with_a_secret(server: Server) -> None:
    said = [
        {"role": "user", "content": f"My token is {SECRET}.", "message_id": "a", "chat_time": "2026-01-02T03:04:05Z"},
        {"role": "assistant", "content": "I will not repeat it.", "message_id": "b"},
    ]
    assert store(server, "ana", said, "secret").json() == {"stored": 2, "masked": 1}
    before = len(server.memos.memories.list(cube="ana", actor="ana", limit=1000))
    assert store(server, "ana", said, "secret").status_code == 200
    items = server.memos.memories.list(cube="ana", actor="ana", limit=1000)
    assert len(items) == before
    [kept] = [item for item in items if item.memory.startswith("My token")]
    assert (kept.memory, kept.tags) == ("My token is [masked: github token].", ("claude-code",))


def test_secrets_are_masked_even_where_the_installation_masks_none(tmp_path: Path) -> None:
    settings = Settings(mask_secrets=False, index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1))
    with (
        MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos,
        in_background(tmp_path / "home", lambda token, stop: create_app(memos, local_token=token, stopping=stop)),
    ):
        hook = installed(tmp_path / "plugin", tmp_path / "home")
        transcript = tmp_path / "talk.jsonl"
        write(transcript, line("user", f"My token is {SECRET}."), line("assistant", "Noted.", stop_reason="end_turn"))
        hook.run("stop", event("Stop", transcript_path=str(transcript)))
        assert memos.memories.list()[0].memory == "My token is [masked: github token]."


def test_a_project_has_a_cube_of_its_own_that_nobody_else_can_have_made(server: Server) -> None:
    said = [{"role": "user", "content": "The falcon is deployed on Friday.", "message_id": "m1"}]
    project = {"Project": "github.com/x/falcon"}
    assert store(server, "ana", said, "one", **project).status_code == 200
    asked = event("UserPromptSubmit", "two", prompt="When is the falcon deployed?")
    assert "on Friday" in context(server, "ana", asked, **project)
    assert "on Friday" not in context(server, "ana", {**asked, "session_id": "three"})
    assert "on Friday" not in context(server, "ben", asked, **project)
    assert server.memos.cubes.get("ana/github.com/x/falcon", actor="ana").owner == "ana"
    # A cube that somebody shares under the name of mine would show them what I say.
    server.memos.cubes.create("ben/github.com/x/trap", actor="ana")
    server.memos.sharing.grant("ben/github.com/x/trap", "ben", "editor", actor="ana")
    answer = store(server, "ben", said, "one", Project="github.com/x/trap")
    assert answer.status_code == 403
    assert "belongs to 'ana'" in answer.json()["error"]["message"]


def test_an_admins_key_acts_for_the_user_it_names_and_others_may_not(server: Server) -> None:
    said = [{"role": "user", "content": "The heron is grey.", "message_id": "m1"}]
    assert store(server, "admin", said, "heron", User="ana").status_code == 200
    asked = event("UserPromptSubmit", "heron2", prompt="What colour is the heron?")
    assert "grey" in context(server, "ana", asked)
    assert server.http.post("/hooks/claude-code", json=asked).status_code == 401
    answer = server.http.post("/hooks/claude-code", json=asked, headers={**server.headers("ben"), "User": "ana"})
    assert answer.status_code in (403, 404)


# The program


@dataclass(frozen=True)
class Hook:
    folder: Path
    options: tuple[str, ...]

    def run(self, word: str, given: dict[str, Any], **env: str) -> dict[str, Any]:
        """Run the hook as Claude Code does; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(self.folder / "hooks" / "hook.py"), word, *self.options],
            input=json.dumps(given),
            env={"PATH": os.environ["PATH"], **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return printed

    def state(self, session: str = "s1") -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / "state" / f"{session}.json").read_text(encoding="utf-8"))
        return state


def installed(folder: Path, home: Path) -> Hook:
    (folder / "hooks").mkdir(parents=True)
    for path in Path(str(plugin.__file__)).parent.glob("*.py"):
        shutil.copy(path, folder / "hooks")
    return Hook(folder, (f"home={home}", "timeout_s=30"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home: Path = tmp_path_factory.mktemp("hooked")
    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos,
        in_background(home, lambda token, stopping: create_app(memos, local_token=token, stopping=stopping)),
    ):
        memos.add("The otter lives in Oslo.")
        yield home


@pytest.fixture
def hook(home: Path, tmp_path: Path) -> Hook:
    return installed(tmp_path / "plugin", home)


def line(role: str, content: Any, at: int = 0, **more: Any) -> dict[str, Any]:
    reason = {"stop_reason": more.pop("stop_reason")} if "stop_reason" in more else {}
    entry = {"type": role, "uuid": f"{role}-{at}", "timestamp": f"2026-01-02T03:04:{at:02}.000Z", "cwd": "/work/notes"}
    return {**entry, "message": {"role": role, "content": content, **reason}, **more}


def write(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in lines)


def said(path: Path, offset: int = 0, since: str = "") -> list[tuple[str, str]]:
    found = turns(str(path), offset, since)
    return [(message["role"], message["content"]) for turn in found for message in turn.messages()]


def test_the_hook_prints_what_the_server_answers(hook: Hook) -> None:
    printed = hook.run("prompt", event("UserPromptSubmit", prompt="Where does the otter live?"))
    assert "The otter lives in Oslo." in printed["hookSpecificOutput"]["additionalContext"]
    assert hook.run("prompt", event("UserPromptSubmit", prompt="ok")) == {}


@pytest.mark.parametrize("word", ["prompt", "agent"])
def test_on_the_way_of_a_prompt_nothing_slow_is_imported(hook: Hook, word: str) -> None:
    arguments = [sys.executable, "-I", "-S", "-v", str(hook.folder / "hooks" / "hook.py"), word, *hook.options]
    name = {"prompt": "UserPromptSubmit", "agent": "SubagentStart"}[word]
    given = json.dumps(event(name, "imports", prompt="Where does the otter live?"))
    done = subprocess.run(arguments, input=given, capture_output=True, text=True, check=True)
    assert "additionalContext" in done.stdout or word == "agent"
    imported = {told.split("'")[1] for told in done.stderr.splitlines() if told.startswith("import '")}
    assert "ask_memory" in imported
    assert not imported & {"json", "re", "typing", "socket", "enum", "hashlib", "pathlib", "ssl", "transcripts"}


@pytest.mark.parametrize("word", ["start", "prompt", "agent", "stop", "compact", "end", "waiting", "unknown"])
def test_with_memory_away_every_hook_ends_well_and_says_so_where_it_can(tmp_path: Path, word: str) -> None:
    hook = installed(tmp_path / "plugin", tmp_path / "nowhere")
    names = {"start": "SessionStart", "prompt": "UserPromptSubmit", "agent": "SubagentStart"}
    printed = hook.run(word, event(names.get(word, "Stop"), prompt="hello", source="startup"))
    if word in names:
        assert f"no server has {tmp_path / 'nowhere'} open" in printed["systemMessage"]
        assert printed["hookSpecificOutput"]["hookEventName"] == names[word]
    else:
        assert printed == {}


@pytest.mark.parametrize("given", ["", "{", "[]", '"x"', '{"session_id": 3}', "\udcff"])
def test_what_is_no_event_ends_well_too(hook: Hook, given: str) -> None:
    for word in ("start", "prompt", "stop"):
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(hook.folder / "hooks" / "hook.py"), word, *hook.options],
            input=given.encode("utf-8", "surrogateescape"),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert "hippocube: " in json.loads(done.stdout)["systemMessage"]


def test_a_program_that_took_the_servers_address_is_told_nothing(tmp_path: Path) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as thief:

        def listen() -> None:
            connection, _ = thief.accept()
            with connection:
                heard.append(connection.recv(65_536))
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"no"')
                heard.append(connection.recv(65_536))

        thread = threading.Thread(target=listen)
        thread.start()
        found = endpoint.Endpoint(f"http://127.0.0.1:{thief.getsockname()[1]}", "the-token", os.getpid())
        with endpoint.announced(tmp_path, found):
            hook = installed(tmp_path / "plugin", tmp_path)
            printed = hook.run("prompt", event("UserPromptSubmit", prompt="my secret plan"))
        thread.join()
    assert "another program has the address" in printed["systemMessage"]
    assert heard[1] == b""
    assert b"secret plan" not in heard[0]
    assert b"the-token" not in heard[0]


def test_a_server_that_does_not_answer_is_given_up_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = endpoint.Endpoint(f"http://127.0.0.1:{silent.getsockname()[1]}", "the-token", os.getpid())
        with endpoint.announced(tmp_path, found):
            hook = Hook(installed(tmp_path / "plugin", tmp_path).folder, (f"home={tmp_path}", "timeout_s=0.2"))
            printed = hook.run("prompt", event("UserPromptSubmit", prompt="hello"))
    assert "does not answer: timed out" in printed["systemMessage"]


def test_a_refusal_names_its_reason(home: Path, tmp_path: Path) -> None:
    found = endpoint.find(home)
    assert found is not None
    hook = Hook(installed(tmp_path / "plugin", home).folder, (f"url={found.url}", "timeout_s=30"))
    printed = hook.run("prompt", event("UserPromptSubmit", prompt="hello"), MEMOS_API_KEY="mst_wrong")
    assert "memory refused (" in printed["systemMessage"]
    assert "key" in printed["systemMessage"]


def test_only_new_turns_are_sent_and_a_repeated_hook_sends_nothing(hook: Hook, tmp_path: Path) -> None:
    transcript = tmp_path / "talk.jsonl"
    stop = event("Stop", "turns", transcript_path=str(transcript))
    write(transcript, line("user", "I keep swans."), line("assistant", "Noted.", 1, stop_reason="end_turn"))
    hook.run("stop", stop)
    size = transcript.stat().st_size
    assert hook.state("turns")["offset"] == size
    write(transcript, line("user", "And geese.", 2), line("assistant", "How many?", 3, stop_reason="tool_use"))
    hook.run("compact", {**stop, "hook_event_name": "PreCompact"})
    assert hook.state("turns")["offset"] == size  # the answer is not complete
    hook.run("end", {**stop, "hook_event_name": "SessionEnd"})
    assert hook.state("turns")["offset"] == transcript.stat().st_size
    hook.run("end", {**stop, "hook_event_name": "SessionEnd"})
    (hook.folder / "state" / "turns.json").unlink()  # even if it forgot how far it had come
    hook.run("end", {**stop, "hook_event_name": "SessionEnd"})
    with served_memos(hook) as memos:
        stored = memos.memories.list(filter={"conversation": "claude-code/turns"}, limit=100)
    assert sorted(item.memory for item in stored) == ["And geese.", "How many?", "I keep swans.", "Noted."]


def served_memos(hook: Hook) -> MemOS:
    from memos.api.local.client import served  # noqa: PLC0415

    memos = served(Path(hook.options[0].removeprefix("home=")))
    assert memos is not None
    return memos


def test_a_transcript_says_what_people_and_claude_said_and_what_was_changed(tmp_path: Path) -> None:
    transcript = tmp_path / "talk.jsonl"
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a thousand lines", "is_error": True}
    shown = "<system-reminder>It is Monday.</system-reminder>"
    write(
        transcript,
        {"type": "summary", "summary": "x"},
        line("user", "Mend the login.", 1, promptSource="typed"),
        line("user", "a caveat", 2, isMeta=True),
        line("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."}], 3),
        line("assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make test\nls"}}], 4),
        line("user", [result], 5),
        line("assistant", [{"type": "tool_use", "id": "t2", "name": "Edit",
                            "input": {"file_path": "/work/notes/login.py", "old_string": "a", "new_string": "b"}}], 6),
        line("user", "to a helper", 7, isSidechain=True),
        {**line("user", "", 8), "type": "attachment",
         "attachment": {"type": "queued_command", "prompt": "Use tabs.", "origin": {"kind": "human"}}},
        line("assistant", [{"type": "text", "text": "Mended."}], 9, stop_reason="end_turn"),
        line("user", "<command-name>/clear</command-name>", 10),
        line("user", "<task-notification>done</task-notification>", 11, promptSource="system"),
        line("assistant", "It is done.", 12, stop_reason="end_turn"),
        line("user", [{"type": "text", "text": shown}, {"type": "text", "text": "Thanks \ud800!"}], 13),
    )  # fmt: skip
    with transcript.open("a", encoding="utf-8") as file:
        file.write('not json\n{"type": "user", "message": {"content": "half a li')
    assert said(transcript) == [
        ("user", "Mend the login."),
        ("assistant", "I look."),
        ("user", "Use tabs."),
        ("assistant", "Mended."),
        ("assistant", "Edited login.py. Ran `make test` (failed)."),
        ("assistant", "It is done."),
        ("user", "Thanks ?!"),
    ]
    assert said(transcript, since="2026-01-02T03:04:12") == [("assistant", "It is done."), ("user", "Thanks ?!")]


def test_what_was_said_while_memory_was_away_waits_in_its_transcript_and_is_sent_later(
    home: Path, tmp_path: Path
) -> None:
    hook = installed(tmp_path / "plugin", tmp_path / "nowhere")
    transcript = tmp_path / "talk.jsonl"
    write(transcript, line("user", "I keep herons."), line("assistant", "Noted.", 1, stop_reason="end_turn"))
    hook.run("end", event("SessionEnd", "away", transcript_path=str(transcript)))
    assert b"herons" not in b"".join(path.read_bytes() for path in hook.folder.rglob("*") if path.is_file())
    back = Hook(hook.folder, (f"home={home}", "timeout_s=30"))
    assert back.run("waiting", event("SessionStart", "later", source="startup")) == {}
    assert back.state("away")["offset"] == transcript.stat().st_size
    with served_memos(back) as memos:
        assert "I keep herons." in {item.memory for item in memos.memories.list(limit=100)}


def test_what_can_never_be_stored_is_said_and_holds_up_nothing(hook: Hook, tmp_path: Path) -> None:
    transcript = tmp_path / "talk.jsonl"
    stop = event("Stop", "bad", transcript_path=str(transcript))
    write(transcript, line("user", "I keep owls.", 1), line("assistant", "Noted.", 2, stop_reason="end_turn"))
    hook.run("stop", stop)
    # The same id with another text is a conflict.
    write(transcript, line("user", "I keep eagles.", 1), line("assistant", "Good.", 3, stop_reason="end_turn"))
    assert "1 messages were refused" in hook.run("stop", stop)["systemMessage"]
    assert hook.state("bad")["offset"] == transcript.stat().st_size
    with served_memos(hook) as memos:
        stored = {item.memory for item in memos.memories.list(filter={"conversation": "claude-code/bad"})}
    assert stored == {"I keep owls.", "Noted.", "Good."}


def test_a_transcript_that_cannot_be_read_holds_up_no_other_and_is_named(hook: Hook, tmp_path: Path) -> None:
    transcript = tmp_path / "talk.jsonl"
    write(transcript, line("user", "I keep newts."), line("assistant", "Noted.", 1, stop_reason="end_turn"))
    (hook.folder / "state").mkdir()
    for name, path in (("folder", tmp_path), ("readable", transcript)):
        told = json.dumps({"transcript": str(path), "offset": 0, "since": ""})
        (hook.folder / "state" / f"{name}.json").write_text(told, encoding="utf-8")
    printed = hook.run("waiting", event("SessionStart", "now", source="startup"))
    assert "IsADirectoryError" in printed["systemMessage"]
    assert hook.state("readable")["offset"] == transcript.stat().st_size


def test_a_transcript_that_was_deleted_before_it_was_stored_is_named(tmp_path: Path) -> None:
    hook = installed(tmp_path / "plugin", tmp_path / "nowhere")
    transcript = tmp_path / "talk.jsonl"
    write(transcript, line("user", "I keep herons."), line("assistant", "Noted.", 1, stop_reason="end_turn"))
    hook.run("end", event("SessionEnd", "lost", transcript_path=str(transcript)))
    transcript.unlink()
    state = hook.folder / "state" / "lost.json"
    os.utime(state, (0, 0))
    printed = hook.run("start", event("SessionStart", "next", source="startup"))
    assert "1 transcripts were deleted before they could be stored. memory is away" in printed["systemMessage"]
    assert not state.exists()


def test_that_a_transcript_was_deleted_is_said_beside_what_the_server_answers(hook: Hook, tmp_path: Path) -> None:
    state = hook.folder / "state" / "lost.json"
    state.parent.mkdir()
    told = {"transcript": str(tmp_path / "gone.jsonl"), "offset": 1, "size": 9, "since": ""}
    state.write_text(json.dumps(told), encoding="utf-8")
    os.utime(state, (0, 0))
    printed = hook.run("start", event("SessionStart", "next", source="startup"))
    assert printed["systemMessage"] == "hippocube: 1 transcripts were deleted before they could be stored."


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://user:token@GitHub.com/Ana/Notes.git", "github.com/ana/notes"),
        ("git@github.com:ana/notes", "github.com/ana/notes"),
        ("ssh://git@github.com:22/ana/notes.git/", "github.com/ana/notes"),
        ("https://example.com/a/b/c", "example.com/a/b/c"),
    ],
)
def test_a_project_is_named_by_its_remote_without_credentials(tmp_path: Path, remote: str, name: str) -> None:
    repository(tmp_path / "notes", remote)
    inside = tmp_path / "notes" / "src" / "deep"
    inside.mkdir(parents=True)
    assert project_of(str(inside)) == name
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
        cwd=tmp_path / "notes", check=True,
    )  # fmt: skip
    subprocess.run(["git", "worktree", "add", "-q", str(tmp_path / "tree")], cwd=tmp_path / "notes", check=True)
    assert project_of(str(tmp_path / "tree")) == name


def test_a_project_without_a_remote_elsewhere_is_named_by_its_path(tmp_path: Path) -> None:
    for folder, remote in (("a", None), ("b", str(tmp_path / "bare")), ("c", "file:///srv/notes.git")):
        repository(tmp_path / folder, remote)
    (tmp_path / "plain").mkdir()
    names = {folder: project_of(str(tmp_path / folder)) for folder in ("a", "b", "c", "plain")}
    assert all(name.startswith(f"local/{folder}-") for folder, name in names.items())
    assert len(set(names.values())) == len(names)


def repository(folder: Path, remote: str | None) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    if remote is not None:
        subprocess.run(["git", "remote", "add", "other", "https://x.example/y"], cwd=folder, check=True)
        subprocess.run(["git", "remote", "add", "origin", remote], cwd=folder, check=True)
