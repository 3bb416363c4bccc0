"""`memos model test`: a model is tried task by task, and what it is trusted with is said in plain words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from memos.cli.shared import console
from memos.reader.facts.extractor import KNOWN, WRITTEN
from memos.scheduler.jobs import judge
from tests.cli.test_chat import run
from tests.support.scripted_chat import PASSING
from tests.support.servers.openai_server import Asked, OpenAIServer, Said, answer, error


def able(asked: Asked) -> Said:
    """Answer everything that the trial asks as a good model does."""
    text = asked.body["messages"][-1]["content"]
    lasts = dict(KNOWN).get(text.removeprefix("Sentence: "))
    if lasts is not None:
        return answer("Fact" if lasts else "Nothing")
    if all(said in text for said, _ in WRITTEN):
        return answer(PASSING)
    changes = [newer for _, newer, changed in judge.KNOWN if changed]
    if text.startswith("Earlier: "):
        return answer("Yes" if any(newer in text for newer in changes) else "No")
    replies = {"sister": "In Graz [m1].", "dentist": "On Friday [m2].", "dog": "I don't know."}
    return answer(next(reply for word, reply in replies.items() if word in text))


def trusted(
    script: Callable[[Asked], Said], home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, bool]]:
    with OpenAIServer(script) as server:
        monkeypatch.setenv("MEMOS_CHAT_MODEL__BASE_URL", server.url)
        monkeypatch.setenv("MEMOS_CHAT_MODEL__MODEL", "m")
        assert run("model", "test", "--json", "--data-dir", str(home)) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["calls"] == len(server.asked)
        return found["calls"], {each["task"]: each["trusted"] for each in found["tasks"]}


def test_a_model_is_trusted_with_what_it_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, tasks = trusted(able, tmp_path, monkeypatch, capsys)
    assert tasks == dict.fromkeys(("choosing", "writing", "judging", "answering"), True)
    assert calls == len(KNOWN) + 1 + len(judge.KNOWN) + 3


def test_a_model_that_answers_nonsense_is_trusted_with_nothing_and_spared_the_long_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, tasks = trusted(lambda _: answer("Certainly!"), tmp_path, monkeypatch, capsys)
    assert tasks == dict.fromkeys(("choosing", "writing", "judging", "answering"), False)
    assert calls == len(KNOWN) + len(judge.KNOWN) + 3


def test_it_is_told_in_words_and_needs_a_model_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "width", 200)
    assert run("model", "test", "--data-dir", str(tmp_path)) == 6
    assert "MEMOS_CHAT_MODEL__BASE_URL" in capsys.readouterr().err
    with OpenAIServer(able) as server:
        monkeypatch.setenv("MEMOS_CHAT_MODEL__BASE_URL", server.url)
        monkeypatch.setenv("MEMOS_CHAT_MODEL__MODEL", "m")
        assert run("model", "test", "--data-dir", str(tmp_path)) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "kept 20 of 20 sentences that last, and 0 of 20 others" in told
    assert "it judges whether a statement replaces an older one" in told
    with OpenAIServer([error(401, "wrong key")]) as server:
        monkeypatch.setenv("MEMOS_CHAT_MODEL__BASE_URL", server.url)
        assert run("model", "test", "--data-dir", str(tmp_path)) != 0
    assert "API_KEY" in capsys.readouterr().err
