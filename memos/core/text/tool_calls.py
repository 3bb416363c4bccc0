"""Pair tool calls with their results, and render, count and compare them.

A `Turn` is one message of a conversation as far as its tools are concerned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from memos.core.types import Item, Json, Role, ToolCall

LOOKED_CHARS = 4_000
_OUTCOME_CHARS = 200
_TYPE_CHARS = 60
_FAILED = re.compile(
    r"^\W*(?:\w+(?:Error|Exception)\b|error|exception|traceback|failed|failure|fatal|invalid|timed? ?out|"
    r"permission denied|access denied|(?:http )?[45]\d\d\b)",
    re.IGNORECASE,
)
# An outcome with one of these words may be either.
_DOUBTFUL = re.compile(
    r"error|exception|fail|invalid|denied|time(?:d )?out|not found|no results|unable|could not", re.IGNORECASE
)
_NAMED = re.compile(r"\b([A-Z]\w{0,50}(?:Error|Exception))\b")
_SORTS = (
    ("timeout", re.compile(r"tim(?:ed|e)[ -]?out", re.IGNORECASE)),
    ("permission", re.compile(r"(?:permission|access) denied|forbidden|unauthori[sz]ed", re.IGNORECASE)),
    ("not found", re.compile(r"not found|no such", re.IGNORECASE)),
    ("invalid", re.compile(r"invalid", re.IGNORECASE)),
)
_HTTP = re.compile(r"^\W*(?:error\W+)?(?:http )?([45]\d\d)\b", re.IGNORECASE)


def call_succeeded(outcome: str) -> bool | None:
    head = outcome[:LOOKED_CHARS].strip()
    if len(outcome) <= LOOKED_CHARS and head[:1] in "{[" and (told := _told(head)) is not None:
        return told
    if _FAILED.search(head):
        return False
    if not head or head in ("[]", "{}", "null", "None", "false") or _DOUBTFUL.search(head[:_OUTCOME_CHARS]):
        return None
    return True


def error_type(outcome: str) -> str:
    """Return the kind of error an answer reports, in a word or two; `error` if unclear."""
    head = outcome[:LOOKED_CHARS].strip()
    answer = _object(head)
    if answer is not None:
        error = answer.get("error")
        for held in (error, answer):
            for name in ("type", "error_type", "code"):
                told = held.get(name) if isinstance(held, dict) else None
                if isinstance(told, str | int) and not isinstance(told, bool) and (sort := _printable(told)):
                    return sort
    named = _NAMED.findall(head)
    if named:
        return str(named[-1])  # a traceback ends with it
    if status := _HTTP.search(head):
        return f"http {status.group(1)}"
    return next((sort for sort, pattern in _SORTS if pattern.search(head)), "error")


def _printable(told: str | int) -> str:
    # JSON may spell out what no store can keep: a NUL, half of a character.
    return "".join(char for char in str(told)[:_TYPE_CHARS] if char.isprintable()).strip()


def _told(text: str) -> bool | None:
    answer = _object(text)
    if answer is None:
        return None
    status = str(answer.get("status", "")).casefold()
    if answer.get("error") or answer.get("errors") or answer.get("is_error") is True or status in ("error", "failed"):
        return False
    said = (answer.get("ok"), answer.get("success"))
    if any(each is False for each in said):
        return False
    return True if any(each is True for each in said) or status in ("ok", "success") else None


def _object(text: str) -> dict[str, Json] | None:
    try:
        answer: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


_VALUE_CHARS = 80
_CALL_CHARS = 300
_RESULT_CHARS = 300
_KEPT_CHARS = 1_000
_LESSON_CHARS = 180
_LONGEST_CALL = timedelta(hours=1)

INFO = (
    "tool", "arguments", "result", "error", "error_type", "ok", "duration_s", "calls", "successes", "failures",
    "success_rate", "lesson", "last_used", "earlier",
)  # fmt: skip
"""Keys that a trajectory sets in its item's `info`; other keys there are the user's own."""


@dataclass(frozen=True, slots=True)
class Turn:
    item: str
    conversation: str
    position: int
    page: int
    role: Role
    calls: tuple[ToolCall, ...]
    answers: str | None


@dataclass(slots=True)
class Pair:
    turn: Turn
    place: int
    answers: list[Turn] = field(default_factory=list)

    @property
    def call(self) -> ToolCall:
        return self.turn.calls[self.place]


@dataclass(frozen=True, slots=True)
class Run:
    pair: Pair
    call: Item
    outcome: Item
    answers: tuple[Item, ...]

    @property
    def tool(self) -> str:
        return self.pair.call.name

    @property
    def ok(self) -> bool | None:
        return call_succeeded(self.outcome.memory)

    @property
    def place(self) -> tuple[str, int, int]:
        return self.pair.turn.conversation, self.pair.turn.position, self.pair.place


def pairs(turns: Iterable[Turn]) -> list[Pair]:
    """Return assistants' calls with their answers, in order, answered or not."""
    # An answer belongs to the nearest earlier call with its id, or else to the next one; a second answer counts only if
    # no other call is in between.
    found: list[Pair] = []
    by_talk: dict[str, list[Turn]] = {}
    for turn in turns:
        by_talk.setdefault(turn.conversation, []).append(turn)
    for talk in by_talk.values():
        found += _of_talk(sorted(talk, key=lambda turn: turn.position))
    return found


