"""Lifecycle: does what is true now come first, after changes, corrections and endings? `--data lives.jsonl`.

Each story is a cube of its own: turns at their times, then perhaps feedback in plain words, then questions. Figures:

- `now_first`: questions about now whose first hit is the wanted statement; of them `guard_first`, those of stories
  where nothing changes, and `kept`, those about details that the feedback does not mention.
- `stale_first`: questions about now, of what has changed, whose first hit is a replaced statement.
- `past_first`: questions about the past whose first hit is the wanted statement.
- `forgotten`: what was to be forgotten is not among the first five.

`everyday_changes.jsonl` beside this module has 56 stories of everyday changes and guards that rules were made with, and
`everyday_changes_held.jsonl` 55 by the same hand that were only measured.

Each is measured `raw`, as soon as `add` and `feedback` return, and `settled`, after all background tasks. With
`--with-model URL` also `model`: in an installation of its own, whose relations a chat model has judged, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.data import BadData
from benchmarks.floors import NEWEST_MARGIN, Engines, TermIndex, VectorTexts, best_first, newest_near
from benchmarks.metrics import mean
from benchmarks.report import Report, data_parser, figures_table, progress, run
from benchmarks.stores import ask, installation
from memos import MemOS
from memos.backends.openai.chat import OpenAIChat
from memos.core.ports import ChatReply, ChatRequest
from memos.core.settings import ChatSettings
from memos.core.types import Hit
from memos.scheduler.jobs.judge import KNOWN

OURS = ("raw", "settled", "model")
FLOORS = ("bm25", "minilm", "newest")
TOP_K = 5
_SETTLE_S = 600.0
_MODEL_S = 300.0  # for one answer of a model on a busy processor
_FIGURES = ("now_first", "stale_first", "past_first", "guard_first", "kept", "forgotten")


class Turn(BaseModel):
    """What one speaker said, at its time, in a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    speaker: str
    role: str
    text: str
    at: datetime
    conversation: str


class StoryQuestion(BaseModel):
    """A question; `want` is part of the right first hit, None where something was to be forgotten."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ask: str
    at: datetime
    want: str | None
    want_turn: int | str | None
    stale_turns: tuple[int, ...]
    about: str


class Story(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    kind: str
    lang: str
    turns: tuple[Turn, ...]
    feedback: str | None
    questions: tuple[StoryQuestion, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with what makes an answer right or stale."""

    story: Story
    question: StoryQuestion

    def judge(self, found: Sequence[str]) -> dict[str, float]:
        """Return the figures of this question from the texts that were found, best first."""
        story, question = self.story, self.question
        stale = {story.turns[turn].text for turn in question.stale_turns}
        if question.want is None:
            return {"forgotten": float(stale.isdisjoint(found[:TOP_K]))}
        first = found[0] if found else ""
        right = float(question.want.casefold() in first.casefold() and first not in stale)
        if question.about == "past":
            return {"past_first": right}
        figures = {"now_first": right}
        if stale:
            figures["stale_first"] = float(first in stale)
        if story.kind.startswith("guard_"):
            figures["guard_first"] = right
        if story.feedback is not None and question.want_turn != "feedback":
            figures["kept"] = right
        return figures


