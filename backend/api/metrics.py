"""Figures for Prometheus: requests as they happen, the queue and the workers when `/metrics` is read.

Several processes behind one address count together, in files of a directory named in
PROMETHEUS_MULTIPROC_DIR by whatever starts them (tidemark/several.py does); any of them answers for all.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import Connection

from backend.routing import API_PREFIX
from backend.services.base.reads import Reads, ReplicaStatus
from backend.store.reports.figures import Figures, load_figures

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
COUNTED_TOGETHER = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """One registry per application, so that two of them (in tests) do not share counters."""

    def __init__(self, version: str, reads: Reads | None = None) -> None:
        self.version = version
        self._reads = reads
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tidemark_http_requests_total", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "tidemark_http_request_seconds",
            "Response time",
            ["method", "route"],
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self.streams = Gauge(
            "tidemark_event_streams", "Open event streams", registry=self.registry, multiprocess_mode="livesum"
        )

    def open_stream(self) -> AbstractContextManager[None]:
        """An event stream, for as long as it is open."""
        return self.streams.track_inprogress()

    def observe(self, scope: Any, status: int, seconds: float) -> None:
        route = route_of(scope)
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "(other)"
        self.requests.labels(method, route, str(status)).inc()
        # An event stream lasts as long as its page is open; that says nothing about the service.
        if route != f"{API_PREFIX}/events":
            self.seconds.labels(method, route).observe(seconds)

    def page(self, c: Connection, *, live_within_s: int) -> bytes:
        """The figures in Prometheus' text format."""
        asked = CollectorRegistry()
        asked.register(_Stored(load_figures(c, live_within_s=live_within_s), self.version))
        asked.register(_Replica(None if self._reads is None else self._reads.status))
        return generate_latest(self._counted()) + generate_latest(asked)

    def _counted(self) -> CollectorRegistry:
        if COUNTED_TOGETHER not in os.environ:
            return self.registry
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return together


class _Stored(Collector):
    """Figures read from the database at scrape time."""

    def __init__(self, figures: Figures, version: str) -> None:
        self._figures = figures
        self._version = version

    def collect(self) -> Iterator[GaugeMetricFamily]:
        figures = self._figures
        yield _gauge("tidemark_runs", "Runs by state", "state", figures.runs_by_state)
        yield _gauge("tidemark_queued_runs", "Queued runs by testbed", "testbed", figures.queued_by_testbed)
        yield _gauge(
            "tidemark_oldest_queued_run_seconds",
            "Age of the oldest queued run",
            "testbed",
            figures.oldest_queued_s_by_testbed,
        )
        yield _gauge(
            "tidemark_quarantined_workers", "Live workers in quarantine", "testbed", figures.quarantined_by_testbed
        )
        yield _gauge(
            "tidemark_github_messages", "Messages to GitHub that were not sent", "state", figures.github_by_state
        )
        yield _gauge("tidemark_live_workers", "Workers that are alive", "testbed", figures.workers_by_testbed)
        yield _gauge("tidemark_regressions", "Regressions by state", "state", figures.regressions_by_state)
        yield _gauge(
            "tidemark_paused_joint_detectors",
            "Suites whose series cannot be judged jointly for a while",
            "project",
            figures.paused_by_project,
        )
        yield _gauge("tidemark_info", "Version of the service", "version", {self._version: 1})


class _Replica(Collector):
    """How the read replica is, as the process sees it that is asked. Without a replica there are no samples."""

    def __init__(self, status: ReplicaStatus | None) -> None:
        self._status = status

    def collect(self) -> Iterator[GaugeMetricFamily]:
        lag = GaugeMetricFamily(
            "tidemark_replica_lag_seconds", "How far the read replica is behind, if it answers", labels=[]
        )
        used = GaugeMetricFamily("tidemark_replica_in_use", "Whether pages are read from the replica", labels=[])
        if self._status is not None:
            used.add_metric([], self._status.in_use)
            if self._status.lag_s is not None:
                lag.add_metric([], self._status.lag_s)
        yield lag
        yield used


def _gauge(name: str, what: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def route_of(scope: Any) -> str:
    """The route's pattern, never the path itself: strangers must not be able to make up label values."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return "(none)"
    # An included route knows its own part of the pattern only.
    of_api = scope["path"].startswith(f"{API_PREFIX}/") and not path.startswith(API_PREFIX)
    return f"{API_PREFIX}{path}" if of_api else str(path)


KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def families() -> list[Metric]:
    """Every family that /metrics can answer with, without samples of stored figures: what the reference lists."""
    nothing = Figures(**{each.name: {} for each in fields(Figures)})
    return [*Metrics("").registry.collect(), *_Stored(nothing, "").collect(), *_Replica(None).collect()]
