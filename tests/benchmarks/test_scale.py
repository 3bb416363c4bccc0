"""Each installation answers the same questions, by sessions of their own conversation, and holds as much as asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scale
from benchmarks.data import Message, Question, Session
from benchmarks.everyday import Everyday
from benchmarks.growing import Remembering, Tap
from memos.core.ports import Vector
from tests.benchmarks.samples import BEAM, LOCOMO, write
from tests.fakes import WordEmbedder

DAYS = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 5, 1, tzinfo=UTC))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return two conversations with the same message ids and dates; the other is about other things."""
    other = deepcopy(LOCOMO[0])
    other["sample_id"] = "talk-2"
    texts = iter(("We sold the boat.", "Now I bake bread.", "My roof leaks.", "Call the mayor!"))
    for number in (2, 1):
        for turn in other["conversation"][f"session_{number}"]:
            turn["text"] = next(texts)
    other["qa"] = [{"question": "Who bakes bread?", "answer": "Ana", "evidence": ["D2:2"], "category": 4}]
    return write(tmp_path, "l.json", [*LOCOMO, other])


def test_scale(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "beam_1.json", BEAM)
    out, rows = tmp_path / "out.json", tmp_path / "rows.jsonl"
    arguments = ["--data", str(data), "--memories", "40", "10", "--cubes", "3", "--beam", str(tmp_path)]
    assert scale.main([*arguments, "--out", str(out), "--per-question", str(rows)]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads(out.read_text(encoding="utf-8")) == figures
    assert (figures["benchmark"], figures["n"], figures["left_out"], figures["seed"]) == ("scale", 3, 1, 5)
    stores = figures["by_store"]
    assert {name: (store["memories"], store["cubes"]) for name, store in stores.items()} == {
        "alone": (8, 2), "together": (8, 1), "10": (10, 1), "40": (40, 1), "3 cubes": (28, 3),
    }  # fmt: skip
    # Two sessions of two messages: alone everything is found.
    assert [stores["alone"][name] for name in scale.QUALITY] == [1] * 5
    assert stores["alone"]["drop"] == stores["3 cubes"]["drop"] == dict.fromkeys(scale.QUALITY, 0)
    assert figures["drop"] == stores["40"]["drop"]
    for store in stores.values():
        assert store["search_p95_ms"] >= store["search_p50_ms"] > store["stages_p50_ms"]["embed"] > 0
        assert store["embed_p50_ms"] > 0
        assert store["bytes_per_memory"] > 0
    growth = stores["40"]["search_p50_ms"] / stores["10"]["search_p50_ms"]
    assert figures["growth"] == pytest.approx(growth, abs=1e-3)
    asked: list[dict[str, Any]] = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert [row["conversation"] for row in asked] == ["talk-1", "talk-1", "talk-2"]
    assert all(row.keys() == {"conversation", "category", "question", *stores} for row in asked)


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--memories", "9", "7"], "has 8 messages"), (["--cubes", "1"], "has 2 conversations")]
)
def test_sizes_smaller_than_the_data_are_refused(
    arguments: list[str], said: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scale.main(["--data", str(data), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_same_message_of_another_conversation_is_not_the_one_that_is_wanted() -> None:
    question = Question("What?", "multi-hop", ("D1:2",), None)
    assert scale.row_of([("talk-2/session_1", "D1:2")], "talk-1", question) == {
        "dialog_frac@5": 0, "dialog_frac@10": 0, "session_frac@5": 0, "session_all@5": 0, "multi_hop_session_frac@5": 0,
    }  # fmt: skip
    row = scale.row_of([("talk-1/session_1", "D1:1"), ("talk-2/session_1", "D1:2")], "talk-1", question)
    assert (row["dialog_frac@5"], row["session_frac@5"]) == (0, 1)


def test_small_talk_repeats_with_its_seed_and_seldom_says_the_same() -> None:
    made, again = (list(islice(Everyday(3, ["Ana", "Ben", "Cem"], *DAYS).sessions(), 50)) for _ in range(2))
    assert made == again
    messages = [message for session in made for message in session.messages]
    assert {message.name for message in messages} == {"Ana", "Ben", "Cem"}
    assert all(DAYS[0] <= message.at <= DAYS[1] for message in messages if message.at is not None)
    assert len({message.text for message in messages}) > 0.95 * len(messages)
    assert not any("{" in message.text for message in messages)
    assert len({session.name for session in made}) == len(made)
    strangers = {message.name for message in Everyday(3, None, *DAYS).session(20).messages}
    assert not strangers & {"Ana", "Ben", "Cem"}


def test_a_tap_gives_exactly_as_much_and_goes_on_with_what_it_cut() -> None:
    messages = [Message(str(number), "user", f"text {number}") for number in range(5)]
    tap = Tap([Session("first", tuple(messages[:3])), Session("second", tuple(messages[3:]))])
    assert tap.messages(0) == []
    assert tap.messages(2) == [Session("first", tuple(messages[:2]))]
    assert tap.messages(3) == [Session("first", (messages[2],)), Session("second", tuple(messages[3:]))]


def test_remembered_texts_are_embedded_once_and_no_more_than_there_is_room_for() -> None:
    seen: list[str] = []

    class Noting(WordEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> Vector:
            seen.extend(texts)
            return super().embed_documents(texts)

    remembering = Remembering(Noting(), 2)
    texts = ["one boat", "two boats", "three", "one boat"]
    first, again = remembering.embed_documents(texts), remembering.embed_documents(texts)
    assert first.tolist() == again.tolist() == WordEmbedder().embed_documents(texts).tolist()
    assert seen == ["one boat", "two boats", "three", "three"]
