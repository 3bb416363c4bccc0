"""Fit the weights of `memos.search.long_messages` to chats in BEAM's format, and print them.

    python -m scripts.long_messages.fit --chats ../shared/bench/data ../shared/bench/long

Of each question, the user's messages among the twenty best by BM25 are compared. For a question whose evidence changed,
the newest evidence replaces the older; no other message replaces evidence. Prints the share of questions with the
newest evidence first, and with any evidence first, without and with the weights, each chat by those of the others.
Takes a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from benchmarks.beam import TWO_SIDED
from benchmarks.data import load_beam
from benchmarks.floors import TermIndex
from benchmarks.metrics import newest_first
from memos.backends.encoders.bm25 import QdrantBm25
from memos.search.long_messages import Said, features, log_odds, newest_places, sentences_for, wants_newest
from memos.search.question import read_question

CONSIDERED, CHANGED_WEIGHT, RIDGE = 20, 4.0, 1.0
ASKED_AT = datetime(2026, 1, 1, tzinfo=UTC)
SEVERAL = ("event_ordering", "summarization", "multi_session_reasoning")  # abilities that want all of the evidence


class Asked(NamedTuple):
    """A question, and its best candidates: each one's place in the chat, and whether the user said it."""

    chat: str
    ability: str
    text: str
    gold: tuple[int, ...]
    found: list[int]
    own: list[bool]
    said: list[Said]


def questions(paths: Sequence[Path]) -> list[Asked]:
    """Return every question of the chats with its candidates."""
    asked = []
    for path in paths:
        for chat in load_beam(path):
            messages = [message for session in chat.sessions for message in session.messages]
            places = {message.id: place for place, message in enumerate(messages)}
            terms = TermIndex([message.text for message in messages], QdrantBm25())
            for question in chat.questions:
                found = (-terms.scores(question.text)).argsort(kind="stable")[:CONSIDERED].tolist()
                texts = [messages[place].text[:2000] for place in found]
                own = [messages[place].role == "user" and len(messages[place].text.split()) > 10 for place in found]
                gold = tuple(dict.fromkeys(places[id_] for id_ in question.gold))
                said = sentences_for(question.text, texts)
                asked.append(Asked(chat.name, question.kind, question.text, gold, found, own, said))
    return asked


def pairs(question: Asked) -> list[tuple[list[float], bool]]:
    """Return the features of pairs of which it is known whether the newer message replaces the older one."""
    changed = question.ability in TWO_SIDED and len(question.gold) > 1
    if question.ability in SEVERAL:
        return []
    known = []
    for i, older in enumerate(question.found):
        for j, newer in enumerate(question.found):
            if newer <= older or not (question.own[i] and question.own[j]) or older not in question.gold:
                continue
            replaced = changed and newer == question.gold[-1]
            if not replaced and (newer in question.gold or (changed and older != question.gold[-1])):
                continue
            if max(question.said[i].covered, question.said[j].covered) >= 0.2:
                known.append((features(question.text, question.said[i], question.said[j]), replaced))
    return known


def fitted(known: Sequence[tuple[list[float], bool]]) -> Any:
    """Return weights and bias, (features + 1,), of a logistic regression with a ridge, by Newton's method."""
    x = np.array([[*row, 1.0] for row, _ in known])
    y = np.array([replaced for _, replaced in known], dtype=float)
    scale = np.append(x[:, :-1].std(0) + 1e-6, 1.0)
    z, weight = x / scale, np.where(y == 1, CHANGED_WEIGHT, 1.0)
    ridge = RIDGE * np.append(np.ones(z.shape[1] - 1), 0.0)
    w = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-z @ w))
        hessian = (z.T * (weight * p * (1 - p))) @ z + np.diag(ridge + 1e-9)
        w -= np.linalg.solve(hessian, z.T @ (weight * (p - y)) + ridge * w)
    return w / scale


def ranked(question: Asked, weights: Sequence[float]) -> list[int]:
    """Return the candidates with the newer of two in the place of the older one."""

    def replaced(older: int, newer: int) -> bool:
        return log_odds(question.text, question.said[older], question.said[newer], weights) > 0

    own = [place for place, told in enumerate(question.own) if told]
    places: dict[int, float] = {}
    if wants_newest(read_question(question.text, ASKED_AT, ZoneInfo("UTC"))):
        places = newest_places(sorted(own, key=question.found.__getitem__), replaced)
    order = sorted(range(len(question.found)), key=lambda place: (places.get(place, float(place)), place))
    return [question.found[place] for place in order]


def main() -> None:
    """Parse arguments, fit, print."""
    parser = argparse.ArgumentParser(description="Fit the weights of memos.search.long_messages.")
    parser.add_argument("--chats", type=Path, nargs="+", required=True, help="folders or files of BEAM chats")
    asked = questions(parser.parse_args().chats)
    by_chat = {chat: [each for each in asked if each.chat == chat] for chat in {each.chat for each in asked}}
    figures: dict[str, list[float]] = {"newest before": [], "newest after": [], "any before": [], "any after": []}
    for chat, mine in sorted(by_chat.items()):
        w = fitted([pair for other, theirs in by_chat.items() if other != chat for q in theirs for pair in pairs(q)])
        for question in mine:
            before = question.found
            after = ranked(question, w)
            for name, order in (("before", before), ("after", after)):
                figures[f"any {name}"].append(float(order[0] in question.gold))
                first = newest_first(order, question.gold) if question.ability in TWO_SIDED else None
                if first is not None:
                    figures[f"newest {name}"].append(first)
    for name, values in figures.items():
        print(f"{name}: {np.mean(values):.3f} of {len(values)}")
    w = fitted([pair for question in asked for pair in pairs(question)])
    print("weights and bias", [round(float(each), 2) for each in w])


if __name__ == "__main__":
    main()
