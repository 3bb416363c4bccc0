"""Relevance: is it a probability, and does a question that memory cannot answer get nothing? `--data FILE ...`.

Takes LoCoMo files and BEAM chats or folders of them. Each conversation is a cube, asked for ten hits. Answerable are
LoCoMo's questions of categories 1 to 4 with evidence and BEAM's with source ids. Unanswerable are:

- `elsewhere`: the same questions asked of the next conversation of their kind, with its speakers' names;
- `abstention`: BEAM's questions that its chats cannot answer;
- `nonsense`: 40 questions about what no conversation is about, asked of all of them in turn.

A few of `elsewhere` have an answer by chance, so no figure can reach 1. Figures over hits: `ece` (expected calibration
error of ten bins), `brier`, `auc`. Figures over questions, for a threshold: `refused`, the unanswerable ones without a
hit at or above it; of the answerable ones with evidence among the ten hits `kept`, those of which a hit that is
evidence stays, and `kept_first`, those whose first one stays.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.data import BadData, Chat, Question, load_beam, load_locomo
from benchmarks.report import Report, figures_table, output_parser, positive, progress, run
from benchmarks.stores import ask, fill, installation
from memos.core.types import RELEVANT

TOP_K = 10
BINS = 10
THRESHOLDS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5)
ANSWERABLE = "answerable"
UNANSWERABLE = ("elsewhere", "abstention", "nonsense")
_ADVERSARIAL = "adversarial"

NONSENSE = (
    "What is the boiling point of tungsten?",
    "Which moon of Saturn has methane lakes?",
    "How do I reset the carburettor of a lawn mower?",
    "Who won the 1954 chess olympiad?",
    "What is the airspeed of an unladen swallow?",
    "Colourless green ideas sleep furiously, or do they?",
    "Which enzyme unwinds the double helix?",
    "What is the capital of Burkina Faso?",
    "How many bolts hold the keel of a yacht?",
    "blorf wug tamplet quizzical snarg?",
    "What did the Treaty of Westphalia settle?",
    "Which pigment makes a flamingo pink?",
    "asdf jkl qwerty zxcv",
    "How is basalt different from gabbro?",
    "Who composed the opera about the flying Dutchman?",
    "What torque do the cylinder head screws need?",
    "When was the printing press brought to Iceland?",
    "Which tariff applies to imported zinc ingots?",
    "What is the half-life of caesium?",
    "Where do eels spawn?",
    "How deep is the trench off the Marianas?",
    "What does the appendix of a horse do?",
    "Which king dissolved the monasteries?",
    "How do you say glacier in Finnish?",
    "What is the tax rate on diesel in Norway?",
    "Why do cats purr at 25 hertz?",
    "Who holds the patent for the zip fastener?",
    "What is the melting temperature of beeswax?",
    "Which stars form the belt of Orion?",
    "How many teeth has a garden snail?",
    "What are the side effects of streptomycin?",
    "Which gauge do Spanish railways use?",
    "Who was the second emperor of the Tang dynasty?",
    "What colour is the blood of a horseshoe crab?",
    "How is parchment made from goat skin?",
    "Which valve regulates the pressure in a submarine?",
    "What is the atomic number of ytterbium?",
    "When does the permafrost in Yakutsk thaw?",
    "Which knot do climbers call a Prusik?",
    "What is the exchange rate of the Mongolian tugrik?",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question asked of a conversation; without `gold` it has no answer there."""

    conversation: str
    kind: str
    question: Question

    @property
    def gold(self) -> frozenset[str]:
        """Return the ids of the evidence in this conversation."""
        return frozenset(self.question.gold) if self.kind == ANSWERABLE else frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """What a question found: the relevance of each hit, and which hits are evidence."""

    kind: str
    relevance: tuple[float, ...]
    gold: tuple[bool, ...]


def load(paths: Sequence[Path]) -> list[list[Chat]]:
    """Return the conversations of the files by kind: LoCoMo's, then BEAM's. Raises: BadData."""
    locomo, beam = [], []
    for path in paths:
        if _is_locomo(path):
            locomo += load_locomo(path)
        else:
            beam += load_beam(path)
    names = [chat.name for chat in (*locomo, *beam)]
    if len(set(names)) < len(names):
        raise BadData(paths[-1], "has a conversation that an earlier file has, too")
    return [chats for chats in (locomo, beam) if chats]


def _is_locomo(path: Path) -> bool:
    """Return True for a file with a list; load_beam says what is wrong with all others."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(64).lstrip().startswith("[")
    except (OSError, UnicodeDecodeError):
        return False


def questions(kinds: Sequence[Sequence[Chat]]) -> list[Asked]:
    """Return all questions, those of one conversation together."""
    asked: dict[str, list[Asked]] = {chat.name: [] for chats in kinds for chat in chats}
    for chats in kinds:
        for place, chat in enumerate(chats):
            own = [question for question in chat.questions if question.kind not in (_ADVERSARIAL, "abstention")]
            other = chats[(place + 1) % len(chats)]
            asked[chat.name] += [Asked(chat.name, ANSWERABLE, question) for question in own]
            asked[chat.name] += [Asked(chat.name, "abstention", question) for question in chat.abstentions]
            if other is not chat:
                asked[other.name] += [Asked(other.name, "elsewhere", renamed(each, chat, other)) for each in own]
    every = [chat for chats in kinds for chat in chats]
    for place, text in enumerate(NONSENSE):
        chat = every[place % len(every)]
        asked[chat.name].append(Asked(chat.name, "nonsense", Question(text, "nonsense", (), chat.questions[0].asked)))
    return [each for of_one in asked.values() for each in of_one]


def renamed(question: Question, chat: Chat, other: Chat) -> Question:
    """Return a question with the other conversation's speakers and time."""
    text = question.text
    others = dict(zip(_speakers(chat), _speakers(other), strict=False))
    if others:
        names = re.compile(rf"\b(?:{'|'.join(map(re.escape, others))})\b")
        text = names.sub(lambda found: others[found[0]], text)
    return Question(text, question.kind, (), other.questions[0].asked)


