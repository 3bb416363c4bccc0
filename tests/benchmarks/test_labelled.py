"""The labelled messages have a shape, and the score counts what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import labelled, reading
from benchmarks.data import BadData
from benchmarks.labelled import Expected, Labelled, Score
from benchmarks.reading_quality import facts_of

TEA = Expected(kind="preference", says=["tea"], likes=True)


def message(text: str, *expect: Expected) -> Labelled:
    return Labelled(id="x", part="tune", language="en", role="user", text=text, expect=list(expect))


def scored(text: str, *expect: Expected) -> Score:
    score, said = Score(), message(text, *expect)
    score.add(said, facts_of(said))
    return score


def test_both_parts_hold_both_languages_and_enough_of_nothing() -> None:
    messages = labelled.load()
    assert len(messages) >= 120
    for part in labelled.PARTS:
        for language in labelled.LANGUAGES:
            here = [each for each in messages if (each.part, each.language) == (part, language)]
            kinds = {expected.kind for each in here for expected in each.expect}
            assert kinds == {"fact", "relation", "event", "plan", "health", "preference", "instruction", "assistant"}
            assert sum(not each.expect for each in here) >= 10


def test_what_is_held_out_is_read_precisely() -> None:
    score = labelled.score((each, facts_of(each)) for each in labelled.load())["held_out", "all"]
    assert score.junk / score.stored < 0.05
    assert score.right / score.stored > 0.9


def test_right_misread_and_junk() -> None:
    assert [scored("I love tea.", TEA).right, scored("I love tea.").junk] == [1, 1]
    assert scored("I love tea.", TEA.model_copy(update={"likes": False})).misread == 1
    assert scored("I live in Oslo.", Expected(kind="fact", says=["Oslo"])).misread == 1
    lives = Expected(kind="fact", says=["Oslo"], key="residence", value="Oslo")
    assert scored("I live in Oslo.", lives).figures()["keys"] == 1
    silent = scored("The sky is tea.", TEA)
    assert (silent.figures()["recall"], silent.figures()["precision"], len(silent.missed)) == (0, None, 1)
    maybe = TEA.model_copy(update={"optional": True})
    assert scored("The sky is tea.", maybe).figures()["recall"] is None


GOOD = {"id": "a", "part": "tune", "language": "en", "role": "user", "text": "I like tea", "expect": []}


@pytest.mark.parametrize(
    "raw",
    [
        "[",
        "{}",
        "[]",
        json.dumps([GOOD, GOOD]),
        json.dumps([GOOD, {**GOOD, "id": "b"}]),
        json.dumps([{**GOOD, "part": "test"}]),
        json.dumps([{**GOOD, "more": 1}]),
        json.dumps([{**GOOD, "expect": [{"kind": "fact", "says": ["coffee"]}]}]),
        json.dumps([{**GOOD, "expect": [{"kind": "fact", "says": ["tea"], "key": "x"}]}]),
        json.dumps([{**GOOD, "expect": [{"kind": "assistant", "says": ["tea"]}]}]),
    ],
)
def test_another_shape_is_refused(tmp_path: Path, raw: str) -> None:
    (file := tmp_path / "l.json").write_text(raw, encoding="utf-8")
    with pytest.raises(BadData):
        labelled.load(file)


def test_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert reading.main(["--parts", "labelled", "junk", "speed", "--repeat", "50"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["n"].keys() == {"labelled", "junk", "speed"}
    assert figures["labelled"]["held_out, zh"]["stored"] > 0
    assert figures["messages_per_s"]["rough_over_fine"] > 0
