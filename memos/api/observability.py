"""Prometheus metrics, request log and JSON logs: no tenant in a label, no key and no memory in a line."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memos.api.v1.common import error_response
from memos.core.clock import new_id
from memos.core.telemetry import Work
from memos.errors import BackendUnavailable
from memos.kernel.memos import MemOS
from memos.kernel.statistics import InstallationTotals
from memos.version import __version__

_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# Anybody who reaches the server may ask, so totals are counted at most this often.
_COUNTED_EVERY_S = 5.0


class Metrics:
    """The metrics of one application. Thread-safe."""

    def __init__(self, memos: MemOS) -> None:
        self._registry = registry = CollectorRegistry()
        request = ("route", "method", "status")
        self._requests = Counter("memos_requests", "Requests answered", request, registry=registry)
        self._latency = Histogram(
            "memos_request_seconds", "Time to answer a request", ("route",), buckets=_BUCKETS, registry=registry
        )
        self._under_way = Gauge("memos_requests_under_way", "Requests being answered", registry=registry)
        self._calls = Counter("memos_calls", "Calls of add and search", ("operation", "ended"), registry=registry)
        stage, told = ("operation", "stage"), "Time of a stage of add and search"
        self._stages = Histogram("memos_stage_seconds", told, stage, buckets=_BUCKETS, registry=registry)
        registry.register(_Installation(memos))
        memos.listeners.add(self._hear)

    def began(self) -> None:
        self._under_way.inc()

    def ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended; `route` is a pattern, never a path."""
        self._under_way.dec()
        self._requests.labels(route, method if method in _METHODS else "other", f"{status // 100}xx").inc()
        self._latency.labels(route).observe(seconds)

    def response(self) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    def _hear(self, work: Work) -> None:
        self._calls.labels(work.operation, "failed" if work.failed else "done").inc()
        self._stages.labels(work.operation, "whole").observe(work.seconds)
        for stage, seconds in work.stages.items():
            self._stages.labels(work.operation, stage).observe(seconds)


class _Installation(Collector):
    """Collects the installation's totals when Prometheus asks, at most every few seconds."""

    def __init__(self, memos: MemOS) -> None:
        self._memos = memos
        self._lock = threading.Lock()
        self._taken: tuple[float, InstallationTotals | None] | None = None

    def describe(self) -> list[Metric]:
        """Return nothing, so that registration does not query the ledger."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("memos_open_installations", "Installations this process has open", 1)
        info = GaugeMetricFamily("memos_info", "The version that runs", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info
        totals = self._totals()
        yield GaugeMetricFamily("memos_ledger_up", "1 when the ledger answers", int(totals is not None))
        if totals is not None:
            yield from _families(totals)

    def _totals(self) -> InstallationTotals | None:
        with self._lock:
            now = time.monotonic()
            if self._taken is None or now - self._taken[0] >= _COUNTED_EVERY_S:
                try:
                    self._taken = now, self._memos.statistics.totals()
                except BackendUnavailable:
                    self._taken = now, None
            return self._taken[1]


def _families(totals: InstallationTotals) -> Iterator[Metric]:
    yield GaugeMetricFamily("memos_cubes", "Cubes", totals.cubes)
    yield GaugeMetricFamily("memos_messages", "Messages stored", totals.messages)
    yield GaugeMetricFamily(
        "memos_model_tokens_today", "Tokens background tasks spent this UTC day", totals.tokens_today
    )
    tokens = CounterMetricFamily(
        "memos_model_tokens", "Tokens language models took, of chats, the proxy and the background", labels=("purpose",)
    )
    for purpose, number in sorted({"chat": 0, "proxy": 0, **totals.tokens}.items()):
        tokens.add_metric((purpose,), number)
    tiers = GaugeMetricFamily(
        "memos_tier_size", "Pages (short), segments (mid, archive) and memories (long) in a tier", labels=("tier",)
    )
    for tier, number in totals.tiers.items():
        tiers.add_metric((tier,), number)
    tasks = GaugeMetricFamily(
        "memos_tasks", "Tasks; those that ended are counted for an hour", labels=("kind", "state")
    )
    for (kind, state), number in sorted(totals.tasks.items()):
        tasks.add_metric((kind, state), number)
    outbox = GaugeMetricFamily("memos_outbox_rows", "Changes an index has yet to take", labels=("index", "state"))
    for (target, state), number in sorted(totals.outbox.items()):
        outbox.add_metric((target, state), number)
    events = CounterMetricFamily(
        "memos_events", "Events of all cubes since this process counts, such as add and move", labels=("kind",)
    )
    for kind, number in sorted({"add": 0, "move": 0, **totals.events}.items()):
        events.add_metric((kind,), number)
    caches = CounterMetricFamily("memos_cache_lookups", "Look-ups in this process's caches", labels=("cache", "found"))
    for cache, (hits, misses) in totals.caches.items():
        caches.add_metric((cache, "yes"), hits)
        caches.add_metric((cache, "no"), misses)
    yield from (tokens, tiers, tasks, outbox, events, caches)


log = logging.getLogger("memos.requests")

_GIVEN = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADER = b"x-request-id"
_STOPPING = (
    "The server stopped before the request had ended; repeat it. Whether a change was kept is not known: give it an "
    "Idempotency-Key, and it is made once."
)

request_id: ContextVar[str] = ContextVar("memos_request_id", default="-")
"""The id of the request that is being answered."""


class RequestLog:
    """Middleware that gives every request an id, taken from `X-Request-Id` or new, and logs how it ended."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(_HEADER, b"")
        id_ = given.decode() if _GIVEN.fullmatch(given) else new_id()
        status, is_answered, began = 500, False, time.perf_counter()

        async def named(message: Message) -> None:
            nonlocal status, is_answered
            if message["type"] == "http.response.start":
                status, is_answered = message["status"], True
                MutableHeaders(scope=message)[_HEADER.decode()] = id_
            await send(message)

        token = request_id.set(id_)
        self._metrics.began()
        try:
            await self._app(scope, receive, named)
        except asyncio.CancelledError:  # a stop has waited for it as long as it may
            if is_answered:
                raise
            await error_response(BackendUnavailable(_STOPPING), 503)(scope, receive, named)
        finally:
            request_id.reset(token)
            method, route, seconds = scope["method"], route_of(scope), time.perf_counter() - began
            self._metrics.ended(method, route, status, seconds)
            asked = {"request_id": id_, "method": method, "route": route}
            log.info("request", extra={**asked, "status": status, "ms": round(seconds * 1000, 1)})


