"""What Claude Code wrote down of its sessions, read from where the last reading ended, and sent to be stored.

Nothing that was said is copied: `state/SESSION.json` says how far a transcript is stored, and moves on when the server
has acknowledged. What cannot be sent waits in the transcript itself, and the next hook that reaches a server sends it.
Each message has the id of its line, by which the server stores nothing twice. Copied beside `hook.py`, so it imports
nothing of hippocube.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

PATH = "/hooks/claude-code/messages"
STATE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "state")

_MOST_SESSIONS = 500
_KEPT_S = 30 * 24 * 3600
_IDLE_S = 600
"""A session without a new line for so long is not in the middle of an answer."""
_BATCH = 50
_MOST_CHARS = 16_000
_MOST_DONE = 20
_COMMAND_CHARS = 120

# What Claude Code writes in the place of a person's words.
_NOT_SAID = ("<command-", "<local-command", "<bash-", "<task-notification", "[Request interrupted")
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
_APART = ("isSidechain", "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage", "isVirtual")
_EDITING = {"Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
_REFUSED_FOR_GOOD = (400, 409, 413, 422)

Json = dict[str, Any]


def register(body: bytes) -> str:
    """Note that a session began, so that what is said in it is stored even if its later hooks fail.

    Returns:
        What to tell the user first, or nothing.
    """
    _known(json.loads(body))
    lost = _tidy()
    return f"{lost} transcripts were deleted before they could be stored. " if lost else ""


def store(connect: Callable[[], Any], body: bytes, *, ended: bool, within_s: float) -> str:
    """Send what is new of this session, then of others.

    Args:
        connect: Returns a connection to the server.
        body: The event.
        ended: The last answer of this session is complete.
        within_s: The time after which no other turn is begun.

    Returns:
        What to tell the user, or nothing.
    """
    event = json.loads(body)
    until = time.monotonic() + within_s
    own = _known(event)
    server: Any = None
    refused, told = 0, ""
    for path in [own, *(each for each in _states() if each != own)]:
        state = _load(path)
        if state is None or not _has_more(state):
            continue
        try:
            server = server or connect()
            complete = ended if path == own else _age(state["transcript"]) > _IDLE_S
            refused += _send(server, path, state, ended=complete, until=until)
        except Exception as error:  # noqa: BLE001 - `Away` and `Refused` of the module that imports this one, and bugs
            state["size"] = _size(state["transcript"])
            _save(path, state)
            if type(error).__name__ == "Away":
                return ""  # that was said with the prompt
            told = f"what was said is not stored yet ({type(error).__name__}: {error}); it will be sent again."
            if type(error).__name__ == "Refused":
                return told
        if time.monotonic() > until:
            break
    return f"{refused} messages were refused by the server and are not stored. {told}".strip() if refused else told


def unsent() -> int:
    """Return how many sessions have something that is not stored yet."""
    states = [state for path in _states() if (state := _load(path)) is not None and _has_more(state)]
    return sum(
        any(turn.messages() for turn in turns(state["transcript"], state["offset"], state["since"])) for state in states
    )


# Sending


def _send(server: Any, path: str, state: Json, *, ended: bool, until: float) -> int:
    """Send the complete turns of a transcript and save how far it is stored; return how many messages were refused."""
    refused = 0
    for turn in turns(state["transcript"], state["offset"], state["since"]):
        if not (turn.complete or ended):
            break
        messages = turn.messages()
        for first in range(0, len(messages), _BATCH):
            refused += _post(server, path, messages[first : first + _BATCH])
        state["offset"] = turn.end
        _save(path, state)
        if time.monotonic() > until:
            break
    return refused


def _post(server: Any, path: str, messages: list[Json]) -> int:
    session = os.path.basename(path).removesuffix(".json")
    try:
        server.post(PATH, json.dumps({"session": session, "messages": messages}).encode())
    except Exception as error:
        if getattr(error, "status", None) not in _REFUSED_FOR_GOOD:
            raise
        # One of them is at fault: the others are stored.
        return 1 if len(messages) == 1 else sum(_post(server, path, [each]) for each in messages)
    return 0


# Reading


class Turn:
    """A prompt and the answer to it: what both said, and what was changed on the way."""

    def __init__(self, id_: str) -> None:
        self.end = 0
        self.complete = False
        self._id = id_
        self._at = ""
        self._said: list[Json] = []
        self._edited: dict[str, None] = {}
        self._ran: dict[str, str] = {}
        self._failed: set[str] = set()

    def messages(self) -> list[Json]:
        """Return the messages to store; of tools one that names changed files and commands, without any output."""
        ran = {f"`{command}`{' (failed)' if id_ in self._failed else ''}": None for id_, command in self._ran.items()}
        done = [f"{verb} {_listed(names)}." for verb, names in (("Edited", self._edited), ("Ran", ran)) if names]
        last = [_message("assistant", " ".join(done), f"{self._id}-done", self._at)] if done else []
        return [*self._said, *last]

    def add(self, entry: Json) -> None:
        """Take a line of the transcript."""
        self._at = str(entry.get("timestamp") or self._at)
        texts = []
        for block in _blocks(entry):
            kind = block.get("type")
            if kind == "text":
                texts.append(_REMINDER.sub("", str(block.get("text", ""))).strip())
            elif kind == "tool_use":
                self._use(block, str(entry.get("cwd") or ""))
            elif kind == "tool_result" and block.get("is_error"):
                self._failed.add(str(block.get("tool_use_id")))
        text = "\n\n".join(each for each in texts if each)
        role = entry["type"]
        if text and not (role == "user" and text.startswith(_NOT_SAID)):
            self._said.append(_message(role, text, entry["uuid"], self._at))
        if role == "assistant":
            self.complete = entry["message"].get("stop_reason") not in (None, "tool_use", "pause_turn")

    def _use(self, block: Json, folder: str) -> None:
        name, given = block.get("name"), block.get("input")
        given = given if isinstance(given, dict) else {}
        if name in _EDITING and given.get(_EDITING[name]):
            self._edited[str(given[_EDITING[name]]).removeprefix(folder.rstrip("/") + "/")] = None
        elif name == "Bash" and str(given.get("command", "")).strip():
            line = str(given["command"]).strip().splitlines()[0]
            self._ran[str(block.get("id"))] = line if len(line) <= _COMMAND_CHARS else line[:_COMMAND_CHARS] + "…"


def turns(transcript: str, offset: int, since: str) -> Iterator[Turn]:
    """Yield the turns of a transcript from an offset on, without lines before `since`; the last may be incomplete.

    The end of the last one is that of the transcript.
    """
    turn = None
    place = offset
    with open(transcript, "rb") as file:
        file.seek(offset)
        for raw in file:
            if not raw.endswith(b"\n"):
                break  # is being written
            start, place = place, place + len(raw)
            entry = _entry(raw)
            if entry is None or str(entry.get("timestamp") or "") < since:
                continue
            prompt = entry["type"] == "user" and not entry.get("midway") and not _is_result(entry)
            if turn is None or prompt:
                if turn is not None:
                    turn.end, turn.complete = start, True
                    yield turn
                turn = Turn(entry["uuid"])
            if not prompt or _is_person(entry):
                turn.add(entry)
    if turn is None:  # nobody said anything
        turn = Turn("")
        turn.complete = True
    turn.end = place
    yield turn


def _entry(raw: bytes) -> Json | None:
    """Return a line of the main conversation that was said or that a tool answered, None for any other."""
    try:
        entry = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(entry, dict) or any(entry.get(name) for name in _APART):
        return None
    queued = entry.get("attachment")
    if entry.get("type") == "attachment" and isinstance(queued, dict) and queued.get("type") == "queued_command":
        # Typed while Claude was working; it is part of the turn.
        if queued.get("isMeta") or queued.get("forwardedIntent") or not _is_person(queued):
            return None
        entry = {**entry, "type": "user", "midway": True, "message": {"content": queued.get("prompt")}}
    if entry.get("type") not in ("user", "assistant") or not isinstance(entry.get("uuid"), str):
        return None
    message = entry.get("message")
    return entry if isinstance(message, dict) and message.get("model") != "<synthetic>" else None


def _blocks(entry: Json) -> list[Json]:
    content = entry["message"].get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _is_result(entry: Json) -> bool:
    return any(block.get("type") == "tool_result" for block in _blocks(entry))


def _is_person(entry: Json) -> bool:
    origin = entry.get("origin")
    return entry.get("promptSource") != "system" and (not isinstance(origin, dict) or origin.get("kind") == "human")


def _message(role: str, text: str, id_: str, at: str) -> Json:
    cut = text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + " … [cut]"
    # Half of a pair of characters, as broken JSON may have one, cannot be stored.
    said = {"role": role, "content": cut.encode("utf-8", "replace").decode(), "message_id": id_}
    return said | ({"chat_time": at} if at else {})


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    shown = every[:_MOST_DONE]
    return ", ".join(shown) + (f" and {len(every) - len(shown)} more" if len(every) > len(shown) else "")


# How far each session is stored


def _known(event: Json) -> str:
    """Return the path of a session's state, which is made when new."""
    path = _state_path(event["session_id"])
    if not os.path.exists(path):
        # What a resumed or forked session said before is in another transcript, or from before the installation.
        copied = event.get("source") in ("resume", "fork")
        since = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()) if copied else ""
        _save(path, {"transcript": event["transcript_path"], "offset": 0, "since": since})
    return path


