"""Metrics of an endpoint's prefix cache, as vLLM tells them to Prometheus at `/metrics`.

Source: https://docs.vllm.ai/en/latest/usage/metrics.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import httpx2

from memos.backends.http import TooLarge, opened
from memos.core.kv_cache import ServerPrefixCache
from memos.core.settings import ChatSettings

_TIMEOUT_S = 5.0
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(?P<value>\S+)(?:\s+-?\d+)?")
# Names of this version, then of versions before 0.10.
_ASKED = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
_CACHED = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
_EXTERNAL_ASKED = ("vllm:external_prefix_cache_queries_total",)
_EXTERNAL_CACHED = ("vllm:external_prefix_cache_hits_total",)
_USED = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")


def prefix_cache_of(settings: ChatSettings) -> ServerPrefixCache:
    """Return what the endpoint says of its prefix cache, or why it says nothing; never raises for what it answers."""
    url = metrics_url(str(settings.base_url))
    try:
        with opened(settings) as client:
            response = client.get(url, timeout=_TIMEOUT_S)
    except (httpx2.HTTPError, TooLarge) as error:
        return ServerPrefixCache(reason=f"{url} cannot be read ({type(error).__name__})")
    if response.status_code != 200:
        return ServerPrefixCache(reason=f"{url} answers with status {response.status_code}")
    samples = list(_samples(response.text))
    asked = _total(samples, _ASKED)
    if asked is None:
        return ServerPrefixCache(reason=f"{url} has no metric {_ASKED[0]}: it is not vLLM, or has no prefix cache")
    used = [value for name, value in samples if name in _USED]
    return ServerPrefixCache(
        asked,
        _total(samples, _CACHED),
        _total(samples, _EXTERNAL_ASKED),
        _total(samples, _EXTERNAL_CACHED),
        round(sum(used) / len(used), 4) if used else None,
    )


def metrics_url(base_url: str) -> str:
    """Return where an endpoint has its metrics: beside the version of its protocol."""
    parts = urlsplit(base_url)
    path = re.sub(r"/v\d+$", "", parts.path.rstrip("/"))
    return urlunsplit((parts.scheme, parts.netloc, f"{path}/metrics", "", ""))


def _samples(text: str) -> Iterator[tuple[str, float]]:
    """Yield names and finite values; of engines that share the work each has a sample of its own."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            yield found["name"], value


def _total(samples: list[tuple[str, float]], names: tuple[str, ...]) -> int | None:
    for name in names:
        if found := [value for each, value in samples if each == name]:
            return int(sum(found))
    return None