def _of_talk(talk: Sequence[Turn]) -> list[Pair]:
    found: list[Pair] = []
    latest: dict[str, list[Pair]] = {}
    early: dict[str, list[Turn]] = {}
    last: Turn | None = None
    for turn in talk:
        if turn.calls and turn.role is Role.ASSISTANT:
            last = turn
            mine = [Pair(turn, place) for place in range(len(turn.calls))]
            found += mine
            for id_ in dict.fromkeys(call.id for call in turn.calls):
                latest[id_] = [pair for pair in mine if pair.call.id == id_]
                for answer in early.pop(id_, ()):
                    _answer(latest[id_], answer)
        elif turn.role is Role.TOOL and (answered := _answered(turn, last)) is not None:
            asked = latest.get(answered)
            if asked is None:
                early.setdefault(answered, []).append(turn)
            elif not asked[-1].answers or asked[-1].turn is last:
                _answer(asked, turn)
    return found


def _answered(turn: Turn, last: Turn | None) -> str | None:
    if turn.answers is not None:
        return turn.answers
    just_before = last is not None and len(last.calls) == 1 and turn.position == last.position + 1
    return last.calls[0].id if last is not None and just_before else None


def _answer(asked: Sequence[Pair], answer: Turn) -> None:
    next((pair for pair in asked if not pair.answers), asked[-1]).answers.append(answer)


def runs(found: Iterable[Pair], states: Mapping[str, Item], usable: frozenset[str]) -> list[Run]:
    """Return calls whose messages are unchanged, with the remaining answers; both must be `usable`."""
    done = []
    for pair in found:
        answers = tuple(states[turn.item] for turn in pair.answers if turn.item in usable)
        if answers and pair.turn.item in usable:
            done.append(Run(pair, states[pair.turn.item], answers[-1], answers))
    return done


def lessons(done: Iterable[Run]) -> list[tuple[Run, Run]]:
    """Return (failed, worked) where a tool worked with other arguments after its last call in the page failed."""
    found = []
    failed: dict[tuple[str, int, str], Run] = {}
    for run in sorted(done, key=lambda run: run.place):
        here = (run.pair.turn.conversation, run.pair.turn.page, run.tool)
        ok = run.ok
        if ok is False:
            failed[here] = run
        elif ok and here in failed:
            before = failed.pop(here)
            # Calls of one message know nothing of each other.
            if before.call.id != run.call.id and canonical(before) != canonical(run):
                found.append((before, run))
    return found