def route_of(scope: Scope) -> str:
    """Return a request's route as a pattern, without ids; "none" if no route matched."""
    route = scope.get("route")
    pattern = getattr(route, "path_format", None) or getattr(route, "path", None)
    # The root path is where a family of routes is mounted; the rest of what was asked for is left out.
    if isinstance(route, Mount):
        return str(scope["root_path"])
    return f"{scope.get('root_path', '')}{pattern or ''}" or "none"


_KNOWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
# They log the address of each call, which may contain the question, or each of their steps.
_TALKATIVE = [
    "alembic",
    "apscheduler",
    "httpx2",
    "httpx",
    "httpcore",
    "httpcore2",
    "neo4j",
    "qdrant_client",
    "urllib3",
]
_PLACES = 12
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; with `quotes` it contains the messages of exceptions."""

    def __init__(self, *, quotes: bool = False) -> None:
        super().__init__()
        self._quotes = quotes

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": request_id.get(),
        }
        told |= {name: value for name, value in vars(record).items() if name not in _KNOWN}
        if record.exc_info and record.exc_info[1] is not None:
            told["error"] = self._error(record.exc_info[1])
        return json.dumps(told, ensure_ascii=True, default=lambda value: type(value).__name__)

    def _error(self, error: BaseException) -> dict[str, Any]:
        # Without the source lines that tracebacks quote, and without messages.
        frames = traceback.extract_tb(error.__traceback__, limit=-_PLACES)
        told: dict[str, Any] = {
            "type": f"{type(error).__module__}.{type(error).__qualname__}",
            "where": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
        }
        if self._quotes:
            told["says"] = str(error)
        cause = error.__cause__ or error.__context__
        return told if cause is None else {**told, "cause": f"{type(cause).__module__}.{type(cause).__qualname__}"}


class TerminalLines(JsonLines):
    """Formats a record for people: the time, the level if it is not `info`, the message, and the fields behind it."""

    def format(self, record: logging.LogRecord) -> str:
        told = json.loads(super().format(record))
        at, level, message = (told.pop(field) for field in ("at", "level", "message"))
        words = [datetime.fromisoformat(at).astimezone().strftime("%H:%M:%S")]
        if level != "info":
            words.append(level.upper())
        for field in ("logger", "request_id") if level == "info" else ():
            del told[field]
        fields = [f"{field}={value}" for field, value in told.items()]
        return _CONTROL.sub(" ", " ".join([*words, message, *fields]))


def to_stream(level: str, stream: TextIO | None = None) -> logging.Handler:
    """Log to a stream, standard error by default: for people on a terminal, as lines of JSON everywhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    formatter = TerminalLines if handler.stream.isatty() else JsonLines
    handler.setFormatter(formatter(quotes=level == "debug"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    return handler
