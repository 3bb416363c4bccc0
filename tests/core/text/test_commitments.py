"""What binds an assistant from then on, and what it only says."""

from __future__ import annotations

import pytest

from memos.core.text.instructions import is_commitment, own_name


@pytest.mark.parametrize(
    "text",
    [
        "Got it — I'll remind you about the dentist on Thursday morning.",
        "From now on I'll always include the source links.",
        "I will never suggest peanuts again.",
        "I'll follow up on Monday.",
        "I promise to answer in French from now on.",
        "好的，我会在周四早上提醒您看牙医。",
        "以后我的回答会控制在100字以内。",
    ],
)
def test_a_commitment(text: str) -> None:
    assert is_commitment(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'd recommend toasting the cumin first.",
        "I suggest starting with a trial.",
        "I can help with that!",
        "I'm an AI language model.",
        "I'll explain it in three steps.",
        "I'll keep that in mind.",
        "I'll always be here for you!",
        "If you like, I'll remind you every day.",
        "我建议你先把孜然炒香。",
        "不客气，有需要随时找我！",
        "",
    ],
)
def test_advice_abilities_and_phrases_bind_nobody(text: str) -> None:
    assert not is_commitment(text)


def test_a_name_an_assistant_gives_itself() -> None:
    assert own_name("Hello, my name is Juno.") == "Juno"
    assert own_name("我叫小白。") == "小白"
    assert own_name("Your name is Ana.") is own_name("我叫你小林。") is None
