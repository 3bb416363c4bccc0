"""Loaders read the published formats and answer anything else with one sentence and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import beam, latency, locomo, longmemeval, prefeval
from benchmarks.data import (
    BadData,
    asked_instead,
    first_questions,
    load_beam,
    load_locomo,
    load_longmemeval,
    load_prefeval,
)
from tests.benchmarks.samples import BEAM, LOCOMO, LONGMEMEVAL, PREFEVAL, write

PROGRAMS = [(locomo, LOCOMO), (prefeval, PREFEVAL), (beam, BEAM), (longmemeval, LONGMEMEVAL)]


def test_locomo(tmp_path: Path) -> None:
    [chat] = load_locomo(write(tmp_path, "l.json", LOCOMO))
    assert [session.name for session in chat.sessions] == ["session_1", "session_2"]
    first, _ = chat.sessions[0].messages
    assert (first.id, first.name, first.role) == ("D1:1", "Ana", "user")
    assert first.at == datetime(2024, 3, 1, 16, 30, tzinfo=UTC)
    assert chat.sessions[1].messages[0].text == "My sister was here in Porto. [image: a tram]"
    assert [(q.kind, q.gold) for q in chat.questions] == [("single-hop", ("D1:1",)), ("multi-hop", ("D1:2", "D2:1"))]
    assert chat.questions[0].asked == datetime(2024, 3, 3, 0, 5, tzinfo=UTC)
    assert chat.left_out == 1


ENTRY = {"conversation": "talk-1", "question": "Who plays and travels?", "asked": "谁会拉琴？"}


def test_questions_in_other_words_keep_what_they_are_asked_for(tmp_path: Path) -> None:
    [chat] = asked_instead(load_locomo(write(tmp_path, "l.json", LOCOMO)), write(tmp_path, "q.json", [ENTRY]))
    [question] = chat.questions
    assert (question.text, question.kind, question.gold) == ("谁会拉琴？", "multi-hop", ("D1:2", "D2:1"))
    assert (len(chat.sessions), chat.left_out) == (2, 0)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([{**ENTRY, "conversation": "talk-2"}], "names no question with evidence in 'talk-2'"),
        ([{**ENTRY, "question": "What is the fish called?"}], "names no question with evidence"),  # has no evidence
        ([ENTRY, ENTRY], "once"),
        ([{**ENTRY, "asked": " "}], "needs words to ask"),
        ([{**ENTRY, "answer": "Ben"}], "is not a questions file: at 0.answer"),
        ({}, "is not a questions file"),
        ([], "names no question"),
    ],
)
def test_other_words_for_what_is_not_there_are_refused(tmp_path: Path, entries: object, why: str) -> None:
    chats = load_locomo(write(tmp_path, "l.json", LOCOMO))
    with pytest.raises(BadData, match=why):
        asked_instead(chats, write(tmp_path, "q.json", entries))


def test_prefeval(tmp_path: Path) -> None:
    data = load_prefeval(write(tmp_path, "p.json", PREFEVAL))
    assert data.pairs[0] == ("food", "I never eat peanuts.", "Which snack shall I bring?")
    assert [message.id for message in data.distractors[0].messages] == ["0:0", "0:1"]


def test_other_pairs_stand_beside_the_same_distractors(tmp_path: Path) -> None:
    data = load_prefeval(
        write(tmp_path, "p.json", PREFEVAL), write(tmp_path, "o.json", {"pairs": PREFEVAL["pairs"][1:]})
    )
    assert len(data.pairs) == len(PREFEVAL["pairs"]) - 1
    assert data.distractors
    with pytest.raises(BadData, match="pairs of preferences"):
        load_prefeval(write(tmp_path, "p.json", PREFEVAL), write(tmp_path, "n.json", {"pairs": []}))


@pytest.mark.parametrize("name", ["usual", "free"])
def test_our_own_pairs_are_in_other_topics_and_each_is_there_once(name: str, tmp_path: Path) -> None:
    own = Path(prefeval.__file__).parent / f"preferences_{name}.json"
    pairs = load_prefeval(write(tmp_path, "p.json", PREFEVAL), own).pairs
    assert len(pairs) == len({preference for _, preference, _ in pairs}) == 250
    assert len({topic for topic, _, _ in pairs}) == 25


def test_beam(tmp_path: Path) -> None:
    write(tmp_path, "locomo.json", LOCOMO)
    path = write(tmp_path, "beam_1.json", BEAM)
    [chat] = load_beam(tmp_path)
    assert [chat] == load_beam(path)
    said = [message for session in chat.sessions for message in session.messages]
    assert [message.at.month for message in said if message.at] == [3, 3, 3, 4, 4]
    assert said[0].text.endswith("->-> 1,1")
    assert [q.gold for q in chat.questions] == [("2", "3"), ("2", "4")]
    assert chat.left_out == 1


def test_longmemeval(tmp_path: Path) -> None:
    answerable, abstention = load_longmemeval(write(tmp_path, "m.json", LONGMEMEVAL))
    assert answerable.questions[0].gold == ("answer_s2",)
    assert answerable.questions[0].asked == datetime(2023, 5, 30, 10, tzinfo=UTC)
    assert (abstention.questions, abstention.left_out) == ((), 1)


def test_a_limit_takes_the_first_questions_and_drops_chats_without(tmp_path: Path) -> None:
    second = {**LOCOMO[0], "sample_id": "talk-2"}
    chats = load_locomo(write(tmp_path, "l.json", [LOCOMO[0], second]))
    assert [len(chat.questions) for chat in first_questions(chats, 3)] == [2, 1]
    assert [chat.name for chat in first_questions(chats, 2)] == ["talk-1"]
    assert len(first_questions(chats, None)) == 2


@pytest.mark.parametrize(("program", "sample"), PROGRAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_file_that_is_not_one_is_refused_in_one_sentence(
    program: ModuleType, sample: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = write(tmp_path, "whole.json", sample).read_text(encoding="utf-8")
    bad = {
        tmp_path / "missing.json": "does not exist",
        write(tmp_path, "cut.json", whole[: len(whole) // 2]): "perhaps cut off",
        write(tmp_path, "empty.json", ""): "perhaps cut off",
        write(tmp_path, "other.json", {"rows": [1]}): "file: at",
        write(tmp_path, "list.json", [1, 2]): "file: at",
        write(tmp_path, "deep.json", "[" * 100_000): "perhaps cut off",
    }
    (tmp_path / "latin.json").write_bytes('"caf\xe9"'.encode("latin-1"))
    bad[tmp_path / "latin.json"] = "cannot be read"
    for path, why in bad.items():
        assert program.main(["--data", str(path)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        [sentence] = printed.err.strip().splitlines()
        assert sentence.startswith(f"error: {path} ")
        assert why in sentence


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    data = write(tmp_path, "l.json", LOCOMO)
    assert locomo.main(["--data", str(data), "--out", str(nowhere / "out.json")]) == 2
    assert locomo.main(["--data", str(data), "--per-question", str(tmp_path)]) == 2
    assert latency.main(["--memories", "10", "--folder", str(nowhere)]) == 2
    assert capsys.readouterr().err.count("\n") == 3


def changed(sample: Any, change: Callable[[Any], object]) -> Any:
    copy = deepcopy(sample)
    change(copy)
    return copy


@pytest.mark.parametrize(
    ("load", "sample", "why"),
    [
        (load_locomo, changed(LOCOMO, lambda s: s[0]["conversation"].update(session_1_date_time="soon")), "a date"),
        (load_locomo, changed(LOCOMO, lambda s: s[0]["conversation"].pop("session_1_date_time")), "a date"),
        (load_locomo, changed(LOCOMO, lambda s: s[0]["qa"][0].update(category=7)), "0.qa.0.category"),
        (load_locomo, changed(LOCOMO, lambda s: s[0].update(qa=[])), "no LoCoMo question"),
        (load_locomo, [LOCOMO[0], LOCOMO[0]], "same name"),
        (load_locomo, [], "no LoCoMo question"),
        (load_prefeval, {**PREFEVAL, "pairs": []}, "pairs"),
        (load_beam, changed(BEAM, lambda s: s["chat"][0]["turns"][0][0].update(time_anchor="May")), "a date"),
        (load_beam, {**BEAM, "questions": {}}, "no BEAM question"),
        (load_longmemeval, [{**LONGMEMEVAL[0], "haystack_dates": []}], "one date a session"),
        (load_longmemeval, [LONGMEMEVAL[1]], "no LongMemEval question"),
    ],
)
def test_contents_that_do_not_fit_are_named(load: Callable[[Path], Any], sample: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=why):
        load(write(tmp_path, "x.json", sample))


def test_a_folder_without_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"no \.json file"):
        load_beam(tmp_path)
