"""How well the configured model reads labelled messages, beside reading by pattern on the same ones.

It needs an endpoint: MEMOS_CHAT_MODEL__BASE_URL and MEMOS_CHAT_MODEL__MODEL, or those of the reader.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import labelled
from benchmarks.answer_cache import CachedModel
from benchmarks.data import BadData
from benchmarks.labelled import Labelled
from benchmarks.reading_quality import ZONE, item_of
from benchmarks.report import Report, figures_table, positive, progress
from memos.backends.openai.chat import OpenAIChat
from memos.core.settings import Settings
from memos.core.types import Fact, Item
from memos.errors import BackendTimeout, ModelError
from memos.llm.client import LLMClient, ResponseCache
from memos.llm.usage import UsageMeter
from memos.reader.facts import extractor as choosing
from memos.reader.facts import patterns as fact_patterns
from memos.reader.facts.extractor import Extraction, FactReader, facts_by_choice

_PART = "held_out"
_SHOWN = (
    "stored",
    "precision",
    "junk",
    "misread",
    "recall",
    "failed",
    "by pattern",
    "calls",
    "tokens",
    "prefix",
    "seconds",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the part `model` takes."""
    parser.add_argument("--sample", type=positive, metavar="N", help="only N of the held-out messages, evenly taken")
    parser.add_argument("--within", type=positive, metavar="S", help="ask for no more messages after so many seconds")
    parser.add_argument(
        "--cache", type=Path, metavar="FILE", help="answers by digest of their prompt, kept in this file"
    )
    parser.add_argument(
        "--unexamined", action="store_true", help="also: what the model chooses when nobody asks whether it can tell"
    )


@contextmanager
def configured(cache: Path | None = None) -> Iterator[tuple[str, Callable[[], LLMClient]]]:
    """Lend the configured model's name and its asker, which remembers what `cache` keeps. Raises: BadData."""
    settings = Settings().model_for("reader")
    if settings is None:
        raise BadData(Path("MEMOS_CHAT_MODEL__BASE_URL"), "is not set: there is no model to ask")
    with closing(CachedModel(OpenAIChat(settings), cache)) as model:
        yield model.name, lambda: LLMClient(model, ResponseCache(0), max_tokens=settings.max_tokens)


def measure(arguments: argparse.Namespace) -> Report:
    """Read held-out messages one by one with the model, and by pattern. Raises: BadData without a model."""
    messages = [message for message in labelled.load() if message.part == _PART]
    step = max(1, len(messages) // (arguments.sample or len(messages)))
    messages = messages[::step][: arguments.sample]
    examination = _Reading()
    with configured(arguments.cache) as (name, asker):
        reader = FactReader(asker)
        begun = perf_counter()
        reader.read([item_of(messages[0], 0)], ZONE, examination.meter)  # the first reading examines the model
        examination.seconds = perf_counter() - begun
        read = {name: _read(messages, arguments.within, lambda items, meter: reader.read(items, ZONE, meter))}
        if arguments.unexamined:

            def chosen(items: list[Item], meter: UsageMeter) -> Extraction:
                return Extraction(tuple(facts_by_choice(asker(), items, ZONE, meter)[0]), choosing.READER)

            read["its choices, unexamined"] = _read(messages, arguments.within, chosen)
    patterns = FactReader(lambda: None)
    read["patterns"] = _read(messages, None, lambda items, meter: patterns.read(items, ZONE, meter))
    rows = {name: each.figures() for name, each in read.items()}
    table = figures_table(f"{len(messages)} held-out messages", _SHOWN, rows)
    spent = examination.meter.spent
    took = {"calls": spent.calls, "tokens": spent.tokens, "seconds": round(examination.seconds, 1)}
    return Report({"n": len(messages), "rows": rows, "examination": took}, tables=[table])


@dataclass(slots=True)
class _Reading:
    """Messages with what was read in them, and what that took."""

    read: list[tuple[Labelled, Sequence[Fact]]] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    rejected: int = 0
    by_pattern: int = 0
    seconds: float = 0.0
    meter: UsageMeter = field(default_factory=lambda: UsageMeter("bench"))

    def figures(self) -> dict[str, Any]:
        total = labelled.score(self.read)[_PART, "all"]
        return total.figures() | {
            "junk items": total.junk, "misread": total.misread, "failed": self.failed.total(),
            "by pattern": self.by_pattern, "rejected": self.rejected, "calls": self.meter.spent.calls,
            "tokens": self.meter.spent.tokens, "prefix": self._prefix(), "seconds": round(self.seconds, 1),
        }  # fmt: skip

    def _prefix(self) -> float | None:
        """Return the share of the prompts' tokens that the server had in memory."""
        spent = self.meter.spent
        return spent.prefix_tokens / spent.prompt_tokens if spent.prompt_tokens else None


def _read(
    messages: Sequence[Labelled], within: float | None, how: Callable[[list[Item], UsageMeter], Extraction]
) -> _Reading:
    done, begun = _Reading(), perf_counter()
    for message in progress(messages, "reading"):
        if within is not None and perf_counter() - begun > within:
            break
        try:
            found = how([item_of(message, 0)], done.meter)
        except (ModelError, BackendTimeout) as error:  # as in `add`: the message stays, and nothing is found
            done.failed[type(error).__name__] += 1
            done.read.append((message, ()))
            continue
        done.read.append((message, found.facts))
        done.rejected += found.rejected
        done.by_pattern += found.reader == fact_patterns.READER
    done.seconds = perf_counter() - begun
    return done
