"""Chinese and Japanese by terms alone, and mixed text, emoji and right-to-left scripts through the whole search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pytest

from memos import MemOS
from memos.backends.encoders.bm25 import QdrantBm25
from tests.fakes import FixedClock, WordEmbedder
from tests.search.chinese import JAPANESE, JAPANESE_QUESTIONS, MESSAGES, QUESTIONS

BM25 = QdrantBm25()


def ranks(messages: Sequence[str], question: str) -> list[int]:
    """Return message numbers by BM25 alone, best first; what shares no term is not in it."""
    documents = [dict(zip(*(part.tolist() for part in pair), strict=True)) for pair in map(terms, messages)]
    asked = terms(question)[0].tolist()
    counts = {term: sum(term in document for document in documents) for term in asked}
    scores = [
        sum(math.log(1 + len(documents) / (counts[term] + 0.5)) * document[term] for term in asked if term in document)
        for document in documents
    ]
    return [n for n in sorted(range(len(scores)), key=lambda n: -scores[n]) if scores[n] > 0]


def terms(text: str):  # type: ignore[no-untyped-def]
    vector = BM25.encode_document(text)
    return vector.indices, vector.values


@pytest.mark.parametrize(("question", "gold"), QUESTIONS)
def test_thirty_chinese_questions_find_their_message_by_terms(question: str, gold: int) -> None:
    assert gold in ranks(MESSAGES, question)[:3]


@pytest.mark.parametrize(("question", "gold"), JAPANESE_QUESTIONS)
def test_japanese_questions_find_their_message_by_terms(question: str, gold: int) -> None:
    assert gold in ranks(JAPANESE, question)[:2]


@pytest.fixture(scope="module")
def memos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    home = tmp_path_factory.mktemp("languages")
    with MemOS.open(home, embedder=WordEmbedder(), clock=FixedClock()) as opened:
        opened.add([{"role": "user", "content": text} for text in (*MESSAGES, *JAPANESE, *OTHERS)])
        yield opened


OTHERS = (
    "今天和 Alice 在 Starbucks 讨论了 Q3 roadmap",
    "party tonight 🎉🎉 at Zoë's café",
    "אני גר בתל אביב ליד הים",
    "أسكن في القاهرة مع عائلتي",
    "저는 서울에서 김치찌개를 자주 먹어요",
    "Я живу в Новосибирске уже пять лет",
)


@pytest.mark.parametrize(
    ("question", "start"),
    [
        ("Alice roadmap", "今天和 Alice"),
        ("在Starbucks讨论了什么", "今天和 Alice"),
        ("🎉 party", "party tonight"),
        ("cafe Zoe", "party tonight"),
        ("תל אביב", "אני גר"),
        ("القاهرة", "أسكن"),
        ("김치찌개", "저는"),
        ("Новосибирске", "Я живу"),
    ],
)
def test_mixed_text_emoji_and_other_scripts(memos: MemOS, question: str, start: str) -> None:
    assert any(hit.item.memory.startswith(start) for hit in memos.search(question, top_k=2))


@pytest.mark.parametrize("question", ["😀", "…", "\u200f", "的", "、。", "a\u0301" * 50, "\U0001f468\u200d\U0001f469"])
def test_a_question_without_a_term_is_answered_all_the_same(memos: MemOS, question: str) -> None:
    memos.search(question)


YESTERDAY = (
    ("Gestern habe ich mit Eva gegessen.", "Mit wem habe ich am 11. Oktober gegessen?"),
    ("Ayer comí con Eva en el puerto.", "¿Con quién comí el 11 de octubre?"),
    ("Hier j'ai mangé avec Eva au port.", "Avec qui ai-je mangé le 11 octobre ?"),
    ("أكلت أمس مع إيفا في الميناء.", "مع من أكلت في 11 أكتوبر؟"),
    ("मैंने कल ईवा के साथ खाना खाया था।", "मैंने 11 अक्टूबर को किसके साथ खाना खाया?"),
)
"""What was told on 12 October and on other days, and a question about the day before."""


@pytest.mark.parametrize(("told", "question"), YESTERDAY)
def test_a_question_about_a_day_finds_what_was_said_of_yesterday(
    told: str, question: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with MemOS.open(tmp_path_factory.mktemp("days"), embedder=WordEmbedder()) as memos:
        for day in (10, 12, 14, 16):
            said = {"role": "user", "content": told, "chat_time": f"2026-10-{day}T18:00:00Z"}
            memos.add([said], conversation=f"day {day}")
        [first, *_] = memos.search(question, reference_time="2026-10-30T09:00:00Z")
        assert first.sources[0].conversation == "day 12"
