"""Figures for Prometheus: requests as they happen, the queue and the fleet when they are asked for."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy import Connection

from backend.store.figures import Figures, load_figures

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """One registry per application, so that two of them (in tests) do not share counters."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tidemark_http_requests_total", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "tidemark_http_request_seconds",
            "Time to answer",
            ["method", "route"],
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self.streams = Gauge("tidemark_event_streams", "Open event streams", registry=self.registry)
        self.runs = Gauge("tidemark_runs", "Runs by state", ["state"], registry=self.registry)
        self.queue = Gauge("tidemark_queued_runs", "Queued runs by testbed", ["testbed"], registry=self.registry)
        self.workers = Gauge("tidemark_live_workers", "Workers that are alive", ["testbed"], registry=self.registry)
        self.regressions = Gauge("tidemark_regressions", "Regressions by state", ["state"], registry=self.registry)
        Gauge("tidemark_info", "Version of the service", ["version"], registry=self.registry).labels(version).set(1)

    def observe(self, scope: Any, status: int, seconds: float) -> None:
        route = route_of(scope)
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "(other)"
        self.requests.labels(method, route, str(status)).inc()
        # An event stream lasts as long as its page is open; that says nothing about the service.
        if route != f"{API_PREFIX}/events":
            self.seconds.labels(method, route).observe(seconds)

    def page(self, c: Connection, *, live_within_s: int, open_streams: int) -> bytes:
        """The figures in Prometheus' text format."""
        self._take(load_figures(c, live_within_s=live_within_s))
        self.streams.set(open_streams)
        return generate_latest(self.registry)

    def _take(self, figures: Figures) -> None:
        for gauge, values in (
            (self.runs, figures.runs_by_state),
            (self.queue, figures.queued_by_testbed),
            (self.workers, figures.workers_by_testbed),
            (self.regressions, figures.regressions_by_state),
        ):
            gauge.clear()
            for label, count in values.items():
                gauge.labels(label).set(count)


def route_of(scope: Any) -> str:
    """The route's pattern, never the path itself: strangers must not be able to make up label values."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return "(none)"
    # An included route knows its own part of the pattern only.
    of_api = scope["path"].startswith(f"{API_PREFIX}/") and not path.startswith(API_PREFIX)
    return f"{API_PREFIX}{path}" if of_api else str(path)


API_PREFIX = "/api/v1"
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
