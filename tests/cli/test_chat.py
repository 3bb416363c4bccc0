"""`memos chat`: one question or a talk, from the configured endpoint, over the folder or the server that has it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS
from memos.cli import app as cli
from tests.support.servers.openai_server import OpenAIServer, counted, error, events


class Terminal(io.StringIO):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    said = [events("In Lyon ", "[m1", "].", usage=counted(7, 5)), error(403, "broke"), events("Still in Lyon.")]
    with OpenAIServer(said) as server:
        monkeypatch.setenv("MEMOS_CHAT_MODEL__BASE_URL", server.url)
        monkeypatch.setenv("MEMOS_CHAT_MODEL__MODEL", "m")
        monkeypatch.setenv("MEMOS_TASKS__WORKERS", "0")
        yield server


def run(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as changed, pytest.raises(SystemExit) as ended:
        changed.setattr("sys.argv", ["memos", *arguments])
        cli.main()
    return int(ended.value.code or 0)


def test_a_question_is_answered_with_what_it_cites(
    tmp_path: Path, model: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with MemOS.open(tmp_path) as memos:
        memos.add("My sister Maria lives in Lyon.")
    assert run("chat", "Where does Maria live?", "--data-dir", str(tmp_path)) == 0
    answer, cited = capsys.readouterr().out.strip().splitlines()
    assert answer == "In Lyon."
    assert cited.endswith(" My sister Maria lives in Lyon.")
    assert run("chat", "And now?", "--json", "--data-dir", str(tmp_path)) == 6
    assert run("chat", "And now?", "--json", "--no-store", "--data-dir", str(tmp_path)) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["text"], told["receipt"]) == ("Still in Lyon.", None)
    with MemOS.open(tmp_path) as memos:
        assert len(memos.memories.list()) == 3


def test_a_talk_goes_on_in_one_conversation_and_survives_a_failure(
    tmp_path: Path, model: OpenAIServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing was known, so no mark was shown, and what looks like one is text.
    monkeypatch.setattr("sys.stdin", Terminal("Where does Maria live?\n\nReally?\nStill?\n"))
    assert run("chat", "--data-dir", str(tmp_path)) == 0
    assert "Still in Lyon." in capsys.readouterr().out
    assert [message["content"] for message in model.asked[-1].body["messages"][1:]] == [
        "Where does Maria live?", "In Lyon [m1].", "Still?",
    ]  # fmt: skip
    with MemOS.open(tmp_path) as memos:
        assert len({item.conversation for item in memos.memories.list()}) == 1


def test_without_a_model_it_says_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("chat", "Hello?", "--data-dir", str(tmp_path)) == 6
    assert "MEMOS_CHAT_MODEL__BASE_URL" in capsys.readouterr().err
    assert run("chat", "--json", "--data-dir", str(tmp_path)) == 2
