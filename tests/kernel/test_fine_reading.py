"""Fine reading: a durable task enriches what was added; whatever the model does, the rough memory stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from memos import MemOS, Settings
from memos.cli.app import app
from memos.core.ports import ChatRequest
from memos.core.settings import IndexSettings, LimitSettings
from memos.core.types import LinkKind, TaskState
from memos.errors import BackendUnavailable, InvalidInput, ModelError, NotFound
from memos.kernel.importing import import_export
from memos.memcube.ledger import reading
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as tiers
from memos.reader.facts.extractor import KNOWN
from tests.fakes import WordEmbedder
from tests.scheduler.test_long_tier import facts, linked, settled
from tests.scheduler.test_long_tier_model import Model, fact, opened
from tests.support import forks
from tests.support.scripted_chat import ScriptedChat

ROOT = Path(__file__).resolve().parents[2]
HOME = {"role": "user", "name": "Ana", "content": "We found a flat near the canal in Paris.", "chat_time": "2026-03-01"}
JOB = {"role": "user", "name": "Ana", "content": "Renault hired me as a welder.", "chat_time": "2026-03-02"}
IN_PARIS = fact("Ana lives in Paris.", "flat near the canal in Paris", attribute="residence", value="Paris")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gathered for two seconds before it is done."""
    monkeypatch.setattr(tiers, "_GATHERING", timedelta(0))
    monkeypatch.setattr(reading, "_GATHERING", timedelta(0))


def states(memos: MemOS) -> dict[str, str | None]:
    with memos.ledger.read() as connection:
        rows = connection.execute(
            sa.select(t.items.c.id, t.items.c.reading).where(t.items.c.conversation_id.is_not(None))
        )
        return {row.id: row.reading for row in rows}


def lines(request: ChatRequest) -> list[dict[str, object]]:
    """Return the messages a request shows."""
    told = request.messages[-1].content.split("<messages>\n")[1].split("\n</messages>")[0]
    return [json.loads(line) for line in told.splitlines()]


def ended(memos: MemOS, task: str) -> TaskState:
    """Wait until a task has failed at least once, or has ended; return its state."""
    for found in memos.tasks.follow(task, timeout_s=60):
        if found.ended or (found.error is not None and found.state is TaskState.WAITING):
            return found.state
    raise AssertionError("the task never ended")


def model_of(found: object) -> Model:
    """Return a model that answers this about messages, and decides nothing between facts."""
    return Model(FactsAnswer=found, Judgement={"verdicts": []})


def quoting(request: ChatRequest) -> dict[str, object]:
    """Answer with one fact a numbered message, its own words."""
    told = [line for line in lines(request) if "message" in line]
    return {
        "facts": [
            fact(f"{line['speaker']} said: {line['text']}", str(line["text"]), int(str(line["message"])),
                 subject=line["speaker"])
            for line in told
        ]
    }  # fmt: skip


# What happens when all goes well


def test_what_is_added_finely_is_found_at_once_and_becomes_facts_with_sources_and_a_record(tmp_path: Path) -> None:
    model = model_of({"summary": "s", "facts": [IN_PARIS]})
    with opened(tmp_path, model) as memos:
        receipt = memos.add([HOME], conversation="c", mode="fine")
        [said] = receipt.item_ids
        assert receipt.task is not None
        assert said in {hit.item.id for hit in memos.search("flat canal Paris")}
        settled(memos)
        task = memos.tasks.get(receipt.task)
        assert (task.kind, task.state) == ("read", TaskState.DONE)
        assert task.tokens > 0
        assert "flat" not in json.dumps([task.payload, task.scope, task.key])
        [kept] = facts(memos)
        assert (kept.memory, kept.key, kept.value) == ("Ana lives in Paris.", "ana|residence", "Paris")
        assert [source.passage for source in kept.sources] == ["flat near the canal in Paris"]
        assert linked(memos, kept.id) == {(LinkKind.DERIVED_FROM, said)}
        assert memos.get(said).memory == HOME["content"]
        [record] = memos.memories.extractions(said)
        assert (record.reader, record.model) == ("model/2", "scripted")
        assert json.loads(record.output or "") == {"summary": "s", "facts": [IN_PARIS]}
        assert memos.memories.extractions(kept.id) == (record,)
        assert set(states(memos).values()) == {"read"}
        assert memos.maintenance.verify().clean
        with memos.ledger.read() as connection:
            calls = connection.scalar(sa.select(sa.func.sum(t.usage.c.calls)).where(t.usage.c.purpose == "read"))
        assert calls == 2 + len(KNOWN)  # with both examinations


