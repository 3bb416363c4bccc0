"""Endpoints that keep what prompts begin with: the same beginning each time, warmed, apart for each cube, counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memos import MemOS, Settings
from memos.api.serving import first_key
from memos.backends.openai.metrics import metrics_url
from memos.core.kv_cache import ServerPrefixCache
from memos.core.settings import IndexSettings, LimitSettings
from tests.api.running import running
from tests.fakes import WordEmbedder
from tests.support.servers.openai_server import Asked, OpenAIServer, Said, answer, counted

BLOCK = 16
"""Words of a block, as the server below counts."""


class PrefixCache:
    """What vLLM does with prompts, with words for tokens: whole blocks are kept, and found under their salt alone."""

    def __init__(self) -> None:
        self._kept: set[tuple[str | None, tuple[str, ...]]] = set()
        self.tokens = self.hits = 0
        self.asked: list[Asked] = []

    def __call__(self, asked: Asked) -> Said:
        self.asked.append(asked)
        salt = asked.body.get("cache_salt")
        words = [word for message in asked.body["messages"] for word in [message["role"], *message["content"].split()]]
        blocks = [tuple(words[:end]) for end in range(BLOCK, len(words) + 1, BLOCK)]
        hits = [block for block in blocks if (salt, block) in self._kept]
        self._kept |= {(salt, block) for block in blocks}
        self.tokens, self.hits = self.tokens + len(words), self.hits + BLOCK * len(hits)
        usage = {**counted(len(words), 1), "prompt_tokens_details": {"cached_tokens": BLOCK * len(hits)}}
        short = asked.body.get("max_tokens") == 1
        return answer("Yes.", usage=usage, finish="length" if short else "stop")


@pytest.fixture
def cache() -> PrefixCache:
    return PrefixCache()


@pytest.fixture
def server(cache: PrefixCache) -> Iterator[OpenAIServer]:
    with OpenAIServer(cache) as server:
        yield server


@pytest.fixture(params=["on", "salt"])
def here(
    request: pytest.FixtureRequest, tmp_path: Path, cache: PrefixCache, server: OpenAIServer
) -> Iterator[tuple[MemOS, PrefixCache]]:
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        chat_model=server.settings(prefix_cache=request.param),
    )
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos:
        yield memos, cache


def remember(memos: MemOS, cube: str) -> None:
    """Have prompts of a cube begin with ten memories."""
    for n in range(10):
        [id_] = memos.add(f"Boat number {n} lies at the northern pier since {1990 + n}.", cube=cube).item_ids
        memos.tiers.pin(id_, cube=cube)
    memos.tasks.wait(memos.kv.compose(cube), timeout_s=60)


def test_a_warmed_prefix_is_found_and_what_was_cached_is_told(here: tuple[MemOS, PrefixCache]) -> None:
    memos, _ = here
    remember(memos, "default")
    memos.kv.warm()
    told = memos.chat("Which boats are there?", store=False).activation
    assert told is not None
    assert told.tier == "server"
    assert told.cached_tokens > 0.5 * told.prompt_tokens


def test_a_cube_never_meets_what_is_kept_of_another(here: tuple[MemOS, PrefixCache]) -> None:
    memos, cache = here
    salted = memos.settings.chat_model.prefix_cache == "salt"
    memos.cubes.create("other")
    remember(memos, "default")
    memos.kv.warm()
    cached = memos.chat("Which boats are there?", cubes=["other"], store=False).activation
    assert cached is not None
    salts = {asked.body.get("cache_salt") for asked in cache.asked if "helpful" in asked.body["messages"][0]["content"]}
    if salted:
        assert cached.cached_tokens == 0
        assert len(salts) == 2
        assert all(salt is not None and "default" not in salt and "other" not in salt for salt in salts)
    else:
        assert cached.cached_tokens == BLOCK  # the usual instructions, which are no secret
        assert salts == {None}


def metrics(asked: int, cached: int) -> str:
    """What vLLM's `/metrics` has of its prefix cache, for two engines, with LMCache behind them."""
    return f"""\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {asked}.0
vllm:prefix_cache_queries_total{{engine="1",model_name="m"}} 64.0
# HELP vllm:prefix_cache_queries_created Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{{engine="0",model_name="m"}} 1.7645e+09
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {cached}.0
vllm:prefix_cache_hits_total{{engine="1",model_name="m"}} 16.0
vllm:external_prefix_cache_queries_total{{engine="0",model_name="m"}} 1.024e+03
vllm:external_prefix_cache_hits_total{{engine="0",model_name="m"}} 512.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.25
vllm:kv_cache_usage_perc{{engine="1",model_name="m"}} 0.75
vllm:e2e_request_latency_seconds_bucket{{le="+Inf",model_name="a}} b"}} NaN
"""


def test_what_the_server_says_of_its_cache_is_told(here: tuple[MemOS, PrefixCache], server: OpenAIServer) -> None:
    memos, cache = here
    told = memos.kv.stats().server
    assert told is not None
    assert "status 404" in (told.reason or "")
    remember(memos, "default")
    memos.kv.warm()
    memos.chat("Which boats are there?", store=False)
    assert cache.hits > 0
    asked, cached = cache.tokens, cache.hits  # background work asks, too
    server.metrics = metrics(asked, cached)
    assert memos.kv.stats().server == ServerPrefixCache(asked + 64, cached + 16, 1024, 512, 0.5)
    server.metrics = "vllm:prefix_cache_queries_total{ nonsense\n"
    told = memos.kv.stats().server
    assert told is not None
    assert "no metric vllm:prefix_cache_queries_total" in (told.reason or "")


@pytest.mark.parametrize("base", ["http://h:8000/v1", "http://h:8000/v1/", "http://h:8000", "http://h:8000/"])
def test_metrics_are_beside_the_protocol(base: str) -> None:
    assert metrics_url(base) == "http://h:8000/metrics"


def test_the_proxy_sends_the_same_beginning(here: tuple[MemOS, PrefixCache]) -> None:
    memos, cache = here
    remember(memos, "default")
    key = first_key(memos)
    memos.sharing.grant("default", "admin", "owner")

    def ask(url: str, question: str) -> dict[str, Any]:
        messages = [{"role": "system", "content": "Be brief, and polite."}, {"role": "user", "content": question}]
        got = httpx2.post(
            f"{url}/openai/v1/chat/completions", json={"messages": messages, "user": "admin"},
            headers={"Authorization": f"Bearer {key}", "X-Memos-Store": "false"}, timeout=60,
        )  # fmt: skip
        assert got.status_code == 200, got.text
        return got.json()["usage"]["prompt_tokens_details"]

    for text in ("I sail.", "I row."):
        [id_] = memos.add(text, cube="admin", actor="admin").item_ids
        memos.tiers.pin(id_, cube="admin", actor="admin")
    memos.tasks.wait(memos.kv.compose("admin"), timeout_s=60)
    with running(memos) as url:
        ask(url, "Which boats are there?")
        assert ask(url, "Where is the pier?")["cached_tokens"] > 0
    systems = [asked.body["messages"][0]["content"] for asked in cache.asked]
    first, second = (system for system in systems if "polite" in system)
    part = first.split("I row.")[0]
    assert part.startswith("Be brief, and polite.")
    assert "I sail." in part
    assert second.startswith(part)
