"""Remembered answers: bounded, and forgotten for good."""

from __future__ import annotations

import dataclasses
import random

from memos.core.ports import ChatMessage, ChatReply, ChatRequest, Image
from memos.core.tokens import Tokens
from memos.llm.client import ResponseCache, key_of


def reply(text: str) -> ChatReply:
    return ChatReply(text, Tokens(1, 1))


def test_an_answer_is_remembered_and_the_least_used_one_dropped() -> None:
    cache = ResponseCache(1_000_000, max_entries=2)
    for key in "ab":
        cache.put(key, reply(key), cache.generation)
    assert cache.get("a") == reply("a")
    cache.put("c", reply("c"), cache.generation)
    assert cache.get("b") is None
    assert (cache.get("a"), cache.get("c")) == (reply("a"), reply("c"))


def test_the_bytes_stay_within_the_limit() -> None:
    cache = ResponseCache(10_000)
    chance = random.Random(1)
    for n in range(300):
        cache.put(str(n % 50), reply("花" * chance.randrange(2_000)), cache.generation)
        assert cache.size_bytes <= 10_000
    assert 0 < len(cache) < 50


def test_replacing_and_dropping_keeps_the_count_right() -> None:
    cache = ResponseCache(10_000)
    cache.put("a", reply("x" * 100), cache.generation)
    once = cache.size_bytes
    cache.put("a", reply("x" * 100), cache.generation)
    assert cache.size_bytes == once
    cache.drop("a")
    cache.drop("a")
    assert (cache.size_bytes, len(cache)) == (0, 0)


def test_an_answer_larger_than_everything_is_not_kept_and_pushes_nothing_out() -> None:
    cache = ResponseCache(2_000)
    cache.put("a", reply("small"), cache.generation)
    cache.put("b", reply("x" * 3_000), cache.generation)
    assert cache.get("a") == reply("small")
    assert cache.get("b") is None


def test_no_bytes_remember_nothing() -> None:
    cache = ResponseCache(0)
    cache.put("a", reply("a"), cache.generation)
    assert len(cache) == 0


def test_forgetting_drops_all_and_what_is_under_way() -> None:
    cache = ResponseCache(10_000)
    cache.put("a", reply("a"), cache.generation)
    asked = cache.generation
    cache.forget()
    cache.put("b", reply("b"), asked)
    assert (len(cache), cache.size_bytes, cache.get("a"), cache.get("b")) == (0, 0, None, None)
    cache.put("c", reply("c"), cache.generation)
    assert cache.get("c") == reply("c")


def test_a_key_depends_on_everything_that_is_asked() -> None:
    base = ChatRequest((ChatMessage("user", "a"),))
    others = [
        dataclasses.replace(base, messages=(ChatMessage("user", "b"),)),
        dataclasses.replace(base, messages=(ChatMessage("system", "a"),)),
        dataclasses.replace(base, messages=(ChatMessage("user", ""), ChatMessage("user", "a"))),
        dataclasses.replace(base, messages=(ChatMessage("user", "\ud800"),)),
        dataclasses.replace(base, messages=(ChatMessage("user", "\ufffd"),)),
        dataclasses.replace(base, max_tokens=1),
        dataclasses.replace(base, temperature=0.0),
        dataclasses.replace(base, schema={"type": "object"}),
        dataclasses.replace(base, schema_name="other"),
    ]
    keys = {key_of("m", request) for request in [base, *others]} | {key_of("n", base)}
    assert len(keys) == len(others) + 2
    assert key_of("m", base) == key_of("m", dataclasses.replace(base))
    assert all(len(key) == 64 for key in keys)


def test_another_image_is_another_question() -> None:
    def key(*images: bytes) -> str:
        shown = tuple(Image("image/png", data) for data in images)
        return key_of("m", ChatRequest((ChatMessage("user", "What is it?", shown),)))

    assert len({key(), key(b"a"), key(b"b"), key(b"a", b"b"), key(b"b", b"a")}) == 5
    assert key(b"a") == key(b"a")