def _state_path(session: str) -> str:
    return os.path.join(STATE, re.sub(r"[^\w-]", "_", str(session))[:100] + ".json")


def _states() -> list[str]:
    """Return the paths of the states, the newest first."""
    try:
        names = os.listdir(STATE)
    except OSError:
        return []
    return sorted((os.path.join(STATE, name) for name in names if name.endswith(".json")), key=_age)


def _age(path: str) -> float:
    try:
        return time.time() - os.path.getmtime(path)
    except OSError:
        return 0.0


def _load(path: str) -> Json | None:
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and {"transcript", "offset", "since"} <= state.keys() else None


def _save(path: str, state: Json) -> None:
    os.makedirs(STATE, mode=0o700, exist_ok=True)
    beside = f"{path}.{os.getpid()}"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(beside, path)


def _has_more(state: Json) -> bool:
    return _size(state["transcript"]) > int(state["offset"])


def _size(path: str) -> int:
    """Return the size of a file, 0 if there is none."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _tidy() -> int:
    """Forget sessions that are stored or whose transcript is gone; return how many of them were not stored."""
    lost = 0
    for number, path in enumerate(_states()):
        state = _load(path)
        there = state is not None and os.path.exists(state["transcript"])
        waits = state is not None and _has_more(state)
        gone = state is not None and not there and state.get("size", 0) > state["offset"]
        old = _age(path)
        if (not there and old > _IDLE_S) or (not waits and old > _KEPT_S) or number >= _MOST_SESSIONS:
            lost += gone or waits
            with suppress(OSError):  # another session began at the same time
                os.unlink(path)
    return lost
