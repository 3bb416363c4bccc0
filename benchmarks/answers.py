"""Questions of LoCoMo, BEAM and PrefEval answered by one model, with different memories in its prompt.

Ways: `nothing` (the question alone), `bm25` (the best messages by BM25), `ours` (a chat's prompt, without fine
reading), `fine` (the same after the model has read everything), `mem0` (what mem0 finds, in an environment of its own,
named by --mem0). Every way has the same instructions and the same budget of tokens for what is remembered. The model is
the configured one: MEMOS_CHAT_MODEL__BASE_URL and MEMOS_CHAT_MODEL__MODEL.

Figures: token F1 and exact match with the gold answer; `contained`, the share of the gold's content words in the answer
(PrefEval: of the preference's); `declined`, answers that say "I don't know" to a question without an answer, and
`declined wrongly` to others; prompt and completion tokens and seconds an answer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.answer_cache import CachedModel
from benchmarks.answer_mem0 import Mem0
from benchmarks.answer_metrics import containment, declines, exact_match, token_f1
from benchmarks.data import BadData, Chat, Question, first_sessions, load_beam, load_locomo, load_prefeval
from benchmarks.floors import TermIndex, best_first
from benchmarks.metrics import fitting, mean
from benchmarks.prefeval import sessions_of
from benchmarks.report import Report, figures_table, output_parser, positive, progress, run
from benchmarks.stores import fill, installation
from memos import MemOS
from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.backends.openai.chat import OpenAIChat
from memos.core.ports import ChatMessage, ChatRequest
from memos.core.settings import ChatSettings, ModelSettings, Settings
from memos.core.text.rendering import citation, memory_section, with_speaker
from memos.core.tokens import estimate_tokens
from memos.errors import BackendTimeout, BackendUnavailable, ModelError
from memos.kernel.chat.chat import without_marks

WAYS = ("nothing", "bm25", "ours", "fine", "mem0")
_SYSTEM = "You answer a question about earlier talks, or with regard to them. Answer in as few words as possible."
_TASKS = {"prefeval": "You are a helpful assistant. Answer in at most three sentences."}
_SHOWN = ("n", "f1", "exact", "contained", "declined", "declined wrongly", "cited", "prompt", "completion", "seconds")
_SETTLED_S = 6 * 3600.0
_TOP_K = 50


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation of a benchmark with the questions that are asked of it."""

    benchmark: str
    chat: Chat
    questions: tuple[Question, ...]

    @property
    def system(self) -> str:
        """Return the instructions of its prompts."""
        return _TASKS.get(self.benchmark, _SYSTEM)


@dataclass(slots=True)
class Prompted:
    """A prompt, the citation marks that it has, and what an answer to it is made of."""

    messages: list[ChatMessage]
    marks: tuple[str, ...] = ()


@dataclass(slots=True)
class _Reading:
    """What fine reading took, all conversations together."""

    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    facts: int = 0
    messages: int = 0
    notes: list[str] = field(default_factory=list)


def measure(arguments: argparse.Namespace) -> Report:
    """Answer each question in every way. Raises: BadData without a model or data."""
    cases = list(cases_of(arguments))
    settings = Settings().model_for("chat")
    if settings is None:
        raise BadData(Path("MEMOS_CHAT_MODEL__BASE_URL"), "is not set: there is no model to ask")
    rows: list[dict[str, Any]] = []
    read = _Reading()
    with closing(CachedModel(OpenAIChat(settings), arguments.cache)) as model:
        for case in progress(cases, "answers"):
            for way in arguments.ways:
                with prompts(way, case, arguments, model, read) as prompt:
                    for question in case.questions:
                        rows.append(_answered(model, way, case, question, prompt(question), arguments.max_tokens))
                        _keep(arguments.per_question, rows[-1])
    figures = {name: _summary(rows, name, arguments.ways) for name in sorted({row["benchmark"] for row in rows})}
    tables = [figures_table(f"{name}, answered by {model.name}", _SHOWN, each) for name, each in figures.items()]
    reading = {"calls": read.calls, "tokens": read.tokens, "seconds": round(read.seconds, 1), "facts": read.facts}
    told = {"messages": read.messages, **reading, "notes": sorted(set(read.notes))}
    total = {"n": sum(len(case.questions) for case in cases), "model": model.name, "budget": arguments.budget}
    return Report({**total, "answers": figures, "fine_reading": told}, rows, tables)


