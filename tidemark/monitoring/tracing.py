"""Traces of requests and of the statements they send, for any collector that accepts OTLP over HTTP. Optional: nothing
of this is imported unless TIDEMARK_OTLP_ENDPOINT names one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.refusal import Refusal
from tidemark.settings import version

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.sdk.trace import TracerProvider
    from sqlalchemy import Engine

UNTRACED = "healthz,readyz,metrics,static,events"


def trace(app: FastAPI, engine: Engine, endpoint: str) -> TracerProvider:
    """Send a span for each request to the collector at this address, with one for each statement below it.

    The span has the request's id, as in its response and in the log, and the id of its run. Spans not yet sent when
    the process ends are sent then.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise Refusal(
            f"TIDEMARK_OTLP_ENDPOINT is set, but {error.name} is missing: pip install 'tidemark[otel]'"
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "tidemark", "service.version": version()}))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    FastAPIInstrumentor.instrument_app(
        app,
        tracer_provider=provider,
        excluded_urls=UNTRACED,
        server_request_hook=_name,
        exclude_spans=["receive", "send"],
        http_capture_headers_server_response=["x-request-id"],
    )
    # It states an upper bound below our SQLAlchemy; the events it listens to are the same, as the test says.
    SQLAlchemyInstrumentor().instrument(engine=engine, tracer_provider=provider, skip_dep_check=True)
    return provider


def _name(span: Any, scope: dict[str, Any]) -> None:
    """The run in the path of a request."""
    from backend.api.edge.middleware import run_in

    run_id = run_in(scope["path"])
    if run_id is not None and span is not None and span.is_recording():
        span.set_attribute("tidemark.run_id", run_id)
