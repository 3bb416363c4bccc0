"""Transcripts keep the items of a session as they are, in order, for their user alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memos.errors import BackendUnavailable
from memos.integrations import AgentMemory, Owner
from memos.integrations.transcript import Transcript

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "Hé «look» at \u2028 this: 花"}], "z": 1, "a": None},
    {"type": "function_call", "name": "look", "arguments": '{"n": 1.50}', "call_id": "c1", "nested": [[1, 2.5, True]]},
    {"type": "function_call_output", "call_id": "c1", "output": "line\n" * 40_000},
    {"type": "message", "role": "assistant", "content": [{"type": "image", "url": "data:" + "QUJD" * 60_000}, {}]},
    {},
]


class Driven:
    """A transcript, called as if its coroutines blocked."""

    def __init__(self, transcript: Transcript, runner: asyncio.Runner | None) -> None:
        self._transcript, self._runner = transcript, runner

    def __getattr__(self, name: str) -> Any:
        if self._runner is None:
            return getattr(self._transcript, name)
        coroutine, runner = getattr(self._transcript, f"a{name}"), self._runner
        return lambda *given: runner.run(coroutine(*given))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_items_come_back_as_they_were_given_and_in_order(memory: AgentMemory, user: str, asynchronous: bool) -> None:
    with asyncio.Runner() as runner:
        transcript = Driven(Transcript(memory, Owner(user, "s/1 é")), runner if asynchronous else None)
        assert transcript.items() == []
        assert transcript.pop() is None
        transcript.append(ITEMS[:2])
        transcript.append(ITEMS[2:])
        found = transcript.items()
        assert found == ITEMS
        assert [list(item) for item in found] == [list(item) for item in ITEMS]
        assert transcript.items(2) == ITEMS[3:]
        assert transcript.items(0) == []
        assert transcript.pop() == {}
        assert transcript.pop() == ITEMS[3]
        assert transcript.items() == ITEMS[:3]
        transcript.append([ITEMS[4]])
        assert transcript.items() == [*ITEMS[:3], {}]
        transcript.clear()
        assert transcript.items() == []
    assert memory.failures == 0


def test_a_session_is_its_users_and_no_search_finds_it(memory: AgentMemory, user: str) -> None:
    Transcript(memory, Owner(user, "s")).append([{"role": "user", "content": "My parrot is called Hugo."}])
    assert Transcript(memory, Owner(f"not {user}", "s")).items() == []
    assert Transcript(memory, Owner(user, "another")).items() == []
    assert memory.recall("What is my parrot called?", Owner(user)).hits == ()


def test_a_long_session_is_read_in_pages(memory: AgentMemory, user: str) -> None:
    transcript = Transcript(memory, Owner(user, "s"))
    transcript.append([{"n": n} for n in range(1_050)])
    assert [item["n"] for item in transcript.items()] == list(range(1_050))
    assert memory.forget(Owner(user, "s")) == 1_050
    assert transcript.items() == []


def test_without_memory_a_history_is_empty_and_the_program_can_tell(away: AgentMemory) -> None:
    transcript = Transcript(away, Owner("ana", "s"))
    assert transcript.items() == []
    transcript.append(ITEMS)
    assert away.failures == 2
    with pytest.raises(BackendUnavailable):
        transcript.clear()
