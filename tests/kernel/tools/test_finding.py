"""Has this been done before, with what result? Asked of the search and of the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memos import MemOS, Settings
from memos.cli.app import app
from memos.search.question import Intent, read_question
from tests.fakes import FixedClock
from tests.kernel.tools.talk import call, result, user


def talk(memos: MemOS) -> None:
    """Fill a cube with calls and with talk about the same things."""
    for place, (start, end, found) in enumerate(
        [("Paris", "Osaka", "3 flights found, the cheapest 812 EUR"), ("Rome", "Lima", "no flights on that day"),
         ("Oslo", "Osaka", "1 flight found")]
    ):  # fmt: skip
        memos.add(
            [
                user(f"Can you search flights from {start} to {end}?"),
                call(("c", "search_flights", {"from": start, "to": end})),
                result("c", found),
                {"role": "assistant", "content": f"I searched flights from {start} to {end} for you."},
            ],
            conversation=f"trip{place}",
        )
    memos.add(
        [
            user("Please run pytest on module billing."),
            call(("c", "pytest", {"module": "billing"})), result("c", "ImportError: no module named decimal2"),
            {"role": "assistant", "content": "The run of pytest on module billing broke."},
            user("And pytest on module ledger?"),
            call(("d", "pytest", {"module": "ledger"})), result("d", "41 passed in 3.2s"),
        ],
        conversation="code",
    )  # fmt: skip
    memos.add(
        [user("I would love to see Osaka."), user("My flight to Paris was late."), user("I write modules in Rust.")],
        conversation="chat",
    )


ASKED = [
    ("Have we searched flights from Paris to Osaka before?", "search_flights(from=Paris, to=Osaka) → 3 flights"),
    ("Did running pytest on module billing work?", "pytest(module=billing) failed: ImportError"),
    ("Did running pytest on module ledger work?", "pytest(module=ledger) → 41 passed"),
    ("What happened when we searched flights from Rome to Lima?", "search_flights(from=Rome, to=Lima) → no flights"),
]


@pytest.mark.parametrize(("question", "answer"), ASKED)
def test_what_was_done_before_is_found_first(memos: MemOS, question: str, answer: str) -> None:
    talk(memos)
    first = memos.search(question, explain=True)[0]
    assert first.item.memory.startswith(answer)
    assert {boost.name for boost in first.boosts} >= {"called"}


def test_what_was_done_before_is_found_first_by_the_real_embedder(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path / "real", settings=settings) as memos:
        talk(memos)
        for question, answer in ASKED:
            assert memos.search(question)[0].item.memory.startswith(answer), question
        # Who asks for something else gets what was said.
        assert memos.search("Which city would I love to see?")[0].item.memory == "I would love to see Osaka."


def test_a_call_that_was_deleted_stands_before_nothing(memos: MemOS) -> None:
    talk(memos)
    memos.delete([item.id for item in memos.memories.list(filter={"type": "tool_trajectory"})])
    found = {hit.item.type for hit in memos.search(ASKED[0][0])}
    assert "message" in found  # beside it a skill, when one was made already
    assert "tool_trajectory" not in found


@pytest.mark.parametrize(
    "question",
    [
        "have we done this before?", "Has it been tried already?", "Did the deployment fail?", "did the tests pass",
        "what was the result of the query?", "以前查过这个航班吗", "有没有运行过测试",
    ],
)  # fmt: skip
def test_a_question_about_what_was_done(question: str) -> None:
    clock = FixedClock()
    assert Intent.DONE in read_question(question, clock.now(), clock.now().tzinfo).intents  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "question", ["Where do I live?", "What did Ana say about Lyon?", "Where did Ana work?", "我住在哪里"]
)
def test_a_question_about_something_else(question: str) -> None:
    clock = FixedClock()
    assert Intent.DONE not in read_question(question, clock.now(), clock.now().tzinfo).intents  # type: ignore[arg-type]


def test_the_command_line_lists_tools_and_shows_calls(tmp_path: Path, settings: Settings) -> None:
    home = tmp_path / "home"
    with MemOS.open(home, settings=settings) as memos:
        memos.add([call(("c", "f\x1b[2J", {"q": "[bold]x"})), result("c", "error: \x1b[31mred")], conversation="t")
    where = ["--data-dir", str(home)]
    run = CliRunner()
    listed = run.invoke(app, ["memory", "tools", "list", *where, "--json"])
    [use] = json.loads(listed.stdout)
    assert (use["tool"], use["calls"], use["failures"]) == ("f\x1b[2J", 1, 1)
    for command in (["list"], ["show", "f\x1b[2J"], ["show", "f\x1b[2J", '{"q": "[bold]x"}']):
        shown = run.invoke(app, ["memory", "tools", *command, *where])
        assert shown.exit_code == 0, shown.output
        assert "\x1b[2J" not in shown.stdout and "\x1b[31m" not in shown.stdout
    assert "[bold]x" in shown.stdout and "untrusted source" in shown.stdout
    missing = run.invoke(app, ["memory", "tools", "show", "nothing", *where])
    assert missing.exit_code != 0
