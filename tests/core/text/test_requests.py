"""What asks for something to be done or advised, and what asks for what was told."""

from __future__ import annotations

import time

import pytest

from memos.core.text.sentences import is_request


@pytest.mark.parametrize(
    "text",
    [
        "Can you recommend a restaurant?", "Suggest a hotel in Oslo", "Any good podcasts for a long drive?",
        "What are some dishes to try?", "Where should I stay in Macau?", "Write a haiku about rain",
        "I'm planning a week in Rome.", "Book club is on Friday. Ideas?", "What do you suggest?",
        "What's the easiest way for me to get downtown?", "Which soccer clubs are worth following?",
        "I'm stiff as a board, what would loosen me up?", "Which shoes would go best with my gown?",
        "I want something for the evenings. Which tablet is best?", "What's a neat spot for tapas?",
        "请推荐一家酒店", "想请教你一件事", "怎么做红烧肉",
    ],
)  # fmt: skip
def test_what_is_to_be_done_or_advised(text: str) -> None:
    assert is_request(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "?", "What did Ann make for the church?", "Where do I live?", "What is my dog called?",
        "Which book has Tim read for the trip?", "What does Ann love most about camping?", "Who won?",
        "Which US states might Tim be in during September?", "When was my last visit?", "The list is long.",
        "What recommendations has Nate received?", "阿浩申请了贷款",
        "What do I do for a living?", "What is the wifi password for our cabin?", "What time will my flight land?",
        "Which book did you recommend last week?", "Can you remind me where I parked?", "Where is my suit?",
        "我请了几天假？",
    ],
)  # fmt: skip
def test_what_was_told_is_asked_for(text: str) -> None:
    assert not is_request(text)


@pytest.mark.parametrize(
    "text", ["what " * 400, "I my what would " * 125, "what for me a " * 150, "a? " * 700, "." * 2_000]
)
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()
    is_request(text * 50)
    assert time.process_time() - started < 1
