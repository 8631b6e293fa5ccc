"""Traces reach a collector: a span for each request, with the statements below it, and the ids that the log has."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from sqlalchemy import Engine

from backend.api import create_api
from backend.services.base.config import ServiceConfig
from tests.conftest import ServeApp
from tidemark.monitoring.tracing import trace

RUN = "01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8"


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP over HTTP, as any collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: list[Span] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Receiver(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def attributes(span: Span) -> dict[str, str]:
    """By name; of a list the first."""
    told = ((each.key, each.value) for each in span.attributes)
    return {
        key: value.array_value.values[0].string_value if value.HasField("array_value") else value.string_value
        for key, value in told
    }


def test_a_request_is_a_span_with_its_statements_below_it(
    service_config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp, collector: Collector
) -> None:
    app = create_api(service_config, committing_engine)
    provider = trace(app, committing_engine, collector.endpoint)
    with serve_app(app, committing_engine, service_config) as server, server.client("read") as client:
        assert client.get("/healthz").status_code == 200
        answer = client.get(f"/api/v1/runs/{RUN}")
    provider.shutdown()
    requests = [span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER]
    assert [span.name for span in requests] == ["GET /api/v1/runs/{run_id}"]
    said = attributes(requests[0])
    assert said["tidemark.run_id"] == RUN
    assert said["http.response.header.x_request_id"] == answer.headers["x-request-id"]
    below = [span for span in collector.spans if span.parent_span_id == requests[0].span_id]
    assert any(span.name.startswith("SELECT") for span in below)
    assert len({span.trace_id for span in [*requests, *below]}) == 1
