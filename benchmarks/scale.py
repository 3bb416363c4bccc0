"""LoCoMo's questions among many memories and among many cubes: how much is lost, and what takes longer? `--data FILE`.

The same questions are asked of each conversation alone in its cube, of all conversations of the file in one cube, of
that cube filled up with distractors to each of `--memories` messages, and of each conversation in its own cube among
`--cubes` cubes. Distractors are the chats of BEAM, where `--beam` gives them, then small talk made of templates, by
people with the names that speak in the file or, with `--strangers`, with others. Sessions are named after their
conversation, so one of another conversation is never taken for one that is wanted. `growth` is search p50 at the
largest size over that at the smallest, `growth_over_embed` that of `search_over_embed`, for machines with other work.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.data import BadData, Chat, Question, Session, first_questions, load_beam, load_locomo
from benchmarks.everyday import Everyday
from benchmarks.growing import Answers, Asked, Growing, Remembering, Tap
from benchmarks.metrics import all_at, first_seen, frac_at, mean
from benchmarks.report import Report, data_parser, figures_table, positive, run
from benchmarks.stores import source_messages
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.ports import Embedder
from memos.core.settings import Settings

TOP_K = 50
ALONE, TOGETHER = "alone", "together"
ONE_CUBE = "everything"
CUBE_MESSAGES = 20
# Texts of the conversations, a turn and a window each message: every installation holds them.
_REMEMBERED = 20_000
MULTI_HOP = "multi-hop"
QUALITY = ("dialog_frac@5", "dialog_frac@10", "session_frac@5", "session_all@5", "multi_hop_session_frac@5")
TIMES = ("search_p50_ms", "search_p95_ms", "embed_p50_ms", "embed_p95_ms", "search_over_embed")
COSTS = ("memories", "cubes", "fill_s", "tasks_s", "graphs_s", "bytes_per_memory")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, of which conversations, and among what."""

    chats: tuple[Chat, ...]
    asked: tuple[tuple[Chat, Question], ...]
    beam: tuple[Session, ...]
    everyday: Everyday
    sizes: tuple[int, ...]
    cubes: int
    workers: int | None

    def own(self) -> list[tuple[str, Session]]:
        """Return every conversation's sessions, each with a cube of its own."""
        return [(chat.name, session) for chat in self.chats for session in chat.sessions]

    def questions(self, cube: str | None = None) -> list[Asked]:
        """Return what is asked, of one cube or of each conversation's own."""
        return [Asked(cube or chat.name, question.text, question.asked) for chat, question in self.asked]


def planned(arguments: argparse.Namespace) -> Plan:
    """Read the data. Raises: BadData, also for sizes that are smaller than the data."""
    loaded = load_locomo(arguments.data)
    chats = tuple(_named_after(chat) for chat in loaded)
    messages = [message for chat in chats for session in chat.sessions for message in session.messages]
    sizes = tuple(sorted(set(arguments.memories)))
    if sizes[0] < len(messages):
        raise BadData(arguments.data, f"has {len(messages):,} messages; --memories {sizes[0]} wants at least as many")
    if arguments.cubes < len(chats):
        raise BadData(arguments.data, f"has {len(chats)} conversations; --cubes {arguments.cubes} wants as many")
    beam = [] if arguments.beam is None else [_named_after(chat) for chat in load_beam(arguments.beam)]
    names = first_seen(message.name for message in messages if message.name)
    if len(names) < 2:
        raise BadData(arguments.data, "names fewer than two speakers")
    times = [message.at for message in messages if message.at is not None]
    return Plan(
        chats,
        tuple((chat, question) for chat in first_questions(loaded, arguments.limit) for question in chat.questions),
        tuple(session for chat in beam for session in chat.sessions),
        Everyday(arguments.seed, None if arguments.strangers else names, min(times), max(times)),
        sizes,
        arguments.cubes,
        0 if arguments.without_tasks else None,
    )


def measure(arguments: argparse.Namespace) -> Report:
    """Ask every question of each installation."""
    plan = planned(arguments)
    embedder = Remembering(MiniLmEmbedder(threads=Settings().embed.threads), _REMEMBERED)
    rows: list[dict[str, Any]] = [
        {"conversation": chat.name, "category": question.kind, "question": question.text}
        for chat, question in plan.asked
    ]
    stores: dict[str, dict[str, Any]] = {}
    for name, answers, figures in _answers(plan, embedder):
        for row, (chat, question), found in zip(rows, plan.asked, answers.found, strict=True):
            row[name] = row_of(source_messages(found.hits), chat.name, question)
        stores[name] = {**summary(rows, name), **answers.times(), **figures}
    for figures in stores.values():
        figures["drop"] = dropped(stores[ALONE], figures)
    return _report(stores, rows, plan)


