"""A configured model judges what the rules leave open: stored, retried, examined first, and never above a person."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.ports import ChatReply, ChatRequest
from memos.core.settings import IndexSettings, LimitSettings
from memos.core.tokens import Tokens
from memos.core.types import LinkKind, Relation, Task
from memos.errors import BackendUnavailable
from memos.memcube.ledger.relations import MODEL
from memos.scheduler.jobs import judge
from memos.scheduler.jobs.judge import KNOWN
from tests.support.scripted_chat import Answer, ScriptedChat

BEGAN = datetime(2025, 3, 1, 9, tzinfo=UTC)
SETTINGS = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
OLD, NEW = "My phone is a Pixel 6.", "The Pixel drowned, an iPhone 15 it is."
PAIR = re.compile(r"Earlier: (.*)\nLater: (.*)\n")


def asked(request: ChatRequest) -> tuple[str, str]:
    found = PAIR.match(request.messages[-1].content)
    assert found is not None
    return found[1], found[2]


def model(changed: Callable[[str, str], Answer], examined: bool = True) -> ScriptedChat:
    """A model that passes its examination, or answers it all the same, and judges other pairs by `changed`."""
    right = {(older, newer): changes for older, newer, changes in KNOWN}

    def answer(request: ChatRequest) -> Answer:
        pair = asked(request)
        if pair in right:
            return "Yes" if right[pair] and examined else "No"
        return changed(*pair)

    return ScriptedChat(answer)


@contextmanager
def opened(home: Path, chat: ScriptedChat) -> Iterator[MemOS]:
    with MemOS.open(home, settings=SETTINGS, chat_model=chat) as memos:
        yield memos


def tell(memos: MemOS, *texts: str) -> list[str]:
    ids = []
    for place, text in enumerate(texts):
        said = {"role": "user", "name": "Sam", "content": text}
        said["chat_time"] = (BEGAN + timedelta(days=3 * place)).isoformat()
        ids += memos.add(said, conversation=f"c{place}").item_ids
    memos.tasks.wait(timeout_s=60)
    return ids


def judged(memos: MemOS, item: str) -> list[Relation]:
    return [each for each in memos.memories.relations(item) if each.decided_by == MODEL]


def tasks(memos: MemOS) -> list[Task]:
    return list(memos.tasks.list(kinds=["judge"]))


def pairs_of(chat: ScriptedChat) -> list[tuple[str, str]]:
    known = {(older, newer) for older, newer, _ in KNOWN}
    return [pair for pair in map(asked, chat.requests) if pair not in known]


def test_a_judgement_is_stored_as_a_relation_of_the_model_and_changes_what_comes_first(tmp_path: Path) -> None:
    question, first = "Which phone does he have?", {}
    for answer in ("Yes", "No"):
        chat = model(lambda *_, answer=answer: answer)
        with opened(tmp_path / answer, chat) as memos:
            old, new = tell(memos, OLD, NEW)
            [found] = judged(memos, new)
            assert (found.newer, found.older) == (new, old)
            assert (found.confidence > 0.5) is (answer == "Yes")
            first[answer] = memos.search(question, reference_time=BEGAN + timedelta(days=60)).hits[0].item.memory
            assert pairs_of(chat) == [(OLD, NEW)]
            assert tasks(memos)[0].tokens > 0
    assert first == {"Yes": NEW, "No": OLD}


def test_probabilities_of_the_answers_count_where_the_endpoint_tells_them(tmp_path: Path) -> None:
    sure = {"Yes": 0.6, "No": 0.4}, {"Yes": 0.4, "No": 0.6}
    confidences = []
    for place, told in enumerate(sure):
        chat = model(lambda *_, told=told: ChatReply("Yes", Tokens(9, 1), probabilities=told))
        with opened(tmp_path / str(place), chat) as memos:
            _, new = tell(memos, OLD, NEW)
            confidences.append(judged(memos, new)[0].confidence)
    assert confidences[0] > confidences[1]


def test_nonsense_changes_nothing_and_is_asked_again_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_RETRY", timedelta(0))
    chat = model(lambda *_: "Perhaps, as the moon is full.")
    with opened(tmp_path, chat) as memos:
        _, new = tell(memos, OLD, NEW)
        assert not judged(memos, new)
        assert {each.note for each in tasks(memos)} == {"1 answers of the model scripted were not usable"}
    assert pairs_of(chat) == [(OLD, NEW)] * 3


def test_a_model_that_is_away_is_asked_later_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "_RETRY", timedelta(0))
    monkeypatch.setattr(judge, "_ATTEMPTS", 1)
    answers = iter([BackendUnavailable("away")] * 7)
    chat = model(lambda *_: next(answers, "Yes"))
    with opened(tmp_path, chat) as memos:
        _, new = tell(memos, OLD, NEW)
        [found] = judged(memos, new)
        assert found.confidence > 0.5
        assert [each.state for each in tasks(memos)] == ["done"]
    assert pairs_of(chat) == [(OLD, NEW)] * 8


def test_what_a_person_decides_stays_and_an_edit_is_judged_anew(tmp_path: Path) -> None:
    chat = model(lambda *_: "Yes")
    with opened(tmp_path, chat) as memos:
        old, new = tell(memos, OLD, NEW)
        before = judged(memos, new)
        memos.maintenance.reindex()
        memos.tasks.wait(timeout_s=60)
        assert judged(memos, new) == before  # the rules' relations are judged anew, the model's stays
        memos.update(new, tags=["home"])
        memos.update(new, memory="The Pixel is gone, an iPhone 15 it is.")
        memos.tasks.wait(timeout_s=60)
        assert pairs_of(chat)[-1] == (OLD, "The Pixel is gone, an iPhone 15 it is.")
        assert len(judged(memos, new)) == 1

        memos.review.decide(new, old, holds=False)
        memos.update(new, memory="The Pixel fell into the lake, an iPhone 15 it is.")
        memos.tasks.wait(timeout_s=60)
        [decided] = memos.memories.relations(new)
        assert (decided.decided_by, decided.confidence) == ("owner", 0.0)


def test_a_model_that_fails_its_examination_does_not_judge(tmp_path: Path) -> None:
    chat = model(lambda *_: "Yes", examined=False)
    with opened(tmp_path, chat) as memos:
        _, new = tell(memos, OLD, NEW)
        tell(memos, "The rent is 900 euros.", "We pay 980 euros.")
        assert not judged(memos, new)
        assert {each.note for each in tasks(memos)} == {"the model scripted fails the examination; rules judge alone"}
    assert len(chat.requests) == len(KNOWN)  # examined once


def test_small_talk_questions_and_what_rules_are_sure_of_ask_no_model(tmp_path: Path) -> None:
    chat = model(lambda *_: "Yes")
    with opened(tmp_path, chat) as memos:
        tell(memos, "I live in Paris.", "Good morning!", "Do you live in Paris?", "My brother lives in Rome.")
        assert not tasks(memos)
    assert not chat.requests


def test_a_judgement_travels_with_its_cube(tmp_path: Path) -> None:
    chat = model(lambda *_: "Yes")
    with opened(tmp_path / "a", chat) as memos:
        _, new = tell(memos, OLD, NEW)
        before = judged(memos, new)
        memos.transfer.dump("default", tmp_path / "cube.zip")
    asked_before = len(pairs_of(chat))
    with opened(tmp_path / "b", chat) as memos:
        memos.transfer.load(tmp_path / "cube.zip", cube="other")
        memos.tasks.wait(timeout_s=60)
        [there] = memos.search("iPhone", cubes=["other"]).hits[:1]
        found = judged(memos, there.item.id)
        assert [each.confidence for each in found] == [each.confidence for each in before]
    assert len(pairs_of(chat)) == asked_before


def test_what_is_said_again_is_left_to_the_rules(tmp_path: Path) -> None:
    chat = model(lambda *_: "Yes")
    with opened(tmp_path, chat) as memos:
        _, new = tell(memos, "我住在里昂。", "我还住在里昂。")  # near even odds for the rules
        [found] = memos.memories.relations(new)
    assert (found.kind, found.decided_by) == (LinkKind.SAME, "rules")
    assert pairs_of(chat) == []