def canonical(run: Run) -> str:
    return normalised(run.pair.call.arguments)


def normalised(arguments: str) -> str:
    value = decoded(arguments)
    return arguments.strip() if value is None else normalised_value(value)


def normalised_value(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def decoded(arguments: str) -> Json:
    if not arguments.strip():
        return {}
    try:
        value: Json = json.loads(arguments)
        text = json.dumps(value, ensure_ascii=False)
        text.encode()  # half a character may be spelt out in JSON, a NUL too
    except (ValueError, RecursionError):
        return None
    return None if "\\u0000" in text else value


def written(call: ToolCall) -> str:
    return f"{call.name}({call.arguments})"


def span_of(text: str, calls: Sequence[ToolCall], place: int) -> tuple[int, int]:
    """Return the characters of a message that make one of its calls; all of it if written otherwise."""
    pieces = [written(call) for call in calls]
    start = len(text) - len("\n".join(pieces))
    if start < 0 or not text.endswith("\n".join(pieces)):
        return 0, len(text)
    start += sum(len(piece) + 1 for piece in pieces[:place])
    return start, start + len(pieces[place])


def shown_call(tool: str, arguments: str) -> str:
    value = decoded(arguments)
    if isinstance(value, dict):
        told = ", ".join(f"{truncated(str(name), _VALUE_CHARS)}={_value(inner)}" for name, inner in value.items())
    else:
        told = _line(arguments)
    return f"{tool}({truncated(told, _CALL_CHARS)})"


def _value(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return truncated(_line(text), _VALUE_CHARS)


def told(run: Run) -> str:
    call = shown_call(run.tool, run.pair.call.arguments)
    result = truncated(_line(run.outcome.memory[: 4 * _KEPT_CHARS]), _RESULT_CHARS)
    return f"{call} failed: {result}" if run.ok is False else f"{call} → {result}"


def lesson_of(failed: Run, right: Run) -> str:
    before, after = (truncated(_line(canonical(run)), _LESSON_CHARS) for run in (failed, right))
    return f"{right.tool}: {after} worked after {before} failed."


def info_of(own: Sequence[Run], lesson: str | None, earlier: tuple[int, int, int]) -> dict[str, Json]:
    """Return the `info` of the runs of one call; `earlier` counts those before them."""
    last = own[-1]
    calls, successes, failures = (mine + before for mine, before in zip(counted(own), earlier, strict=True))
    info: dict[str, Json] = {
        "tool": last.tool,
        "arguments": truncated(canonical(last), _KEPT_CHARS),
        "result": truncated(last.outcome.memory.strip(), _KEPT_CHARS),
        "calls": calls,
        "successes": successes,
        "failures": failures,
        "last_used": at_of(last).isoformat(),
    }
    if last.ok is not None:
        info["ok"] = last.ok
    if last.ok is False:
        info["error"] = truncated(_line(last.outcome.memory[: 4 * _KEPT_CHARS]), _RESULT_CHARS)
        info["error_type"] = error_type(last.outcome.memory)
    if (seconds := duration_s(last)) is not None:
        info["duration_s"] = seconds
    if successes + failures:
        info["success_rate"] = round(successes / (successes + failures), 3)
    if lesson is not None:
        info["lesson"] = lesson
    if earlier[0]:
        info["earlier"] = list(earlier)
    return info


def counted(own: Iterable[Run]) -> tuple[int, int, int]:
    told = [run.ok for run in own]
    return len(told), told.count(True), told.count(False)


def at_of(run: Run) -> datetime:
    return run.call.said_at or run.call.created_at


def duration_s(run: Run) -> float | None:
    given = run.outcome.info.get("duration_s")
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return float(given)
    if run.call.said_at is None or run.outcome.said_at is None:
        return None
    took = run.outcome.said_at - run.call.said_at
    return round(took.total_seconds(), 3) if timedelta(0) < took <= _LONGEST_CALL else None


def _line(text: str) -> str:
    return " ".join(text.split())


def truncated(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
