"""Long-term memory with a model: few calls, answers kept and erased, failures that lose nothing, verdicts checked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.ports import ChatRequest
from memos.core.settings import IndexSettings, LimitSettings, TaskSettings
from memos.core.types import ItemType, LinkKind, TaskState
from memos.errors import BackendUnavailable, ModelError
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as tiers
from memos.scheduler.rules import TierSettings
from tests.fakes import WordEmbedder
from tests.scheduler.test_long_tier import analysed, facts, linked, settled
from tests.support.scripted_chat import ScriptedChat

PARIS = {
    "role": "user",
    "name": "Ana",
    "content": "We found a flat near the canal in Paris.",
    "chat_time": "2026-03-01",
}
LYON = {"role": "user", "name": "Ana", "content": "Our boxes are in Lyon now, for good.", "chat_time": "2026-06-01"}

# Two exchanges of a conversation are in one segment.
NARROW = TierSettings(short_capacity=1, similarity=0.3)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_GATHERING", timedelta(0))


def fact(text: str, quote: str, message: int = 1, **fields: object) -> dict[str, object]:
    return {
        "type": "user", "subject": "Ana", "text": text, "quote": quote, "message": message, "attribute": None,
        "value": None, "when": None, "until": None, "confidence": 0.9, **fields,
    }  # fmt: skip


class Model:
    """Answers by the name of the schema asked for; counts what it was asked."""

    def __init__(self, **answers: object) -> None:
        self.answers = {"FactsAnswer": {"summary": "", "facts": []}, **answers}
        self.asked: list[str] = []

    def __call__(self, request: ChatRequest) -> str | Exception:
        name = request.schema_name or "text"
        self.asked.append(name)
        answer = self.answers.get(name)
        if callable(answer):
            answer = answer(request)
        return answer if isinstance(answer, str | Exception) else json.dumps(answer)


@contextmanager
def opened(
    home: Path, model: Callable[[ChatRequest], str | Exception], heat: TierSettings | None = None, **tasks: object
) -> Iterator[MemOS]:
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        heat=heat or TierSettings(),
        tasks=TaskSettings(**tasks),  # type: ignore[arg-type]
    )
    with MemOS.open(home, settings=settings, embedder=WordEmbedder(), chat_model=ScriptedChat(model)) as memos:
        yield memos


def test_a_models_facts_are_stored_with_its_answer_and_leave_with_what_it_was_shown(tmp_path: Path) -> None:
    home = fact("Ana lives in Paris.", "flat near the canal in Paris", attribute="residence", value="Paris")
    model = Model(FactsAnswer={"summary": "Ana found a flat.", "facts": [home]})
    with opened(tmp_path, model) as memos:
        item = memos.add(PARIS).item_ids[0]
        analysed(memos)
        [kept] = facts(memos)
        assert (kept.memory, kept.key, kept.value, kept.confidence) == (
            "Ana lives in Paris.",
            "ana|residence",
            "Paris",
            0.9,
        )
        assert kept.sources[0].passage == "flat near the canal in Paris"
        assert memos.tiers.segments()[0].summary == "Ana found a flat."
        with memos.ledger.read() as connection:
            row = connection.execute(sa.select(t.extractions)).one()
            assert (row.model, row.reader) == ("scripted", "model/2")
            assert "canal" in row.output
            assert (
                connection.scalar(sa.select(t.sources.c.extraction_id).where(t.sources.c.item_id == kept.id)) == row.id
            )
        memos.erase(item)
        with memos.ledger.read() as connection:
            assert connection.execute(sa.select(t.extractions)).all() == []
            assert connection.execute(sa.select(t.extraction_items)).all() == []
            assert "flat" not in str(connection.execute(sa.select(t.segments)).all())
        assert memos.maintenance.verify().clean


def test_what_a_model_wrote_in_words_of_another_message_leaves_with_that_message(tmp_path: Path) -> None:
    tea = fact("Ana, whose code is zanzibar, likes tea.", "Tea: the thing Ana likes")
    cake = fact("Ana likes cake.", "Cake: the thing Ana likes", message=3)
    model = Model(FactsAnswer={"summary": "Ana told her code.", "facts": [tea, cake]})
    with opened(tmp_path, model, NARROW) as memos:
        told = [
            "My code is zanzibar, and tea.",
            "Tea: the thing Ana likes, and the code.",
            "Cake: the thing Ana likes, and the code.",
            "The code and tea.",
        ]
        ids = [memos.add({**PARIS, "content": text}, conversation="c").item_ids[0] for text in told]
        tea["message"] = 2
        memos.tiers.move(one_segment(memos), "long")
        settled(memos)
        assert {item.memory for item in facts(memos)} == {tea["text"], cake["text"]}
        model.answers["FactsAnswer"] = {"summary": "", "facts": []}
        memos.erase(ids[0])
        settled(memos)
        assert [item.memory for item in facts(memos)] == [cake["text"]]
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"zanzibar" in file.read_bytes()]


def test_an_answer_that_may_quote_the_summary_before_it_leaves_with_what_that_was_made_of(tmp_path: Path) -> None:
    def echo(request: ChatRequest) -> str:
        shown = request.messages[-1].content
        return json.dumps({"summary": "The code is zanzibar." if "zanzibar" in shown else "Tea.", "facts": []})

    with opened(tmp_path, echo, NARROW) as memos:
        said = memos.add({**PARIS, "content": "My code is zanzibar, and tea."}, conversation="c").item_ids[0]
        for batch in range(2):
            for number in range(12):
                memos.add({**PARIS, "content": f"The code and tea, {batch} {number}."}, conversation="c")
            settled(memos)
            memos.tiers.move(one_segment(memos), "long")
            settled(memos)
        with memos.ledger.read() as connection:
            assert str(connection.execute(sa.select(t.extractions.c.output)).all()).count("zanzibar") >= 2
        memos.erase(said)
        settled(memos)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"zanzibar" in file.read_bytes()]


def test_a_rule_spares_what_a_pinned_fact_may_quote(tmp_path: Path) -> None:
    tea = fact("Ana, whose code is zanzibar, likes tea.", "Tea: the thing Ana likes", message=2)
    with opened(tmp_path, Model(FactsAnswer={"summary": "", "facts": [tea]}), NARROW) as memos:
        told = ["My code is zanzibar, and tea.", "Tea: the thing Ana likes, and the code.", "The code and tea."]
        ids = [memos.add({**PARIS, "content": text}, conversation="c").item_ids[0] for text in told]
        memos.tiers.move(one_segment(memos), "long")
        settled(memos)
        [kept] = facts(memos)
        memos.tiers.pin(kept.id)
        memos.retention.add(action="erase", types=["message"])
        assert [effect.count for effect in memos.retention.preview()] == [1]
        memos.retention.run()
        assert {item.id for item in memos.memories.list(filter={"type": "message"})} == set(ids[:2])
        assert memos.get(kept.id).memory == tea["text"]


def one_segment(memos: MemOS) -> str:
    settled(memos)
    [segment] = memos.tiers.segments()
    return segment.id


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (ModelError("The model refuses."), TaskState.WAITING),
        (BackendUnavailable("The model is away."), TaskState.WAITING),
        (BackendUnavailable("The key is wrong.", permanent=True), TaskState.FAILED),
    ],
)
def test_when_the_model_fails_the_pages_stay_unread_and_the_task_says_why(
    tmp_path: Path, answer: str | Exception, state: TaskState
) -> None:
    with opened(tmp_path, Model(FactsAnswer=answer)) as memos:
        memos.add("I live in Paris.")
        settled(memos)
        memos.tiers.analyse(everything=True)
        deadline_reached(memos, state)
        [task] = memos.tasks.list(kinds=["analyse"])
        assert task.state is state
        assert task.error
        assert "Paris" not in task.error
        assert facts(memos) == []
        with memos.ledger.read() as connection:
            assert connection.scalars(sa.select(t.pages.c.read)).all() == [False]
        assert memos.search("live Paris").hits


def deadline_reached(memos: MemOS, state: TaskState) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        [task] = memos.tasks.list(kinds=["analyse"])
        if task.error is not None and task.state is not TaskState.RUNNING:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {state} analyse task")


def test_eight_pages_cost_one_call(tmp_path: Path) -> None:
    model = Model()
    with opened(tmp_path, model) as memos:
        for number in range(16):
            memos.add(f"The tomato plants in the garden need water, day {number}.")
            settled(memos)
        assert model.asked.count("FactsAnswer") == 2
        assert "Judgement" not in model.asked


def judged(verdict: str) -> Model:
    def found(request: ChatRequest) -> dict[str, object]:
        data = request.messages[-1].content
        if "canal" in data:
            return {
                "summary": "s",
                "facts": [fact("Ana lives in Paris near the canal.", "flat near the canal in Paris")],
            }
        return {"summary": "s", "facts": [fact("Ana lives in Lyon near the canal.", "boxes are in Lyon now")]}

    return Model(
        FactsAnswer=found, Judgement={"verdicts": [{"pair": 1, "verdict": verdict}, {"pair": 7, "verdict": "same"}]}
    )


@pytest.mark.parametrize("order", [(PARIS, LYON), (LYON, PARIS)])
def test_what_the_judge_calls_replaced_is_superseded_by_time(tmp_path: Path, order: tuple[dict[str, str], ...]) -> None:
    model = judged("replaces")
    with opened(tmp_path, model) as memos:
        for message in order:
            memos.add(message)
            analysed(memos)
        assert model.asked.count("Judgement") == 1
        [now] = facts(memos)
        [then] = facts(memos, "superseded")
        assert ("Lyon" in now.memory, "Paris" in then.memory) == (True, True)
        assert (LinkKind.SUPERSEDES, then.id) in linked(memos, now.id)
        assert memos.maintenance.verify().clean


def test_what_the_judge_calls_unrelated_stays_apart(tmp_path: Path) -> None:
    with opened(tmp_path, judged("unrelated")) as memos:
        for message in (PARIS, LYON):
            memos.add(message)
            analysed(memos)
        assert len(facts(memos)) == 2


def test_over_budget_waits_and_says_so(tmp_path: Path) -> None:
    model = Model()
    with opened(tmp_path, model, tokens_per_day=1) as memos:
        memos.add("I live in Paris.")
        settled(memos)
        memos.tiers.analyse(everything=True)
        settled_or_waiting(memos)
        memos.add("I work at Renault, and the tomato plants need water.")
        settled_or_waiting(memos)
        memos.tiers.analyse(everything=True)
        settled_or_waiting(memos)
        waiting = [task for task in memos.tasks.list(kinds=["analyse"]) if task.state is TaskState.WAITING]
        assert waiting
        assert "budget" in (waiting[0].note or "")
        assert model.asked == ["FactsAnswer"]


def settled_or_waiting(memos: MemOS) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        open_ones = [task for task in memos.tasks.list(cubes=["default"]) if not task.ended and task.note is None]
        if not open_ones:
            return
        time.sleep(0.02)
    raise AssertionError("tasks do not end")


def test_a_grown_segment_gets_a_summary_by_the_model_which_leaves_with_its_messages(tmp_path: Path) -> None:
    model = Model(SummaryAnswer={"summary": "It is about a wombat."})
    with opened(tmp_path, model) as memos:
        old = {"role": "user", "content": "The tomato plants in the garden.", "chat_time": "2020-01-01"}
        ids = [memos.add(old).item_ids[0] for _ in range(9)]
        settled(memos)
        assert model.asked == ["SummaryAnswer"]
        assert memos.tiers.segments()[0].summary == "It is about a wombat."
        memos.erase(ids[0])
        assert "wombat" not in memos.tiers.segments()[0].summary


def test_reflection_concludes_with_sources_and_leaves_with_them(tmp_path: Path) -> None:
    insight = {"text": "Ana settles in France.", "statements": [1, 2]}
    alone, wrong = {"text": "Ana is rich.", "statements": [1]}, {"text": "Ana flies.", "statements": [1, 99]}
    model = Model(
        FactsAnswer=lambda request: {
            "summary": "s",
            "facts": [fact("Ana lives in Paris.", "flat near the canal in Paris", attribute="residence", value="Paris")]
            if "canal" in request.messages[-1].content
            else [fact("Ana works at Renault.", "at Renault", attribute="employer", value="Renault")],
        },
        Insights={"insights": [insight, alone, wrong]},
    )
    with opened(tmp_path, model) as memos:
        memos.add(PARIS)
        job = memos.add({**PARIS, "content": "I am at Renault these days."}).item_ids[0]
        analysed(memos)
        memos.tiers.reflect()
        settled(memos)
        concluded = [item for item in facts(memos) if item.type is ItemType.SUMMARY]
        assert [item.memory for item in concluded] == ["Ana settles in France."]
        assert len(concluded[0].sources) == 2
        assert {kind for kind, _ in linked(memos, concluded[0].id)} == {LinkKind.DERIVED_FROM}
        memos.tiers.reflect()
        settled(memos)
        assert len([item for item in facts(memos) if item.type is ItemType.SUMMARY]) == 1
        memos.erase(job)
        assert [item for item in facts(memos) if item.type is ItemType.SUMMARY] == []
        assert memos.maintenance.verify().clean


def test_nothing_reflects_unless_it_is_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path, Model()) as memos:
        assert "reflection" not in {chore.kind for chore in memos._scheduler.periodic._chores}