def test_without_a_model_the_patterns_read_and_the_record_says_so(memos: MemOS) -> None:
    said = memos.add("I live in Paris.", conversation="c", mode="fine").item_ids[0]
    settled(memos)
    [kept] = facts(memos)
    assert kept.value == "Paris"
    [record] = memos.memories.extractions(said)
    assert record.reader.startswith("patterns/")
    assert (record.model, record.output) == (None, None)
    assert memos.memories.extractions(kept.id) == (record,)
    with pytest.raises(NotFound):
        memos.memories.extractions("nothing")


def test_rough_is_the_default_and_asks_for_nothing(memos: MemOS) -> None:
    receipt = memos.add("I live in Paris.", conversation="c")
    assert receipt.task is None
    settled(memos)
    assert facts(memos) == []
    assert memos.tasks.list(kinds=["read"]) == []
    assert memos.memories.extractions(receipt.item_ids[0]) == ()


@pytest.mark.parametrize("mode", ["finest", "", "FINE", None, 1, ["fine"]])
def test_another_mode_is_refused_and_nothing_stored(memos: MemOS, mode: object) -> None:
    with pytest.raises(InvalidInput, match="mode"):
        memos.add("I live in Paris.", mode=mode)  # type: ignore[arg-type]
    assert memos.memories.list() == []


def test_messages_without_a_conversation_are_read_too(memos: MemOS) -> None:
    tasks = {memos.add(text, mode="fine").task for text in ("I live in Paris.", "I work at Renault.")}
    assert None not in tasks
    settled(memos)
    assert {item.value for item in facts(memos)} == {"Paris", "Renault"}


def test_a_message_that_is_added_again_is_read_once_and_one_that_was_rough_is_then_read(tmp_path: Path) -> None:
    model = model_of(quoting)
    with opened(tmp_path, model) as memos:
        message = {**HOME, "message_id": "1"}
        assert memos.add([message], conversation="c").task is None
        assert memos.add([message], conversation="c", mode="fine").task is not None
        settled(memos)
        again = memos.add([message], conversation="c", mode="fine")
        assert (again.task, len(again.duplicates)) == (None, 1)
        settled(memos)
        assert model.asked == ["FactsAnswer"]
        assert len(facts(memos)) == 1


def test_an_import_may_read_finely(memos: MemOS, tmp_path: Path) -> None:
    export = tmp_path / "export.json"
    export.write_text(json.dumps([{"role": "user", "content": "I live in Paris.", "conversation": "c"}]))
    import_export(memos, export, cube="default", mode="fine")
    settled(memos)
    assert [item.value for item in facts(memos)] == ["Paris"]


# Windows


def test_windows_are_read_one_a_task_with_what_came_before_as_context(tmp_path: Path) -> None:
    told = [{"role": "user", "name": "Ana", "content": f"Topic{number} " + "word " * 100} for number in range(30)]
    chat = ScriptedChat(model_of({"facts": []}))
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), chat_model=chat) as memos:
        memos.add(told, conversation="c", mode="fine")
        settled(memos)
        assert len(memos.tasks.list(kinds=["read"], states=["done"])) >= len(chat.requests)
        numbered: list[str] = []
        for place, request in enumerate(chat.requests):
            shown = lines(request)
            context = [line for line in shown if line.get("context")]
            assert bool(context) is (place > 0)
            assert all("message" not in line for line in context)
            mine = [line for line in shown if "message" in line]
            assert [line["message"] for line in mine] == list(range(1, len(mine) + 1))
            assert 5 <= len(mine) <= 12
            numbered += [str(line["text"]).split()[0] for line in mine]
        assert numbered == [f"Topic{number}" for number in range(30)]
        assert len(chat.requests) >= 3


