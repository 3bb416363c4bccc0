"""The ten examples of real uses print what is true, need no network and no extra, and are listed on their page."""

from __future__ import annotations

import re
import runpy
import socket
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# What each prints, in this order.
PRINTED = {
    "support_agent": (
        "[acme] How many seats do we have?", "[1]", "our plan has 60 seats now.",
        "(no longer true)", "Our plan is Business with 40 seats.",
        "[globex] How many seats do we have?", "[1]", "Our plan is Starter with 5 seats.",
        "[acme] All pages are blank again", "Please go back to firmware 2.3",
        "[globex] All pages are blank", "(nothing is known: ask back)",
        "globex asks acme's memory: No such cube: 'acme'.",
        "globex leaves: 3 memories purged", "['acme', 'default']",
    ),
    "coding_assistant": (
        "# Write the migration for our database.", "[1]", "Our database is PostgreSQL now",
        "# Commit the change.", "[1]", "Always run ruff before you commit.",
        "# The invoice test fails sometimes, why?", "[1]", "a fixture had no time zone.",
        "# How do I deploy to production?", "[1]", "production by a tag.",
        "Which database do we use? Our database is PostgreSQL now", "(current)",
        "before PostgreSQL? Our database is SQLite", "(replaced)",
        "feedback: forgotten", "[]",
    ),
    "diary": (
        "Where do I live?", "I moved to Valencia.",
        "Where did I live in April?", "I live in Madrid",
        "Where did I live before Valencia?", "I live in Madrid",
        "Who is my cello teacher?", "Pablo now.",
        "before Pablo?", "05 Jan: Today I started cello lessons with Mrs Novak.",
        "How fast do I run ten kilometres?", "51 minutes",
        "How fast was I in May?", "58 minutes",
        "Am I still with Sam?", "Sam and I broke up.",
        "What did I do in February?", "14 Feb: Dinner with Sam",
        "I live in Madrid now, in a flat with a green door.  ->  I moved to Valencia.",
        "erased: purged", "left: ()", "elsewhere: 7 memories",
    ),
    "meeting_notes": (
        "When is the launch?", "Priya, 16 Feb: The launch is on 17 March now",
        "When was the launch planned before?", "Priya, 02 Feb: The launch is on 3 March.",
        "Who writes the press release?", "Tom, 16 Feb",
        "What did Lena worry about?", "Lena, 02 Feb: I'm worried about the payment provider",
        "What is our budget?", "40,000 euros",
        "dark mode?", "Let's not ship dark mode",
        "What Tom said:", "I will write", "I'll ask them", "The press release is written",
        "The launch is on 3 March.  ->  The launch is on 17 March now",
        "next meeting:", "[1]", "17 March now",
    ),
    "research_notes": (
        "performance factor was 3.1 on average", "[heat-pumps.md > Heat pumps in old buildings > Results]",
        "We measured 120 houses", "[heat-pumps.md > Heat pumps in old buildings > Method]",
        "My hypothesis: large radiators", "Ask Ines for the raw data", "Payback took nine years.", "[insulation.md",
        "after a new version", "Payback took seven years.",
        "not in these notes: []", "to do: ['Ask Ines",
    ),
    "voice_assistant": (
        "heard: I drink my coffee black.", "heard: Please make my coffee.", "[1]", "with oat milk now.",
        "heard: Where does Noor live?", "[1]", "My sister Noor lives in Bergen.",
        "memory was late (recall), the assistant goes on", "heard: And what did I want to drink?",
    ),
    "group_chat": (
        "What must Chloé not eat?", "Chloé: I'll come. I am allergic to peanuts",
        "What must Ben not eat?", "Ben: Me! But I'm vegetarian",
        "Where does Dev live?", "I live in Leeds", "Where does Ana live?", "I live in York",
        "Which cake does Ben bring?", "the chocolate cake, not the lemon one.",
        "When does Dev's train leave?", "at six now", "Where can Dev sleep?", "on my sofa, Dev.",
        "Dev asks where they live: I live in Leeds", "Ana asks where they live: I live in York",
        "For the cook:", "allergic to peanuts", "vegetarian",
        "Who is named: ['Ana', 'Ben', 'Chloé', 'Dev', 'Leeds', 'York']",
    ),
    "from_mem0": (
        "first time (mem0): 2 added, 0 known", "second time (mem0): 0 added, 2 known",
        "Where does Ana live? I moved to Bergen in October.", "What is Ana allergic to? Allergic to nuts",
        "health: [('Allergic to nuts', '2026-03-02')]", "history: ['Allergic to nuts', 'Allergic to hazelnuts']",
        "before: Lives in Lyon (said on 05 March 2026)",
    ),
    "offline_small_machine": (
        "Where is the spare key? The spare key of the greenhouse is under the red pot.",
        "How often are the tomatoes watered? I water the tomatoes every second morning.",
        "What does sensor 42 read? Sensor 42 in greenhouse 0 reads 24 degrees.",
        "clean: True", "memory: at most", "disk:", "MB for 202 memories",
    ),
    "evaluate_own_data": (
        "own questions: 8, first hit", "among five 0.88", "Which medicine can't I take?", "Whose trailer can I use?",
        "answers that a `min_relevance` keeps: {'0.03': 1.0", "questions made from the memories:",
        "with 200 more memories: first hit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_is_true(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = socket.socket.connect

    def connect_here(this: socket.socket, address: Any) -> None:
        if this.family != socket.AF_UNIX:  # which the tests' own child processes come by
            raise OSError(f"an example called {address}")
        connect(this, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)
    monkeypatch.setenv("VOICE_BUDGET_S", "60")  # on a busy machine 300 ms may be too short
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed, at = capsys.readouterr().out, 0
    for expected in PRINTED[name]:
        at = printed.find(expected, at)
        assert at >= 0, f"{expected!r} is missing, or not in this place, in:\n{printed}"
        at += len(expected)


def test_the_page_lists_each_example_once_and_the_uses_first() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\)", page, re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert listed[: len(PRINTED)] == list(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_a_use_is_one_short_file(name: str) -> None:
    assert 30 <= len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 90