def _answers(plan: Plan, embedder: Embedder) -> Iterator[tuple[str, Answers, dict[str, Any]]]:
    """Yield each installation's name, what it answered and what it cost."""
    with tempfile.TemporaryDirectory(prefix="hippocube-bench-") as folder:
        own = Growing(Path(folder), embedder, plan.workers)
        own.grow(plan.own(), ALONE)
        yield ALONE, own.asked(plan.questions(), TOP_K, ALONE), own.figures()
    with tempfile.TemporaryDirectory(prefix="hippocube-bench-") as folder:
        one = Growing(Path(folder), embedder, plan.workers)
        one.grow([(ONE_CUBE, session) for _cube, session in plan.own()], TOGETHER)
        yield TOGETHER, one.asked(plan.questions(ONE_CUBE), TOP_K, TOGETHER), one.figures()
        tap = Tap(chain(plan.beam, plan.everyday.sessions()))
        for size in plan.sizes:
            one.grow([(ONE_CUBE, session) for session in tap.messages(size - one.memories)], f"{size:,}")
            yield str(size), one.asked(plan.questions(ONE_CUBE), TOP_K, f"{size:,}"), one.figures()
    with tempfile.TemporaryDirectory(prefix="hippocube-bench-") as folder:
        many, name = Growing(Path(folder), embedder, plan.workers), f"{plan.cubes} cubes"
        others = [f"other-{number}" for number in range(plan.cubes - len(plan.chats))]
        small = [(cube, plan.everyday.session(CUBE_MESSAGES)) for cube in others]
        many.grow([*plan.own(), *small], name)
        yield name, many.asked(plan.questions(), TOP_K, name), many.figures()


def row_of(ranked: Sequence[tuple[str | None, str | None]], chat: str, question: Question) -> dict[str, float]:
    """Return one question's figures, from ranked sessions and message ids; those of other chats are no gold."""
    gold = [(_session(chat, dia_id), dia_id) for dia_id in question.gold]
    sessions, gold_sessions = first_seen(session for session, _id in ranked), {session for session, _id in gold}
    row = {f"dialog_frac@{k}": frac_at(ranked, gold, k) for k in (5, 10)}
    row |= {"session_frac@5": frac_at(sessions, gold_sessions, 5), "session_all@5": all_at(sessions, gold_sessions, 5)}
    return row if question.kind != MULTI_HOP else row | {"multi_hop_session_frac@5": row["session_frac@5"]}


def _named_after(chat: Chat) -> Chat:
    """Return a chat whose sessions have names that no other chat's have."""
    sessions = tuple(Session(f"{chat.name}/{session.name}", session.messages) for session in chat.sessions)
    return Chat(chat.name, sessions, chat.questions, chat.left_out)


def _session(chat: str, dia_id: str) -> str:
    """Return the session that holds a message: D8:6 is the sixth message of the eighth."""
    return f"{chat}/session_{dia_id.split(':', 1)[0].removeprefix('D')}"


def summary(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    """Return one installation's averages over the questions."""
    return mean(row[name] for row in rows)


def dropped(base: Mapping[str, float], figures: Mapping[str, float]) -> dict[str, float]:
    """Return how much less there is of each figure of quality than in the base line."""
    return {name: round(base[name] - figures[name], 4) for name in QUALITY if name in base}


def _report(stores: dict[str, dict[str, Any]], rows: list[dict[str, Any]], plan: Plan) -> Report:
    smallest, largest = stores[str(plan.sizes[0])], stores[str(plan.sizes[-1])]
    growth, over_embed = (
        round(largest[name] / smallest[name], 3) if len(plan.sizes) > 1 else None
        for name in ("search_p50_ms", "search_over_embed")
    )
    figures = {
        "n": len(rows),
        "left_out": sum(chat.left_out for chat in plan.chats),
        "background_tasks": plan.workers is None,
        "growth": growth,
        "growth_over_embed": over_embed,
        "drop": largest["drop"],
        "by_store": stores,
    }
    tables = [
        figures_table("LoCoMo, all questions", QUALITY, stores),
        figures_table("less than alone", QUALITY, {name: store["drop"] for name, store in stores.items()}),
        figures_table("milliseconds", TIMES, stores),
        figures_table("what it took", COSTS, stores),
    ]
    return Report(figures, rows, tables)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the arguments."""
    parser = data_parser(__doc__, "a LoCoMo file")
    parser.add_argument(
        "--memories", type=positive, nargs="+", default=[5_000, 20_000, 100_000], metavar="N",
        help="messages in the one cube, distractors counted (default 5000 20000 100000)",
    )  # fmt: skip
    parser.add_argument("--cubes", type=positive, default=1_000, help="cubes of the last installation (default 1000)")
    parser.add_argument("--beam", type=Path, metavar="FOLDER", help="BEAM chats, the first distractors")
    parser.add_argument("--strangers", action="store_true", help="give who talks in distractors names of their own")
    parser.add_argument("--without-tasks", action="store_true", help="run no background tasks")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("scale", parse(argv), measure)


if __name__ == "__main__":
    # A kill ends it as Ctrl+C does: the installations, a gigabyte at the largest, are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
