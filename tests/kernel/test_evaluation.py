"""`MemOS.evaluation`: questions made from a cube's own memories, and what a search finds of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.core.ports import ChatRequest
from memos.errors import BackendUnavailable, InvalidInput, NotFound
from memos.kernel.evaluation import Kind
from tests.support.scripted_chat import ScriptedChat

SAID = [
    ("Ana", "2026-03-02", "I keep seven hives behind the old chapel."),
    ("Ana", "2026-03-02", "The hives need sugar in spring."),
    ("Ana", "2026-03-09", "I live in Porto."),
    ("Ana", "2026-03-09", "The chapel gets a new roof in spring."),
    ("Ben", "2026-03-02", "I work at Bosch."),
    ("Ben", "2026-03-09", "My car is a red Fiat."),
    ("Ben", "2026-03-16", "The roof of the garage leaks, and sugar is on the list."),
]


@pytest.fixture
def memos(tmp_path: Path) -> Iterator[MemOS]:
    with MemOS.open(tmp_path) as opened:
        for speaker, day, text in SAID:
            opened.add([{"role": "user", "name": speaker, "content": text, "chat_time": f"{day}T10:00:00Z"}])
        yield opened


def test_questions_are_made_of_words_attributes_and_days_and_their_answers_found(memos: MemOS) -> None:
    shown: list[tuple[int, int]] = []
    found = memos.evaluation.run(sample=20, on_progress=lambda done, most: shown.append((done, most)))
    texts = {item.id: item.memory for item in memos.memories.list()}
    asked = {each.question: [texts[id_] for id_ in each.answers] for each in found.questions}
    assert asked["Where does Ana live?"] == ["I live in Porto."]
    assert asked["Where does Ben work?"] == ["I work at Bosch."]
    assert sorted(asked["What did Ana say on 2 March 2026?"]) == [SAID[0][2], SAID[1][2]]
    of_words = [each for each in found.questions if each.kind is Kind.WORDS]
    assert of_words
    for each in of_words:
        assert each.question.startswith(("What did Ana say about ", "What did Ben say about "))
    assert {kind: score.questions for kind, score in found.by_kind.items()} == {
        kind: sum(each.kind is kind for each in found.questions) for kind in found.by_kind
    }
    assert (found.memories, found.all.questions, found.all.in_20) == (len(SAID), len(found.questions), 1.0)
    assert found.all.first >= 0.7
    assert shown[-1] == (len(found.questions), len(found.questions))
    assert 0 < found.p50_ms <= found.p95_ms


def test_one_seed_makes_the_same_questions_and_another_others(memos: MemOS) -> None:
    def made(seed: int) -> list[str]:
        return [each.question for each in memos.evaluation.run(sample=6, seed=seed).questions]

    assert made(1) == made(1)
    assert any(made(1) != made(seed) for seed in range(2, 6))


def test_the_newest_value_answers_what_an_attribute_is(memos: MemOS) -> None:
    moved = memos.add([{"role": "user", "name": "Ana", "content": "I moved to Braga."}]).item_ids[0]
    asked = {each.question: each for each in memos.evaluation.run(sample=40).questions}
    assert (asked["Where does Ana live?"].answers, asked["Where does Ana live?"].place) == ((moved,), 1)


def test_no_memory_becomes_hotter_by_it(memos: MemOS) -> None:
    memos.evaluation.run(sample=20)
    found = memos.search("hives", top_k=1).hits[0].item.id
    deadline = time.monotonic() + 30
    while not memos.browse.places(found).visits:  # uses are counted in the background
        assert time.monotonic() < deadline
        time.sleep(0.05)
    visits = [memos.browse.places(item.id).visits for item in memos.memories.list()]
    assert sorted(visits) == [0] * (len(SAID) - 1) + [1]


def test_own_questions_are_answered_by_text_or_by_ids_and_say_where_an_answer_was_lost(memos: MemOS) -> None:
    porto = next(item.id for item in memos.memories.list() if "Porto" in item.memory)
    memos.delete(porto)
    found = memos.evaluation.run(
        questions=[
            {"question": "How many hives does Ana have?", "contains": "SEVEN hives"},
            {"question": "Where does Ana live?", "answers": [porto]},
        ]
    )
    hives, home = found.questions
    assert (hives.kind, hives.place, hives.lost_at) == (Kind.OWN, 1, None)
    assert (home.place, home.lost_at) == (None, "ledger")
    assert (found.all.first, found.all.mean_reciprocal_rank, dict(found.lost_at)) == (0.5, 0.5, {"ledger": 1})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"questions": [{"question": "Who?", "answer": ["a"]}]}, "did you mean `answers`"),
        ({"questions": [{"question": "Who?"}]}, "needs `answers`"),
        ({"questions": [{"question": "", "contains": "a"}]}, "questions[0].question"),
        ({"questions": ["Who?"]}, "must be an object"),
        ({"questions": [{"question": "Who?", "answers": "a"}]}, "must be a list"),
        ({"sample": 0}, "sample"),
        ({"questions": []}, "questions"),
        ({"questions": [{"question": "Who?", "contains": "a"}] * 2_001}, "questions"),
        ({"rerank": True}, "no reranker"),
        ({"questions": [{"question": "Who?", "answers": ["01890a5d-ac96-774b-bcce-b302099a8057"]}]}, "no answer"),
    ],
)
def test_what_cannot_be_asked_is_refused(memos: MemOS, given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=r"^(questions|sample|rerank)") as refused:
        memos.evaluation.run(**given)
    assert told in str(refused.value)


def test_a_cube_without_memories_and_one_of_somebody_else_cannot_be_evaluated(memos: MemOS) -> None:
    memos.cubes.create("empty")
    with pytest.raises(InvalidInput, match="no memories"):
        memos.evaluation.run(cube="empty")
    memos.users.create("ben")
    with pytest.raises(NotFound):
        memos.evaluation.run(actor="ben")


def test_languages_are_asked_in_their_own_words(tmp_path: Path) -> None:
    with MemOS.open(tmp_path) as memos:
        memos.add("Ich habe am Samstag mit Jonas den Zaun am Garten gestrichen und die Hecke geschnitten.")
        memos.add("我昨天在杭州买了龙井茶，价格很贵。")
        asked = {each.question for each in memos.evaluation.run(sample=10).questions}
    assert any(question.startswith("Was habe ich über ") for question in asked)
    assert any(question.startswith("我说过什么关于") for question in asked)


def test_a_reader_model_makes_a_quarter_and_its_nonsense_is_left_out(tmp_path: Path) -> None:
    def answer(request: ChatRequest) -> str:
        hives = "hives" in request.messages[-1].content
        return '{"question": "Which animals buzz near the church?"}' if hives else '{"question": "No question."}'

    with MemOS.open(tmp_path, chat_model=ScriptedChat(answer)) as memos:
        memos.add(["I keep seven hives behind the old chapel.", "My boat has a green sail."])
        found = memos.evaluation.run(sample=2, with_model=True, seed=3)
    kinds = {each.question: each.kind for each in found.questions}
    assert set(kinds.values()) <= {Kind.WORDS, Kind.MODEL}
    assert len(kinds) == 2
    assert all(("buzz" in question) is (kind is Kind.MODEL) for question, kind in kinds.items())


def test_without_a_reader_model_none_is_asked(memos: MemOS) -> None:
    with pytest.raises(BackendUnavailable, match="MEMOS_READER_MODEL__BASE_URL"):
        memos.evaluation.run(with_model=True)
