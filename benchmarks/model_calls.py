"""Counts what keeping memory in order asks a language model, for each hundred pages: calls and tokens by purpose.

The model is scripted: it quotes a sentence of what it is shown as a fact, and answers everything else with nothing new.
Sessions are those of the LoCoMo file, moved to the last weeks, or synthetic ones of ten pages; some of what each says
is searched for, so topics get hot.
Published for comparison: 2.9 calls a page for MemoryOS (Kang et al., EMNLP 2025, table of costs).
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rich.table import Table

from benchmarks.data import load_locomo
from benchmarks.dialogues import Dialogues
from benchmarks.report import Report, progress
from memos import MemOS
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.clock import SystemClock
from memos.core.ports import ChatReply, ChatRequest
from memos.core.settings import Settings
from memos.core.tokens import Tokens, estimate_tokens
from memos.memcube.ledger.schema import pages
from memos.reader.facts.extractor import KNOWN, WRITTEN

_SESSION = 10
_SEARCHES = 5
_SETTLED_S = 120.0
_LINE = re.compile(r'^\{"message": (\d+), .*?"speaker": "([^"]*)", .*?"text": "((?:[^"\\]|\\.)*)"', re.MULTILINE)


_EXAMINED = [word for _, word in WRITTEN if word is not None]


def _is_examination(request: ChatRequest) -> bool:
    return all(text in request.messages[-1].content for text, _ in WRITTEN)


class Scripted:
    """Answers each kind of question with something that fits, and counts those about pages."""

    name = "scripted"

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._lock = threading.Lock()

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return an answer that fits the schema asked for."""
        lasts = dict(KNOWN).get(request.messages[-1].content.removeprefix("Sentence: "))
        text = json.dumps(self._answer(request), ensure_ascii=False)
        if request.words and lasts is not None:
            text = "Fact" if lasts else "Nothing"
        tokens = Tokens(sum(estimate_tokens(message.content) for message in request.messages), estimate_tokens(text))
        if request.words or _is_examination(request):  # benchmarks.lifecycle counts calls about what replaces what
            return ChatReply(text, tokens)
        with self._lock:
            self.calls[request.schema_name] += 1
            self.asked[request.schema_name] += tokens.prompt
            self.answered[request.schema_name] += tokens.completion
        return ChatReply(text, tokens)

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        """Return the same in one piece."""
        reply = self.complete(request)
        yield from (reply.text, reply)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    @staticmethod
    def _answer(request: ChatRequest) -> dict[str, Any]:
        match request.schema_name:
            case "FactsAnswer":
                facts = []
                for number, speaker, escaped in _LINE.findall(request.messages[-1].content):
                    said = str(json.loads(f'"{escaped}"'))
                    quote = said.split(". ", maxsplit=1)[0][:200]
                    facts.append(
                        {"type": "user", "subject": speaker, "text": quote, "quote": quote, "message": int(number)}
                    )
                if _is_examination(request):
                    return {"facts": [fact for fact in facts if any(word in fact["text"] for word in _EXAMINED)]}
                return {"summary": "What was said.", "facts": facts[::2]}
            case "SummaryAnswer":
                return {"summary": "What was said."}
            case "Judgement":
                return {"verdicts": []}
            case _:
                return {}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what this part asks for."""
    parser.add_argument("--pages", type=int, default=300, help="pages of a conversation with a model (default 300)")


def measure(arguments: argparse.Namespace) -> Report:
    """Return calls and tokens for each hundred pages, by what is asked."""
    model, embedder = Scripted(), MiniLmEmbedder()
    talks = list(_sessions(arguments))
    now = SystemClock().now()
    with (
        tempfile.TemporaryDirectory(prefix="hippocube-calls-") as folder,
        MemOS.open(Path(folder), settings=Settings(), embedder=embedder, chat_model=model) as memos,
    ):
        for number, (talk, said) in enumerate(progress(talks, "talking")):
            at = now - timedelta(hours=6 * (len(talks) - number))
            messages = [{**message, "chat_time": at + timedelta(minutes=n)} for n, message in enumerate(said)]
            memos.add(messages, conversation=talk)
            for message in said[: 2 * _SEARCHES : 2]:
                memos.search(message["content"][:200], top_k=5)
            memos._scheduler.accesses.flush()
            _settle(memos)
        moved = sum(segment.pages for segment in memos.tiers.segments(limit=10_000))
        with memos.ledger.read() as connection:
            read = connection.scalar(sa.select(sa.func.count()).where(pages.c.read.is_(True))) or 0
        facts = len(memos.memories.list(filter={"tier": "long"}, limit=10_000))
    hundred = moved / 100
    calls = {name: round(count / hundred, 1) for name, count in model.calls.items()}
    tokens = {name: round(count / hundred) for name, count in (model.asked + model.answered).items()}
    figures = {
        "n": {"pages": moved, "read": read},
        "model": {
            "calls_per_page": round(model.calls.total() / moved, 3),
            "calls_per_100_pages": calls,
            "tokens_per_100_pages": tokens,
            "facts": facts,
        },
    }
    table = Table(title=f"a scripted model, {moved} pages of the mid tier, {read} of them read", title_justify="left")
    for name in ("asked for", "calls a hundred pages", "tokens a hundred pages"):
        table.add_column(name, justify="right")
    for name, count in calls.items():
        table.add_row(name, f"{count:,}", f"{tokens[name]:,}")
    return Report(figures, tables=[table])


def _sessions(arguments: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield conversation and messages of each session, until there are enough pages."""
    count = 0
    if arguments.data is None:
        dialogues = Dialogues(7)
        for _ in range(arguments.pages // _SESSION):
            yield (
                "talk",
                [
                    {"role": message["role"], "content": message["content"]}
                    for message in dialogues.messages(2 * _SESSION)
                ],
            )
        return
    for chat in load_locomo(arguments.data):
        first = chat.sessions[0].messages[0].name
        for session in chat.sessions:
            if count >= arguments.pages:
                return
            # Two people: what the first says opens a page, as a user's message does.
            said = [
                {
                    "role": "user" if message.name == first else "assistant",
                    "name": message.name or "",
                    "content": message.text,
                }
                for message in session.messages
            ]
            count += sum(message["role"] == "user" for message in said)
            yield chat.name, said


def _settle(memos: MemOS) -> None:
    """Wait for the work that the session caused; what is gathered begins two seconds later."""
    end = time.monotonic() + _SETTLED_S
    while any(not task.ended for task in memos.tasks.list(cubes=["default"], limit=50)):
        if time.monotonic() > end:
            raise RuntimeError("The background work of a session does not end; nothing can be counted.")
        time.sleep(0.05)
