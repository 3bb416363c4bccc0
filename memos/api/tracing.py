"""OpenTelemetry spans of requests, `add` and `search`: routes and times only. Needs the extra `tracing`."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memos.api.observability import request_id, route_of
from memos.core.telemetry import Work
from memos.version import __version__


def exporting(endpoint: str) -> Tracing:
    return Tracing(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))


class Tracing:
    """The traces of one application, with its own provider. Thread-safe."""

    def __init__(self, processor: SpanProcessor) -> None:
        resource = Resource.create({"service.name": "hippocube", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("memos", __version__)

    def hear(self, work: Work) -> None:
        span = self._tracer.start_span(f"memos.{work.operation}", start_time=work.started_ns)
        if work.failed:
            span.set_status(trace.StatusCode.ERROR)
        below = trace.set_span_in_context(span)
        for lap in work.laps:
            stage = self._tracer.start_span(f"memos.{work.operation}.{lap.stage}", below, start_time=lap.started_ns)
            stage.end(lap.started_ns + round(lap.seconds * 1e9))
        span.end(work.started_ns + round(work.seconds * 1e9))

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return the application with a span for each request, continuing a caller's `traceparent`."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            parent = TraceContextTextMapPropagator().extract(headers)
            with self._tracer.start_as_current_span(
                scope["method"], parent, kind=trace.SpanKind.SERVER, record_exception=False
            ) as span:

                async def told(message: Message) -> None:
                    if message["type"] == "http.response.start":
                        span.set_attribute("http.response.status_code", message["status"])
                        if message["status"] >= 500:
                            span.set_status(trace.StatusCode.ERROR)
                    await send(message)

                try:
                    await app(scope, receive, told)
                finally:
                    route = route_of(scope)
                    span.update_name(f"{scope['method']} {route}")
                    about = {"http.request.method": scope["method"], "http.route": route}
                    span.set_attributes({**about, "memos.request_id": request_id.get()})

        return traced

    def close(self) -> None:
        self._provider.shutdown()