def test_a_message_larger_than_a_window_is_a_window(tmp_path: Path) -> None:
    model = model_of({"facts": []})
    with opened(tmp_path, model) as memos:
        memos.add(
            [{"role": "user", "content": f"{number} " * 20_000} for number in (1, 2)], conversation="c", mode="fine"
        )
        settled(memos)
        assert len(model.asked) == 2
        assert set(states(memos).values()) == {"read"}


def test_nothing_is_taken_from_context(tmp_path: Path) -> None:
    def answer(request: ChatRequest) -> dict[str, object]:
        shown = lines(request)
        if not any(line.get("context") for line in shown):
            return {"facts": []}
        return {
            "facts": [
                fact("Ana lives in Paris.", "flat near the canal in Paris", message=number) for number in (0, 1, 2, -1)
            ]
        }

    with opened(tmp_path, model_of(answer)) as memos:
        memos.add([HOME], conversation="c", mode="fine")
        settled(memos)
        memos.add([JOB], conversation="c", mode="fine")
        settled(memos)
        assert facts(memos, "active", "pending") == []
        with memos.ledger.read() as connection:
            bodies = connection.scalars(
                sa.select(t.events.c.body).where(t.events.c.kind == "read").order_by(t.events.c.seq)
            )
            assert [json.loads(body)["rejected"] for body in bodies] == [0, 4]


def test_deleted_messages_are_not_shown_and_leave_nothing_wanted(tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(request: ChatRequest) -> dict[str, object]:
        seen.extend(str(line["text"]) for line in lines(request))
        return {"facts": []}

    with opened(tmp_path, model_of(answer), workers=0) as memos:
        first = memos.add([HOME, JOB], conversation="c", mode="fine")
        memos.delete(first.item_ids[0])
    with opened(tmp_path, model_of(answer)) as memos:
        settled(memos)
        assert seen == [JOB["content"]]
        assert set(states(memos).values()) == {"read"}


# What happens when it does not


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (ModelError("The model refuses."), TaskState.WAITING),
        (BackendUnavailable("The model is away."), TaskState.WAITING),
        (BackendUnavailable("The key is wrong.", permanent=True), TaskState.FAILED),
        (ModelError("The model refuses.", permanent=True), TaskState.FAILED),
        (ValueError("flat near the canal"), TaskState.WAITING),
    ],
)
def test_when_the_model_fails_the_rough_memory_stays_and_the_task_says_why(
    tmp_path: Path, answer: str | Exception, state: TaskState
) -> None:
    model = model_of(answer)
    with opened(tmp_path, model) as memos:
        receipt = memos.add([HOME], conversation="c", mode="fine")
        before = memos.memories.history(receipt.item_ids[0])
        assert ended(memos, receipt.task or "") is state
        task = memos.tasks.get(receipt.task or "")
        assert task.error
        assert "canal" not in task.error
        assert facts(memos, "active", "pending") == []
        assert memos.memories.history(receipt.item_ids[0]) == before
        assert {hit.item.id for hit in memos.search("flat canal Paris")} == set(receipt.item_ids)
        assert set(states(memos).values()) == {"wanted"}
        assert memos.memories.extractions(receipt.item_ids[0]) == ()
        assert memos.maintenance.verify().clean
        # The model works again.
        model.answers["FactsAnswer"] = {"facts": [IN_PARIS]}
        if state is TaskState.WAITING:
            memos.tasks.cancel(task.id)
        memos.tasks.retry(task.id)
        memos.tasks.wait(task.id, timeout_s=60)
        assert memos.tasks.get(task.id).state is TaskState.DONE
        assert [item.value for item in facts(memos)] == ["Paris"]
        assert set(states(memos).values()) == {"read"}


