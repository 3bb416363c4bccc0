"""The figures of answers, and a run of the program with a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import answers
from benchmarks.answer_cache import CachedModel
from benchmarks.answer_metrics import containment, declines, exact_match, token_f1
from memos.core.ports import ChatMessage, ChatRequest
from tests.benchmarks.samples import LOCOMO
from tests.support.scripted_chat import ScriptedChat
from tests.support.servers.openai_server import OpenAIServer, answer, counted


def test_words_are_compared_as_squad_does() -> None:
    assert exact_match("The Paris, of course!", "paris of course") == 1.0
    assert token_f1("In Paris", "Paris") == pytest.approx(2 / 3)
    assert token_f1("in Lyon", "Paris") == 0.0
    assert token_f1("", "Paris") == 0.0


def test_what_the_question_says_already_proves_nothing() -> None:
    assert containment("Rex is a dog.", ["The dog is called Rex."], "What is the dog called?") == 1.0
    assert containment("A dog.", ["The dog is called Rex."], "What is the dog called?") == 0.0
    assert containment("Rex and tea", ["Rex", "coffee"]) == 0.5
    assert containment("Rex", ["dog"], "Is it a dog?") is None


@pytest.mark.parametrize("text", ["I don't know.", "There is no information on that.", "It was not mentioned."])
def test_an_answer_may_decline(text: str) -> None:
    assert declines(text)
    assert not declines("In May, as you told me.")


def test_a_kept_answer_is_not_asked_for_again(tmp_path: Path) -> None:
    model = ScriptedChat(["one"])
    request = ChatRequest((ChatMessage("user", "Hi"),))
    first = CachedModel(model, tmp_path / "answers.jsonl")
    assert (first.complete(request).text, first.complete(request).text) == ("one", "one")
    again = CachedModel(ScriptedChat([]), tmp_path / "answers.jsonl")
    assert again.complete(request).text == "one"
    assert again.calls == 1


def test_every_way_answers_the_same_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    with OpenAIServer([answer("In Lyon [m1].", usage=counted(50, 4))]) as server:
        monkeypatch.setenv("MEMOS_CHAT_MODEL__BASE_URL", server.url)
        monkeypatch.setenv("MEMOS_CHAT_MODEL__MODEL", "m")
        (tmp_path / "locomo.json").write_text(json.dumps(LOCOMO), encoding="utf-8")
        arguments = ["--locomo", str(tmp_path / "locomo.json"), "--questions", "2", "--per-question", str(rows)]
        assert answers.main([*arguments, "--ways", "nothing", "bm25", "ours"]) == 0
    closing = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert closing["n"] == len({row["question"] for row in found}) > 0
    assert {row["way"] for row in found} == {"nothing", "bm25", "ours"}
    assert {way: each["prompt"] for way, each in closing["answers"]["locomo"].items()} == dict.fromkeys(
        ("nothing", "bm25", "ours"), 50.0
    )


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert answers.main([]) == 2
    assert "give at least one file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        answers.main(["--ways", "mem0"])