def cases_of(arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield conversations with their share of the questions, evenly taken. Raises: BadData without any file."""
    if not (arguments.locomo or arguments.beam or arguments.prefeval):
        raise BadData(Path("--locomo, --beam, --prefeval"), "are all missing: give at least one file")
    if arguments.locomo is not None:
        yield from _shared("locomo", load_locomo(arguments.locomo), arguments)
    if arguments.beam is not None:
        chats = [replace(chat, questions=(*chat.questions, *chat.abstentions)) for chat in load_beam(arguments.beam)]
        yield from _shared("beam", chats, arguments)
    if arguments.prefeval is not None:
        data = load_prefeval(arguments.prefeval)
        for place in _evenly(range(len(data.pairs)), arguments.questions):
            _, preference, text = data.pairs[place]
            question = Question(text, "preference", ("stated",), None, (preference,))
            sessions = tuple(sessions_of(preference, data.distractors))
            yield Case("prefeval", Chat(f"pair {place}", sessions, (question,)), (question,))


def _shared(benchmark: str, chats: Sequence[Chat], arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield each conversation's first sessions, with a share of the questions that these can answer."""
    chats = chats[: arguments.chats]
    for place, whole in enumerate(chats):
        chat = first_sessions(whole, arguments.sessions)
        asked = [question for question in chat.questions if _answerable(question)]
        share = arguments.questions // len(chats) + (place < arguments.questions % len(chats))
        if share:
            yield Case(benchmark, chat, tuple(_evenly(asked, share)))


def _answerable(question: Question) -> bool:
    return bool(question.answers) or _declinable(question)


def _declinable(question: Question) -> bool:
    return question.kind in ("adversarial", "abstention")


def _evenly(entries: Sequence[Any], count: int) -> list[Any]:
    if len(entries) <= count:
        return list(entries)
    return [entries[int(place * len(entries) / count)] for place in range(count)]


@contextmanager
def prompts(
    way: str, case: Case, arguments: argparse.Namespace, model: CachedModel, read: _Reading
) -> Iterator[Callable[[Question], Prompted]]:
    """Prepare a way for a conversation, and lend what makes prompts of its questions."""
    budget = arguments.budget
    match way:
        case "nothing":
            yield lambda question: _with_lines(case, question, [], budget)
        case "bm25":
            lines, index = _lines(case.chat), TermIndex([line for line, _ in _lines(case.chat)], QdrantBm25())
            yield lambda question: _with_lines(
                case, question, [lines[at][1] for at in best_first(index.scores(question.text))[:_TOP_K]], budget
            )
        case "mem0":
            with Mem0(arguments.mem0, case.chat, Settings().model_for("chat")) as memory:
                yield lambda question: _with_lines(case, question, memory.search(question.text, _TOP_K), budget)
        case _:
            # Without this the environment's model would work in the background of `ours`, too.
            alone = Settings().model_copy(update={"chat_model": ChatSettings(), "reader_model": ModelSettings()})
            asker = model if way == "fine" else None
            with installation(alone, MiniLmEmbedder(), asker) as memos:
                fill(memos, "bench", case.chat.sessions)
                if way == "fine":
                    _read_finely(memos, model, read)
                yield lambda question: _ours(memos, case, question, budget)


def _read_finely(memos: MemOS, model: CachedModel, read: _Reading) -> None:
    began, calls, tokens = time.perf_counter(), model.calls, model.tokens
    memos.tiers.analyse(cube="bench", everything=True)
    memos.tasks.wait(timeout_s=_SETTLED_S)
    read.seconds += time.perf_counter() - began
    read.calls, read.tokens = read.calls + model.calls - calls, read.tokens + model.tokens - tokens
    read.messages += len(memos.memories.list(cube="bench", filter={"type": "message"}, limit=10_000))
    read.facts += len(memos.memories.list(cube="bench", filter={"tier": "long"}, limit=10_000))
    read.notes += [str(task.note) for task in memos.tasks.list(cubes=["bench"], limit=200) if task.note]


def _lines(chat: Chat) -> list[tuple[str, str]]:
    """Return each message as it is searched for and as it is shown."""
    lines = []
    for session in chat.sessions:
        for message in session.messages:
            told = with_speaker(message.name or message.role, message.text)
            lines.append((told, citation("-", message.at, told).removeprefix("[-] ")))
    return lines


def _with_lines(case: Case, question: Question, lines: Sequence[str], budget: int) -> Prompted:
    room = budget - estimate_tokens(memory_section([]))
    kept = [f"- {lines[at]}" for at in fitting([estimate_tokens(f"- {line}\n") for line in lines], room)]
    system = f"{case.system}\n\n{memory_section(kept)}" if kept else case.system
    return Prompted([ChatMessage("system", system), ChatMessage("user", question.text)])


def _ours(memos: MemOS, case: Case, question: Question, budget: int) -> Prompted:
    asked = {} if question.asked is None else {"reference_time": question.asked.isoformat()}
    made = memos.chat.prompt(
        question.text, cubes=["bench"], system_prompt=case.system, token_budget=budget, store=False, **asked
    )
    messages = [ChatMessage(each.role, each.content) for each in made.messages]  # type: ignore[arg-type]
    return Prompted(messages, tuple(each.mark for each in made.shown))


def _answered(
    model: CachedModel, way: str, case: Case, question: Question, prompted: Prompted, max_tokens: int
) -> dict[str, Any]:
    request = ChatRequest(tuple(prompted.messages), max_tokens, 0.0)
    failed = None
    try:
        reply, seconds = model.timed(request)
        text, cited = without_marks(reply.text, prompted.marks)
        tokens = reply.tokens.prompt, reply.tokens.completion
    except (ModelError, BackendTimeout, BackendUnavailable) as error:  # a failed answer counts as a wrong one
        text, cited, tokens, seconds, failed = "", (), (0, 0), 0.0, type(error).__name__
    gold = " ".join(question.answers)
    short = case.benchmark != "prefeval" and bool(gold)
    return {
        "benchmark": case.benchmark,
        "conversation": case.chat.name,
        "kind": question.kind,
        "way": way,
        "question": question.text,
        "answer": text,
        "failed": failed,
        "f1": token_f1(text, gold) if short else None,
        "exact": exact_match(text, gold) if short else None,
        "contained": containment(text, question.answers, question.text) if gold else None,
        "declined": float(declines(text)) if _declinable(question) else None,
        "declined wrongly": None if _declinable(question) else float(declines(text)),
        "cited": float(bool(cited)),
        "prompt": tokens[0],
        "completion": tokens[1],
        "seconds": round(seconds, 2),
    }


def _summary(rows: Sequence[dict[str, Any]], benchmark: str, ways: Sequence[str]) -> dict[str, dict[str, Any]]:
    summary = {}
    for way in ways:
        found = [row for row in rows if (row["benchmark"], row["way"]) == (benchmark, way)]
        figures = mean({name: row[name] for name in _SHOWN if name != "n"} for row in found)
        summary[way] = {"n": len(found), "failed": sum(row["failed"] is not None for row in found), **figures}
    return summary


def _keep(path: Path | None, row: dict[str, Any]) -> None:
    """Show a long run's answers while it goes on; the file is written again at its end."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments."""
    parser = output_parser(__doc__)
    parser.add_argument("--locomo", type=Path, metavar="FILE", help="a LoCoMo file")
    parser.add_argument("--beam", type=Path, metavar="PATH", help="a file or folder of BEAM chats")
    parser.add_argument("--prefeval", type=Path, metavar="FILE", help="a PrefEval file")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS[:4]), help="default: all but mem0")
    parser.add_argument("--mem0", type=Path, metavar="PYTHON", help="the Python of an environment with mem0ai")
    parser.add_argument("--questions", type=positive, default=200, metavar="N", help="of each benchmark (default 200)")
    parser.add_argument("--chats", type=positive, metavar="N", help="only the first N conversations of a file")
    parser.add_argument("--sessions", type=positive, metavar="N", help="only the first N sessions of a conversation")
    parser.add_argument("--budget", type=positive, default=500, help="tokens of what is remembered (default 500)")
    parser.add_argument("--max-tokens", type=positive, default=100, help="of an answer (default 100)")
    parser.add_argument(
        "--cache", type=Path, metavar="FILE", help="answers by digest of their prompt, kept in this file"
    )
    parser.add_argument("--per-question", type=Path, metavar="FILE", help="write one line of JSON an answer")
    arguments = parser.parse_args(argv)
    if "mem0" in arguments.ways and arguments.mem0 is None:
        parser.error("the way mem0 needs --mem0: the Python of an environment with mem0ai==2.2.1")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("answers", parse(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