def load(path: Path) -> list[Story]:
    """Read stories, one a line. Raises: BadData."""
    try:
        return [Story.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(path, f"cannot be read: {error}") from error
    except ValidationError as error:
        raise BadData(path, f"is not a file of stories: {error.errors()[0]['msg']}") from error


def measure(arguments: argparse.Namespace) -> Report:
    """Tell every story to a cube of its own and ask its questions, of us and of the floors."""
    stories = load(arguments.data)[: arguments.limit]
    engines = Engines.default()
    judged, spent = ({}, {}) if arguments.with_model is None else _judged(stories, arguments)
    rows: list[dict[str, Any]] = []
    with installation() as memos:
        for story in progress(stories, "Lifecycle"):
            tell(memos, story)
            found = {"raw": _answers(memos, story)}
            memos.tasks.wait(cubes=[story.id], timeout_s=_SETTLE_S)
            found["settled"] = _answers(memos, story)
            if story.id in judged:
                found["model"] = judged[story.id]
            found |= _floors(story, engines)
            rows += _rows(story, found)
    names = [name for name in (*OURS, *FLOORS) if name in rows[0]]
    systems = {name: _figures(row[name] for row in rows) for name in names}
    kinds = {kind: {name: _of_kind(rows, kind, name) for name in names} for kind in _kinds(rows)}
    tables = [
        figures_table(f"Lifecycle, {len(rows)} questions of {len(stories)} stories", _FIGURES, systems),
        *(figures_table(f"{figure} by kind", list(systems), _by_kind(kinds, figure)) for figure in _FIGURES[:2]),
    ]
    return Report({"n": len(rows), "stories": len(stories), **systems, **spent, "by_kind": kinds}, rows, tables)


class _CountedChat(OpenAIChat):
    """A chat model that counts what relations cost, without its examination."""

    def __init__(self, settings: ChatSettings) -> None:
        super().__init__(settings)
        self.calls = self.tokens = self.examined = 0
        self._known = tuple(f"Earlier: {older}\nLater: {newer}\n" for older, newer, _ in KNOWN)

    def complete(self, request: ChatRequest) -> ChatReply:
        reply = super().complete(request)
        if request.messages[-1].content.startswith(self._known):
            self.examined += 1
        else:
            self.calls += 1
            self.tokens += reply.tokens.prompt + reply.tokens.completion
        return reply


def _judged(
    stories: Sequence[Story], arguments: argparse.Namespace
) -> tuple[dict[str, list[list[str]]], dict[str, Any]]:
    """Return the answers by story once a model has judged relations, and its calls and tokens for each statement."""
    answers: dict[str, list[list[str]]] = {}
    said = sum(sum(turn.role == "user" for turn in story.turns) + (story.feedback is not None) for story in stories)
    settings = ChatSettings(base_url=arguments.with_model, model=arguments.model, timeout_s=_MODEL_S)
    with closing(_CountedChat(settings)) as chat, installation(chat_model=chat) as memos:
        for story in progress(stories, "With a model"):
            tell(memos, story)
            memos.tasks.wait(cubes=[story.id], timeout_s=_SETTLE_S)
            answers[story.id] = _answers(memos, story)
        spent = {
            "model_name": arguments.model,
            "statements": said,
            "calls_per_statement": round(chat.calls / said, 3),
            "tokens_per_statement": round(chat.tokens / said, 1),
            "examination_calls": chat.examined,
        }
    return answers, spent


def tell(memos: MemOS, story: Story) -> None:
    """Add the turns of a story to a cube of its own, then its feedback."""
    memos.cubes.create(story.id)
    for turn in story.turns:
        message = {"role": turn.role, "name": turn.speaker, "content": turn.text, "chat_time": turn.at.isoformat()}
        memos.add(message, cube=story.id, conversation=turn.conversation)
    if story.feedback is not None:
        last = story.turns[-1]
        memos.feedback(
            story.feedback,
            cube=story.id,
            speaker=_user_of(story),
            conversation=last.conversation,
            chat_time=_after(story),
        )


def _user_of(story: Story) -> str:
    return next(turn.speaker for turn in story.turns if turn.role == "user")


def _after(story: Story) -> str:
    """Return the time of the feedback: that of the last turn, as nothing else is said of it."""
    return max(turn.at for turn in story.turns).isoformat()


def _answers(memos: MemOS, story: Story) -> list[list[str]]:
    return [
        _texts(ask(memos, story.id, question.ask, asked=question.at, top_k=TOP_K).hits) for question in story.questions
    ]


def _texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.item.memory for hit in hits]


def _floors(story: Story, engines: Engines) -> dict[str, list[list[str]]]:
    said = [(turn.at, turn.text) for turn in story.turns]
    if story.feedback is not None:
        said.append((max(at for at, _ in said), story.feedback))
    texts = [text for _, text in said]
    dense, terms = VectorTexts(texts, engines.embedder), TermIndex(texts, engines.terms)
    found: dict[str, list[list[str]]] = {name: [] for name in FLOORS}
    for question in story.questions:
        cosines = dense.scores(engines.embedder.embed_query(question.ask))
        for name, order in (
            ("bm25", best_first(terms.scores(question.ask))),
            ("minilm", best_first(cosines)),
            ("newest", newest_near(cosines, [at for at, _ in said], NEWEST_MARGIN)),
        ):
            found[name].append([texts[place] for place in order[:TOP_K]])
    return found


def _rows(story: Story, found: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[dict[str, Any]]:
    for place, question in enumerate(story.questions):
        asked = Asked(story, question)
        yield {
            "story": story.id,
            "kind": story.kind,
            "lang": story.lang,
            "question": question.ask,
            "want": question.want,
            "first": {name: answers[place][:1] for name, answers in found.items() if name in OURS},
            **{name: asked.judge(answers[place]) for name, answers in found.items()},
        }


def _figures(rows: Iterator[Mapping[str, float]]) -> dict[str, float]:
    found = mean(rows)
    return {name: found[name] for name in _FIGURES if name in found}


def _kinds(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({row["kind"] for row in rows})


def _of_kind(rows: Sequence[Mapping[str, Any]], kind: str, name: str) -> dict[str, float]:
    return _figures(row[name] for row in rows if row["kind"] == kind)


def _by_kind(kinds: Mapping[str, Mapping[str, Mapping[str, float]]], figure: str) -> dict[str, dict[str, float | None]]:
    return {
        kind: {name: figures.get(figure) for name, figures in systems.items()}
        for kind, systems in kinds.items()
        if any(figure in figures for figures in systems.values())
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    parser = data_parser(__doc__, "a file of stories, one a line")
    parser.add_argument("--with-model", metavar="URL", help="an OpenAI-compatible endpoint whose model judges, too")
    parser.add_argument("--model", default="default", metavar="NAME", help="the model's name at the endpoint")
    return run("lifecycle", parser.parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