def test_a_window_that_failed_is_read_again_shorter(tmp_path: Path) -> None:
    sizes: list[int] = []

    def answer(request: ChatRequest) -> dict[str, object] | Exception:
        sizes.append(len(lines(request)))
        return {"facts": []} if sizes[-1] <= 2 else ModelError("It is too long.", permanent=True)

    with opened(tmp_path, model_of(answer)) as memos:
        receipt = memos.add([{"role": "user", "content": "word " * 300}] * 4, conversation="c", mode="fine")
        settled(memos)
        assert sizes[0] > sizes[1]
        assert set(states(memos).values()) == {"read"}
        assert memos.tasks.get(receipt.task or "").attempts > 1


def test_reading_the_same_again_stores_nothing_twice(tmp_path: Path) -> None:
    with opened(tmp_path, model_of({"facts": [IN_PARIS]})) as memos:
        memos.add([HOME], conversation="c", mode="fine")
        settled(memos)
        [before] = facts(memos)
        with memos.ledger.write() as connection:
            connection.execute(sa.update(t.items).where(t.items.c.reading == "read").values(reading="wanted"))
        assert memos.memories.read_finely("c")
        settled(memos)
        assert facts(memos) == [before]


WORKER = """
import sys, threading
from datetime import timedelta
from memos import MemOS
from memos.memcube.ledger import reading
from tests.fakes import WordEmbedder
reading._GATHERING = timedelta(0)
class Stuck:
    name = "stuck"
    def complete(self, request):
        print("asked", flush=True)
        threading.Event().wait()
    def close(self):
        pass
with MemOS.open(sys.argv[1], embedder=WordEmbedder(), chat_model=Stuck()) as memos:
    memos.add([{"role": "user", "name": "Ana", "content": "We found a flat near the canal in Paris."}],
              conversation="c", mode="fine")
    threading.Event().wait()
"""


