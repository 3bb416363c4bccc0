"""Whether what is asked in one language is found among messages in that language, or in another.

Messages and questions were written for this, each in eight languages; many questions have other words than their
evidence. Each pair of languages is asked of a fresh installation, by each embedder, beside the floors: every language
of its own messages, of English ones, and English of messages in it. No language model takes part. `zh-en` is asked in
Chinese about English messages.

`--own` asks other questions instead: those of a fourth person, Noor, about what she told of herself
(`benchmarks/one_asker.json`), among the same messages. They name a time, ask for advice that a preference of hers
decides, or ask for something about which she gave an instruction; `by_kind` tells them apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal, Self, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from benchmarks.data import BadData, Chat, Message, Question, Session
from benchmarks.floors import EMBEDDERS, Engines, TurnFloors, plain_embedder
from benchmarks.metrics import any_at, frac_at, mean
from benchmarks.report import Report, figures_table, output_parser, positive, progress, run
from benchmarks.stores import ask, fill, installation, source_messages

FILE = Path(__file__).with_name("eight_languages.json")
OWN = Path(__file__).with_name("one_asker.json")
Language = Literal["en", "de", "es", "fr", "zh", "ja", "ar", "hi"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
HIT_KS = (1, 5, 10)
FRAC_K = 10
OURS = "hippocube"
SHOWN = (*(f"hit@{k}" for k in HIT_KS), f"frac@{FRAC_K}")
_SHORT = Field(min_length=1)


class _Texts(BaseModel):
    """A text in English, and in some other languages."""

    model_config = ConfigDict(extra="forbid")

    en: str = _SHORT
    de: str = ""
    es: str = ""
    fr: str = ""
    zh: str = ""
    ja: str = ""
    ar: str = ""
    hi: str = ""

    def text(self, language: Language) -> str:
        """Return the text in a language."""
        text: str = getattr(self, language)
        return text


class _Said(_Texts):
    id: str = _SHORT
    speaker: str


class _Occasion(BaseModel):
    model_config = ConfigDict(extra="forbid")

    at: AwareDatetime
    messages: list[_Said] = Field(min_length=1)


class _Asked(_Texts):
    id: str = _SHORT
    kind: str = "fact"
    asked: AwareDatetime | None = None
    evidence: list[str] = Field(min_length=1)


class ManyLanguages(BaseModel):
    """Messages of some people over some sessions and questions about them, all of it in the same languages."""

    model_config = ConfigDict(extra="forbid")

    people: dict[str, _Texts]
    sessions: list[_Occasion] = Field(min_length=1)
    questions: list[_Asked] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        said = [message for session in self.sessions for message in session.messages]
        names = [message.id for message in said], [question.id for question in self.questions]
        twice = [name for ids in names for name, count in Counter(ids).items() if count > 1]
        unknown = {name for question in self.questions for name in question.evidence} - set(names[0])
        unknown |= {message.speaker for message in said} - set(self.people)
        if twice or unknown:
            raise ValueError(f"ids that are there twice: {twice}, or not at all: {sorted(unknown)}")
        if partial := [language for language in LANGUAGES if 0 < self._texts_in(language) < self._texts_in("en")]:
            raise ValueError(f"some of the texts are missing in: {', '.join(partial)}")
        return self

    @property
    def languages(self) -> list[Language]:
        """The languages in which everything is there."""
        return [language for language in LANGUAGES if self._texts_in(language)]

    def pairs(self, among: Sequence[Language] = LANGUAGES) -> list[tuple[Language, Language]]:
        """Return pairs of languages, asked and of the messages: each and itself, each and English, English and each."""
        there = [language for language in self.languages if language in among]
        others = [language for language in there if language != "en"]
        return [
            *((each, each) for each in there),
            *((each, "en") for each in others),
            *(("en", each) for each in others),
        ]

    def _texts_in(self, language: Language) -> int:
        said = [message for session in self.sessions for message in session.messages]
        return sum(bool(each.text(language)) for each in [*self.people.values(), *said, *self.questions])

    def chat(self, asked: Language, told: Language) -> Chat:
        """Return the messages in one language with the questions in another, asked when the last session began."""
        sessions = [
            Session(f"session_{number}", tuple(self._message(said, occasion, told) for said in occasion.messages))
            for number, occasion in enumerate(self.sessions, 1)
        ]
        questions = [
            Question(
                question.text(asked),
                question.id,
                tuple(question.evidence),
                (question.asked or self.sessions[-1].at).astimezone(UTC),
            )
            for question in self.questions
        ]
        return Chat(f"{asked}-{told}", tuple(sessions), tuple(questions))

    def _message(self, said: _Said, occasion: _Occasion, told: Language) -> Message:
        name = self.people[said.speaker].text(told)
        return Message(said.id, "user", said.text(told), occasion.at.astimezone(UTC), name)


def asked_of(everybody: ManyLanguages, one: ManyLanguages) -> ManyLanguages:
    """Return the messages of both with the questions of the second."""
    return ManyLanguages(
        people=everybody.people | one.people,
        sessions=[*everybody.sessions, *one.sessions],
        questions=one.questions,
    )


def load(path: Path = FILE) -> ManyLanguages:
    """Return the messages and questions of a file. Raises: BadData."""
    try:
        return ManyLanguages.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.errors(include_input=False)[0]["msg"] if isinstance(error, ValidationError) else error
        raise BadData(path, f"is no file of languages: {why}") from error


def measure(arguments: argparse.Namespace) -> Report:
    """Ask each question of each pair of languages, by each embedder."""
    data = load(arguments.data)
    if arguments.own:
        data = asked_of(data, load(OWN))
    kind_of = {question.id: question.kind for question in data.questions}
    figures: dict[str, dict[str, Any]] = {name: {} for name in arguments.embedders}
    engines = {name: Engines.of(name) for name in figures}
    rows, tables = [], []
    for name, (asked, told) in progress(list(product(figures, data.pairs(arguments.languages))), "Languages"):
        chat = data.chat(asked, told)
        questions = chat.questions[: arguments.limit]
        found = [
            {
                "embedder": name,
                "pair": chat.name,
                "id": question.kind,
                "kind": kind_of[question.kind],
                "question": question.text,
                **row,
            }
            for question, row in zip(questions, answers(chat, questions, engines[name], arguments.seed), strict=True)
        ]
        systems = {system: mean(row[system] for row in found) for system in (OURS, "fusion", "bm25", name, "random")}
        search_p50_ms = round(median(row["search_ms"] for row in found), 2)
        tables.append(figures_table(f"{name}, {chat.name} ({search_p50_ms} ms a search)", SHOWN, systems))
        ours = systems.pop(OURS)
        figures[name][chat.name] = {**ours, "search_p50_ms": search_p50_ms, "floors": systems}
        if arguments.own:
            figures[name][chat.name]["by_kind"] = {
                kind: mean(row[OURS] for row in found if row["kind"] == kind)
                for kind in dict.fromkeys(row["kind"] for row in found)
            }
        rows += found
    said = sum(len(session.messages) for session in data.sessions)
    asked_each = len(data.questions[: arguments.limit])
    return Report({"n": asked_each, "messages": said, "embedders": figures}, rows, tables)


def answers(chat: Chat, questions: Sequence[Question], engines: Engines, seed: int) -> list[dict[str, Any]]:
    """Return for each question our figures, those of the floors, and how long our search took."""
    ids = [message.id for session in chat.sessions for message in session.messages]
    turns = [[f"{said.name}: {said.text}" for said in session.messages] for session in chat.sessions]
    floors = TurnFloors(turns, engines, seed)
    rows: list[dict[str, Any]] = []
    with installation(embedder=plain_embedder(engines.name)) as memos:
        fill(memos, chat.name, chat.sessions)
        for question in questions:
            start = perf_counter()
            hits = ask(memos, chat.name, question.text, asked=question.asked, top_k=max(HIT_KS)).hits
            search_ms = (perf_counter() - start) * 1000
            ranked = {OURS: [str(message) for _, message in source_messages(hits)]}
            for name, places in floors.rank(question.text).items():
                ranked[name] = [ids[place] for place in places]
            found: Mapping[str, Any] = {name: row_of(order, question.gold) for name, order in ranked.items()}
            rows.append({"search_ms": search_ms, **found})
    return rows


def row_of(ranked: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """Return one question's figures: is any evidence among the first k, and what share of it."""
    hits = {f"hit@{k}": any_at(ranked, gold, k) for k in HIT_KS}
    return hits | {f"frac@{FRAC_K}": frac_at(ranked, gold, FRAC_K)}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    parser = output_parser(__doc__)
    parser.add_argument("--data", type=Path, default=FILE, metavar="PATH", help="other messages and questions")
    parser.add_argument("--own", action="store_true", help="ask one person's questions about herself instead")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=LANGUAGES, help="default: all")
    parser.add_argument("--embedders", nargs="+", choices=EMBEDDERS, default=list(EMBEDDERS), help="default: both")
    parser.add_argument("--per-question", type=Path, metavar="FILE", help="write one line of JSON a question")
    parser.add_argument("--limit", type=positive, metavar="N", help="a quick version: only the first N questions")
    return run("languages", parser.parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