def _speakers(chat: Chat) -> list[str]:
    said = (message.name for session in chat.sessions for message in session.messages)
    return list(dict.fromkeys(name for name in said if name is not None))


def measure(arguments: argparse.Namespace) -> Report:
    """Ask every question and compare the relevance of its hits with what they are."""
    kinds = load(arguments.data)
    asked = questions(kinds)[: arguments.limit]
    sessions = {chat.name: chat.sessions for chats in kinds for chat in chats}
    found: list[Found] = []
    rows: list[dict[str, Any]] = []
    filled = set()
    with installation() as memos:
        for each in progress(asked, "Relevance"):
            if each.conversation not in filled:
                fill(memos, each.conversation, sessions[each.conversation])
                filled.add(each.conversation)
            hits = ask(memos, each.conversation, each.question.text, asked=each.question.asked, top_k=TOP_K).hits
            gold = tuple(any(source.external_id in each.gold for source in hit.sources) for hit in hits)
            found.append(Found(each.kind, tuple(hit.relevance for hit in hits), gold))
            rows.append(
                {
                    "conversation": each.conversation,
                    "kind": each.kind,
                    "question": each.question.text,
                    "hits": [[round(hit.relevance, 4), is_gold] for hit, is_gold in zip(hits, gold, strict=True)],
                }
            )
    return _report(found, rows)


def _report(found: Sequence[Found], rows: list[dict[str, Any]]) -> Report:
    relevance = np.array([each for one in found for each in one.relevance])
    gold = np.array([each for one in found for each in one.gold])
    bins = list(reliability(relevance, gold))
    thresholds = {f"{least:g}": at_threshold(found, least) for least in sorted({*THRESHOLDS, RELEVANT})}
    figures = {
        "n": len(found),
        "by_kind": {kind: sum(one.kind == kind for one in found) for kind in (ANSWERABLE, *UNANSWERABLE)},
        "hits": len(gold),
        "ece": expected_error(bins),
        "brier": float(np.mean((relevance - gold) ** 2)),
        "auc": area(relevance, gold),
        "recommended": RELEVANT,
        **at_threshold(found, RELEVANT),
        "reliability": bins,
        "thresholds": thresholds,
    }
    return Report(figures, rows, _tables(figures))


def reliability(relevance: np.ndarray, gold: np.ndarray) -> Iterator[dict[str, float]]:
    """Yield the bins that have hits: their mean relevance, the share that is evidence, and how many they are."""
    place = np.minimum((relevance * BINS).astype(int), BINS - 1)
    for number in range(BINS):
        inside = place == number
        if inside.any():
            yield {
                "from": number / BINS,
                "relevance": float(relevance[inside].mean()),
                "gold": float(gold[inside].mean()),
                "n": int(inside.sum()),
            }


def expected_error(bins: Sequence[Mapping[str, float]]) -> float:
    """Return the distance of the bins from the diagonal, weighted by their hits."""
    total = sum(each["n"] for each in bins)
    return sum(each["n"] * abs(each["relevance"] - each["gold"]) for each in bins) / total


def area(scores: np.ndarray, gold: np.ndarray) -> float | None:
    """Return the area under the ROC curve; None if all hits are evidence, or none is."""
    right, wrong = np.sort(scores[gold]), scores[~gold]
    if not len(right) or not len(wrong):
        return None
    below = np.searchsorted(right, wrong, "left") + np.searchsorted(right, wrong, "right")
    return float(1 - below.mean() / 2 / len(right))


def at_threshold(found: Sequence[Found], least: float) -> dict[str, float | None]:
    """Return the shares of questions refused and kept if hits below a relevance are left out."""
    stays = [
        [each >= least for each, is_gold in zip(one.relevance, one.gold, strict=True) if is_gold]
        for one in found
        if any(one.gold)
    ]
    figures = {
        "refused": _share([max(one.relevance, default=0.0) < least for one in found if one.kind in UNANSWERABLE]),
        "kept": _share([any(each) for each in stays]),
        "kept_first": _share([each[0] for each in stays]),
    }
    for kind in UNANSWERABLE:
        refused = [max(one.relevance, default=0.0) < least for one in found if one.kind == kind]
        figures[f"refused_{kind}"] = _share(refused)
    return figures


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _tables(figures: Mapping[str, Any]) -> list[Table]:
    curve = {f"{each['from']:.1f} to {each['from'] + 1 / BINS:.1f}": each for each in figures["reliability"]}
    columns = list(next(iter(figures["thresholds"].values())))
    return [
        figures_table(f"Relevance of {figures['hits']} hits", ("ece", "brier", "auc"), {"hippocube": figures}),
        figures_table("Reliability", ("relevance", "gold", "n"), curve),
        figures_table(f"Thresholds; recommended: {RELEVANT:g}", columns, figures["thresholds"]),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    parser = output_parser(__doc__)
    files = "LoCoMo files, and BEAM chats or folders"
    parser.add_argument("--data", type=Path, required=True, nargs="+", metavar="PATH", help=files)
    parser.add_argument("--per-question", type=Path, metavar="FILE", help="write one line of JSON a question")
    parser.add_argument("--limit", type=positive, metavar="N", help="a quick version: only the first N questions")
    return run("relevance", parser.parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
