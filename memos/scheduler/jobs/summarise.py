"""Has a model rewrite a segment's summary after it grew; without one, its own sentences are the summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from memos.core.types import UNUSED, Item
from memos.llm.client import Asker
from memos.memcube import changes
from memos.memcube.ledger import segments as tiers
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.prompting import meter_of, plain, question
from memos.scheduler.task import Run

PROMPT = "summary-1"
_SHOWN_MESSAGES = 48
_SHOWN_CHARS = 600


class Told(BaseModel):
    """A model's summary of a segment."""

    summary: str = Field(min_length=1, max_length=1_000)


@dataclass(frozen=True, slots=True)
class SummariseJob:
    """At most one call a task; one task a segment waits at a time."""

    asker: Callable[[], Asker | None]

    def run(self, run: Run) -> None:
        """Rewrite the summary of the segment that the task names. Raises: ModelError, BackendUnavailable."""
        asker, segment_id = self.asker(), str(run.task.payload["segment"])
        with run.ledger.read() as connection:
            segment = tiers.get_segments(connection, [segment_id]).get(segment_id)
            members = [] if segment is None else tiers.members(connection, segment_id)
        said = [message for message in members if message.status not in UNUSED]
        if asker is None or segment is None or not said or segment.told_pages >= segment.pages:
            return
        run.check_budget()
        lines = [f"summary so far: {plain(segment.told or '', _SHOWN_CHARS)}", *map(_line, said[-_SHOWN_MESSAGES:])]
        answer = asker.ask(question(PROMPT, lines), Told, meter=meter_of(run, "chat"))
        with run.finishing() as connection:
            changes.begin(connection, run.task.cube, ACTOR, run.clock)
            now = tiers.get_segments(connection, [segment_id]).get(segment_id)
            # What was erased or changed meanwhile may be in the answer; its remaking asks again.
            if now is not None and _states(tiers.members(connection, segment_id)) == _states(members):
                now.told, now.told_pages = answer.summary.strip() or None, segment.pages
                tiers.save(connection, [now], [segment_id])


def _states(members: Sequence[Item]) -> list[str]:
    return [message.version_id for message in members]


def _line(message: Item) -> str:
    at = message.said_at or message.created_at
    return f"{at:%F} {plain(message.speaker, 80)}: {plain(message.memory, _SHOWN_CHARS)}"
