"""The messages and questions in eight languages have their shape, and the program runs from arguments to its line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import languages
from benchmarks.data import BadData
from benchmarks.languages import LANGUAGES, Language, load
from memos.backends.encoders.bm25 import QdrantBm25
from tests.benchmarks.samples import write

FLOORS = ["fusion", "bm25", "minilm", "random"]
_SCRIPTS = {
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "ja": re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
}


def test_there_are_fifty_questions_and_everything_is_in_every_language() -> None:
    data = load()
    said = [message for session in data.sessions for message in session.messages]
    assert (len(data.questions), len(data.people), tuple(data.languages)) == (50, 3, LANGUAGES)
    assert len(said) >= 120
    assert sum(len(question.evidence) > 1 for question in data.questions) >= 5
    assert sorted(session.at for session in data.sessions) == [session.at for session in data.sessions]
    for language in LANGUAGES:
        for texts in (said, data.questions):
            assert len({each.text(language) for each in texts}) == len(texts)
        for each in [*said, *data.questions]:
            scripts = {name for name, script in _SCRIPTS.items() if script.search(each.text(language))}
            assert (language in scripts) is (language in _SCRIPTS)


def test_each_language_is_asked_of_its_own_messages_and_of_english_ones() -> None:
    data = load()
    assert data.pairs(["en", "zh"]) == [("en", "en"), ("zh", "zh"), ("zh", "en"), ("en", "zh")]
    assert len(data.pairs()) == len(set(data.pairs())) == 22


def test_one_persons_questions_stand_among_everybodys_messages() -> None:
    everybody, noor = load(), load(languages.OWN)
    data = languages.asked_of(everybody, noor)
    chat = data.chat("de", "de")
    assert {question.kind for question in noor.questions} == {"time", "request", "instruction"}
    assert data.languages == everybody.languages
    assert len(chat.sessions) == len(everybody.sessions) + len(noor.sessions)
    assert [question.text for question in chat.questions] == [question.de for question in noor.questions]
    assert len({question.asked for question in chat.questions}) > 1


@pytest.mark.parametrize(("language", "most"), [("en", 0), ("zh", 0.2)])
def test_half_of_the_questions_have_other_words_than_their_evidence(language: Language, most: float) -> None:
    data, terms = load(), QdrantBm25()
    said = {message.id: message.text(language) for session in data.sessions for message in session.messages}
    names = set(terms.encode_query(" ".join(person.text(language) for person in data.people.values())).indices.tolist())
    shares = []
    for question in data.questions:
        asked = set(terms.encode_query(question.text(language)).indices.tolist()) - names
        told = terms.encode_document(" ".join(said[name] for name in question.evidence)).indices.tolist()
        shares.append(len(asked & set(told)) / len(asked))
    assert 25 <= sum(share <= most for share in shares) < 50


def test_a_pair_of_languages() -> None:
    chat = load().chat("zh", "en")
    first = chat.sessions[0].messages[0]
    assert (chat.name, first.id, first.name, first.role) == ("zh-en", "1-1", "Wen", "user")
    assert first.text.startswith("I signed the lease")
    assert chat.questions[0].text == "小雯的房租是多少？"
    assert chat.questions[0].asked == chat.sessions[-1].messages[0].at
    assert load().chat("en", "zh").sessions[0].messages[0].name == "小雯"


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw["questions"][0].update(evidence=["99-1"]),
        lambda raw: raw["questions"][0].update(evidence=[]),
        lambda raw: raw["questions"][0].pop("zh"),
        lambda raw: raw["questions"][1].update(id="q01"),
        lambda raw: raw["sessions"][0]["messages"][0].update(speaker="nobody"),
        lambda raw: raw["sessions"][0]["messages"][0].update(id="1-2"),
        lambda raw: raw["sessions"][0].update(at="2026-01-10T18:20:00"),
    ],
)
def test_another_shape_is_refused(change: Callable[[dict[str, Any]], object], tmp_path: Path) -> None:
    raw = json.loads(languages.FILE.read_text(encoding="utf-8"))
    change(raw)
    (file := tmp_path / "l.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(BadData, match="is no file of languages"):
        load(file)


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = json.loads(languages.FILE.read_text(encoding="utf-8"))
    few = {**raw, "sessions": raw["sessions"][:1], "questions": raw["questions"][:6]}
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.json"
    files = ["--data", str(write(tmp_path, "few.json", few)), "--per-question", str(rows), "--out", str(out)]
    assert languages.main(["--embedders", "minilm", "--limit", "4", "--languages", "en", "zh", *files]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures == json.loads(out.read_text(encoding="utf-8"))
    assert (figures["benchmark"], figures["n"], figures["messages"]) == ("languages", 4, 10)
    pairs = figures["embedders"]["minilm"]
    assert list(pairs) == ["en-en", "zh-zh", "zh-en", "en-zh"]
    for found in pairs.values():
        assert 0 <= found["hit@1"] <= found["hit@5"] <= found["hit@10"] <= 1
        assert 0 <= found["frac@10"] <= found["hit@10"]
        assert found["search_p50_ms"] > 0
        assert list(found["floors"]) == FLOORS
    assert pairs["en-en"]["hit@10"] == 1  # of ten messages
    written = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in written] == ["q01", "q02", "q03", "q04"] * 4
    assert written[0].keys() == {"embedder", "pair", "id", "kind", "question", "search_ms", "hippocube", *FLOORS}
