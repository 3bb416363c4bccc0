"""What fine reading leaves of stories in which something changes: facts and traits, and how many are out of date.

Each story of `--lives FILE` is a cube of its own whose messages are added one by one and read finely, by pattern and,
with `--with-model`, by the configured model, which then judges relations, too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.data import BadData
from benchmarks.lifecycle import Story, load
from benchmarks.report import Report, figures_table, positive, progress
from benchmarks.stores import installation
from memos import MemOS
from memos.backends.openai.chat import OpenAIChat
from memos.core.ports import ChatReply, ChatRequest
from memos.core.settings import ChatSettings, ModelSettings, Settings
from memos.core.types import DERIVED, ItemType
from memos.reader.facts.extractor import KNOWN, WRITTEN

_SETTLE_S = 1800.0
_SHOWN = (
    "messages",
    "facts",
    "traits",
    "now known",
    "stale facts",
    "stale traits",
    "calls a message",
    "tokens a message",
)
_FACTS = sorted(str(kind) for kind in DERIVED - {ItemType.PROFILE, ItemType.SUMMARY})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the part `profile` takes."""
    parser.add_argument("--lives", type=Path, metavar="FILE", help="stories in which something changes, for `profile`")
    parser.add_argument("--stories", type=positive, metavar="N", help="only N of them, evenly taken")


def measure(arguments: argparse.Namespace) -> Report:
    """Read every story and compare facts and traits with what is asked about now. Raises: BadData without a file."""
    if arguments.lives is None:
        raise BadData(Path("--lives"), "is missing: the part profile needs the path of a file of stories")
    stories = [story for story in load(arguments.lives) if story.feedback is None]
    step = max(1, len(stories) // (arguments.stories or len(stories)))
    stories = stories[::step][: arguments.stories]
    rows = {"patterns": _read(stories, None)}
    if arguments.with_model:
        settings = Settings().model_for("reader")
        if settings is None:
            raise BadData(Path("MEMOS_CHAT_MODEL__BASE_URL"), "is not set: there is no model to ask")
        with closing(_CountedChat(settings)) as model:
            rows[model.name] = _read(stories, model)
    table = figures_table(f"Facts and traits of {len(stories)} stories", _SHOWN, rows)
    return Report({"n": len(stories), "profile": rows}, tables=[table])


class _CountedChat(OpenAIChat):
    """A chat model that counts what reading costs, without examinations and without the judge of relations."""

    def __init__(self, settings: ChatSettings) -> None:
        super().__init__(settings)
        self.calls = self.tokens = 0

    def complete(self, request: ChatRequest) -> ChatReply:
        reply = super().complete(request)
        if not _is_examination(request) and "Yes" not in request.words:
            self.calls += 1
            self.tokens += reply.tokens.prompt + reply.tokens.completion
        return reply


def _is_examination(request: ChatRequest) -> bool:
    asked = [message.content for message in request.messages]
    sentence = asked[-1].removeprefix("Sentence: ")
    return sentence in dict(KNOWN) or any(all(text in content for text, _ in WRITTEN) for content in asked)


def _read(stories: Sequence[Story], model: _CountedChat | None) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    without = Settings().model_copy(update={"chat_model": ChatSettings(), "reader_model": ModelSettings()})
    with installation(without, chat_model=model) as memos:
        for story in progress(stories, "reading"):
            _tell(memos, story)
            counts += _compared(memos, story)
    calls, tokens = (0, 0) if model is None else (model.calls, model.tokens)
    return {
        "messages": counts["messages"],
        "facts": counts["facts"],
        "traits": counts["traits"],
        "now known": counts["known"] / max(1, counts["asked"]),
        "stale facts": counts["stale facts"],
        "stale traits": counts["stale traits"],
        "calls a message": round(calls / counts["messages"], 2),
        "tokens a message": round(tokens / counts["messages"]),
    }


def _tell(memos: MemOS, story: Story) -> None:
    memos.cubes.create(story.id)
    for turn in story.turns:
        message = {"role": turn.role, "name": turn.speaker, "content": turn.text, "chat_time": turn.at.isoformat()}
        memos.add(message, cube=story.id, conversation=turn.conversation, mode="fine")
    memos.tasks.wait(cubes=[story.id], timeout_s=_SETTLE_S)


def _compared(memos: MemOS, story: Story) -> Counter[str]:
    """Count facts and traits, and of those the ones that rest on replaced statements alone."""
    stale = {story.turns[turn].text for question in story.questions for turn in question.stale_turns}
    facts = [
        [source.passage for source in memos.get(item.id).sources]
        for item in memos.memories.list(cube=story.id, filter={"type": {"in": _FACTS}}, limit=1_000)
        if item.valid_to is None
    ]
    traits = [
        [evidence.passage for evidence in trait.evidence]
        for subject in memos.profiles.subjects(story.id)
        for trait in memos.profiles.get(story.id, subject).traits
    ]
    now = [question.want for question in story.questions if question.about == "now" and question.want is not None]
    said = " ".join(passage for passages in [*facts, *traits] for passage in passages).casefold()
    return Counter(
        {
            "messages": sum(turn.role == "user" for turn in story.turns),
            "facts": len(facts),
            "traits": len(traits),
            "asked": len(now),
            "known": sum(want.casefold() in said for want in now),
            "stale facts": sum(_rests_on(passages, stale) for passages in facts),
            "stale traits": sum(_rests_on(passages, stale) for passages in traits),
        }
    )


def _rests_on(passages: Sequence[str], stale: set[str]) -> bool:
    return all(any(passage in text for text in stale) for passage in passages)