class Later:
    """The machine's clock, two minutes fast: the leases of who was killed have run out."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(minutes=2)


@pytest.mark.heavy
def test_a_process_killed_while_the_model_answers_loses_nothing_and_the_task_goes_on(tmp_path: Path) -> None:
    with forks.Script(WORKER, str(tmp_path)) as process:
        assert process.stdout.readline() == "asked\n"
        process.kill()
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    chat = ScriptedChat(model_of({"facts": [IN_PARIS]}))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), chat_model=chat, clock=Later()) as memos:
        assert [hit.item.memory for hit in memos.search("flat canal")] == [HOME["content"]]
        memos._scheduler.runner.keep_leases()
        [task] = memos.tasks.list(kinds=["read"])
        memos.tasks.wait(task.id, timeout_s=60)
        task = memos.tasks.get(task.id)
        assert (task.state, task.attempts) == (TaskState.DONE, 2)
        assert [item.value for item in facts(memos)] == ["Paris"]
        assert set(states(memos).values()) == {"read"}
        assert memos.maintenance.verify().clean


# What changes meanwhile, and afterwards


def while_reading(memos_of: Callable[[], MemOS], does: Callable[[MemOS], object]) -> Callable[[ChatRequest], object]:
    """Return an answer during whose first making something else happens."""
    done: list[bool] = []

    def answer(request: ChatRequest) -> dict[str, object]:
        if not done:
            done.append(True)
            does(memos_of())
        return quoting(request)

    return answer


@pytest.mark.parametrize("act", ["update", "erase", "delete"])
def test_what_changes_while_it_is_read_is_not_kept_as_it_was(tmp_path: Path, act: str) -> None:
    held: list[MemOS] = []

    def change(memos: MemOS) -> None:
        [first, _] = [item.id for item in memos.memories.list(filter={"type": "message"})]
        match act:
            case "update":
                memos.update(first, "We found a flat in Rome.")
            case "erase":
                memos.erase(first, wait=False)
            case _:
                memos.delete(first)

    with opened(tmp_path, model_of(while_reading(lambda: held[0], change))) as memos:
        held.append(memos)
        memos.add([HOME, JOB], conversation="c", mode="fine")
        settled(memos)
        told = [item.memory for item in facts(memos, "active", "pending")]
        assert not any("Paris" in text for text in told)
        assert sum("Renault" in text for text in told) == 1
        assert any("Rome" in text for text in told) is (act == "update")
        assert set(states(memos).values()) == {"read"}
        assert memos.maintenance.verify().clean


def test_what_says_something_else_by_now_is_read_again(tmp_path: Path) -> None:
    model = model_of(quoting)
    with opened(tmp_path, model) as memos:
        [one, _] = memos.add([HOME, JOB], conversation="c", mode="fine").item_ids
        settled(memos)
        memos.update(one, "We found a flat in Rome.")
        settled(memos)
        told = sorted(item.memory for item in facts(memos))
        assert [("Rome" in text, "Renault" in text) for text in told] == [(False, True), (True, False)]
        assert model.asked.count("FactsAnswer") == 2
        assert set(states(memos).values()) == {"read"}


def test_erasing_a_message_takes_what_a_model_wrote_in_its_words_and_reads_the_others_again(tmp_path: Path) -> None:
    def answer(request: ChatRequest) -> dict[str, object]:
        shown = [str(line["text"]) for line in lines(request)]
        secret = any("zanzibar" in text for text in shown)
        place = next(number for number, text in enumerate(shown, 1) if "Renault" in text)
        found = fact("Ana works at Renault.", "Renault hired me", message=place)
        return {"facts": [found], "topic": "zanzibar code" if secret else "work"}

    with opened(tmp_path, model_of(answer)) as memos:
        code, _ = memos.add([{**HOME, "content": "My code is zanzibar."}, JOB], conversation="c", mode="fine").item_ids
        settled(memos)
        assert [item.info["topic"] for item in facts(memos)] == ["zanzibar code"]
        memos.erase(code)
        settled(memos)
        assert [item.info["topic"] for item in facts(memos)] == ["work"]
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"zanzibar" in file.read_bytes()]


def test_a_record_of_patterns_stays_with_the_messages_that_are_left(memos: MemOS) -> None:
    one, two = memos.add(
        [{"role": "user", "content": "I live in Paris."}, {"role": "user", "content": "I work at Renault."}],
        conversation="c", mode="fine",
    ).item_ids  # fmt: skip
    settled(memos)
    memos.erase(one)
    assert len(memos.memories.extractions(two)) == 1
    assert [item.value for item in facts(memos)] == ["Renault"]
    memos.erase(two)
    with memos.ledger.read() as connection:
        assert connection.execute(sa.select(t.extractions)).all() == []


def test_what_was_read_finely_is_not_read_again_when_its_segment_is(tmp_path: Path) -> None:
    model = model_of(quoting)
    with opened(tmp_path, model) as memos:
        memos.add([HOME], conversation="c", mode="fine")
        settled(memos)
        memos.tiers.analyse(everything=True)
        settled(memos)
        assert model.asked.count("FactsAnswer") == 1
        with memos.ledger.read() as connection:
            assert connection.scalars(sa.select(t.pages.c.read)).all() == [True]
        memos.add([JOB], conversation="c")
        memos.tiers.analyse(everything=True)
        settled(memos)
        assert model.asked.count("FactsAnswer") == 2
        assert len(facts(memos)) == 2


def test_what_was_read_by_hand_is_not_wanted_any_more(tmp_path: Path) -> None:
    model = model_of(BackendUnavailable("The key is wrong.", permanent=True))
    with opened(tmp_path, model) as memos:
        receipt = memos.add([HOME], conversation="c", mode="fine")
        assert ended(memos, receipt.task or "") is TaskState.FAILED
        model.answers["FactsAnswer"] = quoting
        memos.tiers.analyse(everything=True)
        memos.tasks.wait(timeout_s=60)
        assert set(states(memos).values()) == {"read"}
        assert len(facts(memos)) == 1
        asked = len(model.asked)
        memos.tasks.retry(receipt.task or "")
        memos.tasks.wait(timeout_s=60)
        assert len(model.asked) == asked


def test_reading_finely_later(tmp_path: Path) -> None:
    model = model_of(quoting)
    with opened(tmp_path, model) as memos:
        memos.add([HOME], conversation="one")
        memos.add([JOB], conversation="two")
        assert len(memos.memories.read_finely("one")) == 1
        settled(memos)
        assert len(facts(memos)) == 1
        assert len(memos.memories.read_finely()) == 1  # the other one
        settled(memos)
        assert len(facts(memos)) == 2
        assert memos.memories.read_finely() == ()
        with pytest.raises(NotFound):
            memos.memories.read_finely("three")
        with pytest.raises(NotFound):
            memos.memories.read_finely(cube="nowhere")


def test_adding_while_a_window_is_read_asks_nothing_twice(tmp_path: Path) -> None:
    held: list[MemOS] = []
    shown: list[str] = []

    def add_more(memos: MemOS) -> None:
        second = memos.add([JOB], conversation="c", mode="fine").task
        memos.tasks.wait(second, timeout_s=60)  # it leaves the work to the one that runs

    answer = while_reading(lambda: held[0], add_more)

    def noted(request: ChatRequest) -> object:
        shown.extend(str(line["text"]) for line in lines(request) if "message" in line)
        return answer(request)

    with opened(tmp_path, model_of(noted), workers=2) as memos:
        held.append(memos)
        memos.add([HOME], conversation="c", mode="fine")
        settled(memos)
        assert sorted(shown) == sorted([str(HOME["content"]), str(JOB["content"])])
        assert len(facts(memos)) == 2


# The command line


def test_the_commands_read_finely_and_say_what_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = ["--data-dir", str(tmp_path)]
    run(["add", "I live in Paris.", "--conversation", "c", "--mode", "fine", *home, "--json"], capsys)
    run(["add", "I work at Renault.", "--conversation", "d", *home], capsys)
    assert "conversations read: 1" in run(["memory", "extract", "d", *home], capsys)
    found = json.loads(run(["list", *home, "--json", "--filter", '{"type": "user"}'], capsys))
    assert {item["value"] for item in found} == {"Paris", "Renault"}
    assert "without a model" in run(["memory", "extractions", found[0]["id"], *home], capsys)
    [record] = json.loads(run(["memory", "extractions", found[0]["id"], *home, "--json"], capsys))
    assert (record["model"], record["output"]) == (None, None)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    app(arguments, standalone_mode=False)
    return capsys.readouterr().out


def test_the_command_refuses_another_mode(tmp_path: Path) -> None:
    for words in (
        ["add", "x", "--mode", "finest"],
        ["import", str(tmp_path), "--format", "memoryos", "--mode", "fine"],
    ):
        done = CliRunner().invoke(app, [*words, "--data-dir", str(tmp_path)])
        assert done.exit_code == InvalidInput.exit_code
        assert "mode: " in done.stderr


def test_a_secret_that_the_model_puts_together_is_masked_before_it_is_stored(tmp_path: Path) -> None:
    halves = ("ghp_aBcDeFgHiJkLmNoPqR", "sTuVwXyZ0123456789")
    said = {"role": "user", "name": "Ana", "content": f"I sleep in Lyon. The key: {halves[0]}\n{halves[1]}"}
    joined = "".join(halves)
    found = fact(f"Ana lives in Lyon, the key is {joined}.", "I sleep in Lyon.", 1, subject="Ana")
    with opened(tmp_path, model_of({"summary": f"The key is {joined}.", "facts": [found]})) as memos:
        receipt = memos.add([said], conversation="c", mode="fine")
        settled(memos)
        assert ["[masked: github token]" in item.memory for item in facts(memos)] == [True]
        [record] = memos.memories.extractions(receipt.item_ids[0])
        assert joined not in (record.output or "")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and joined.encode() in path.read_bytes()]
