"""Tidemark from a script or a notebook. Needs the standard library only; pandas or polars are used where installed.

from tidemark.client import Client
frame = Client("https://tidemark.example", token).series("northsea/loom", benchmark="moe.layer")[0].frame()
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any

TIMEOUT_S = 60.0
# Columns of a series' points that are one value a point.
COLUMNS = (
    "position", "sha", "message", "author", "run_id", "committed_at", "measured_at", "value", "smoothed",
    "smoothed_low", "smoothed_high", "baseline", "band_low", "band_high", "verdict", "onset", "change", "change_low",
    "change_high", "regression_id",
)  # fmt: skip
MOMENTS = ("committed_at", "measured_at")


class ApiError(Exception):
    """The service refused; the message says what was wrong, `status` is HTTP's, `problem` the whole document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title') or 'refused'}")
        self.status = status
        self.problem = problem


class Unreachable(Exception):
    """Nothing answered at that address, or something that does not speak Tidemark's API."""


@dataclass(frozen=True, slots=True)
class Points:
    """The history of one series, oldest first: a list for each column."""

    series: Mapping[str, Any]
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.columns["value"])

    def frame(self, library: str | None = None) -> Any:
        """A frame of `library` ("pandas" or "polars"); not stated: of the one that is installed, pandas first, else the
        columns as a dictionary of lists."""
        if library not in (None, "pandas", "polars"):
            raise ValueError(f"library is {library!r}; accepted: pandas, polars")
        if library == "pandas" or (library is None and find_spec("pandas") is not None):
            pandas = import_module("pandas")
            frame = pandas.DataFrame(dict(self.columns))
            for name in MOMENTS:
                if name in frame:
                    frame[name] = pandas.to_datetime(frame[name], utc=True, format="ISO8601")
            return frame
        if library == "polars" or find_spec("polars") is not None:
            polars = import_module("polars")
            moments = {name: list(map(_moment, self.columns[name])) for name in MOMENTS if name in self.columns}
            kinds = dict.fromkeys(moments, polars.Datetime("us", "UTC"))
            return polars.DataFrame({**self.columns, **moments}, schema_overrides=kinds)
        return {name: list(values) for name, values in self.columns.items()}


@dataclass(frozen=True, slots=True)
class Series:
    """One series: project, testbed, benchmark, variant, metric, preset, suite version."""

    client: Client
    id: int
    about: Mapping[str, Any]

    @property
    def name(self) -> str:
        parts = (self.about.get("benchmark"), self.about.get("variant_key"), self.about.get("metric"))
        return " ".join(str(part) for part in parts if part)

    def points(self, *, granularity: str = "commit", **filters: str | int) -> Points:
        """Its history; `since`, `until`, `range` (7d, 90d, all) and `last` choose a part of it."""
        answer = self.client.get(f"/api/v1/series/{self.id}/points", granularity=granularity, **filters)
        count = len(answer["value"])
        columns = {name: answer[name] for name in COLUMNS if len(answer.get(name) or ()) == count}
        return Points(answer["series"], columns)

    def frame(self, library: str | None = None, *, granularity: str = "commit", **filters: str | int) -> Any:
        """Its history as a frame of pandas or polars."""
        return self.points(granularity=granularity, **filters).frame(library)

    def explain(self, commit: str) -> Mapping[str, Any]:
        """Why the point at a commit is red, or is not."""
        return self.client.get(f"/api/v1/series/{self.id}/explain", commit=commit)


@dataclass(frozen=True, slots=True)
class Client:
    """A Tidemark service. Reading may need no token; delivering does."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S

    def series(self, project: str, **filters: str) -> list[Series]:
        """Series of a project; filters: testbed, suite, benchmark, metric, role, text."""
        found = self.pages("/api/v1/series", project=project, **filters)
        return [Series(self, int(item["id"]), item) for item in found]

    def regressions(self, **filters: str | int | bool) -> list[Mapping[str, Any]]:
        """Regressions; filters: project, state, cause, testbed, still_bad, since, until …"""
        return list(self.pages("/api/v1/regressions", **filters))

    def verdict(self, project: str, commit: str) -> Mapping[str, Any]:
        """The verdict on a commit now."""
        return self.get(f"/api/v1/commits/{urllib.parse.quote(commit, safe='')}/verdict", project=project)

    def run(self, run_id: str) -> Mapping[str, Any]:
        """A run as it was delivered (`tidemark.run/1`)."""
        return self.get(f"/api/v1/runs/{urllib.parse.quote(run_id, safe='')}", format="run.json")

    def submit(self, run: Mapping[str, Any] | bytes) -> Mapping[str, Any]:
        """Deliver a run; the answer holds every verdict."""
        body = run if isinstance(run, bytes) else json.dumps(run).encode()
        run_id = urllib.parse.quote(str(json.loads(body)["id"]), safe="")
        return self._ask("PUT", f"/api/v1/runs/{run_id}", body)

    def import_file(
        self, data: bytes, *, project: str, format: str = "auto", **context: str | bool | Sequence[str] | None
    ) -> Mapping[str, Any]:
        """Deliver a result file of another tool; `context` states what the file does not say (commit, testbed …)."""
        query = _query({"project": project, **context})
        return self._ask("POST", f"/api/v1/import/{urllib.parse.quote(format, safe='')}?{query}", data)

    def get(self, path: str, **query: str | int | bool | None) -> Mapping[str, Any]:
        asked = _query(query)
        return self._ask("GET", f"{path}?{asked}" if asked else path, None)

    def pages(self, path: str, **query: str | int | bool | None) -> Iterator[Mapping[str, Any]]:
        """Every item of a list, page by page."""
        cursor: str | None = None
        while True:
            answer = self.get(path, **{**query, **({} if cursor is None else {"cursor": cursor})})
            yield from answer["items"]
            cursor = answer.get("next")
            if cursor is None:
                return

    def _ask(self, method: str, path: str, body: bytes | None) -> Mapping[str, Any]:
        request = urllib.request.Request(f"{self.url.rstrip('/')}{path}", data=body, method=method)
        request.add_header("Accept", "application/json")
        if body is not None:
            kind = "application/json" if method == "PUT" else "application/octet-stream"
            request.add_header("Content-Type", kind)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, _problem(error)) from None
        except OSError as error:
            raise Unreachable(f"no answer from {self.url}: {getattr(error, 'reason', error)}") from None
        except (ValueError, http.client.HTTPException):
            raise Unreachable(f"{self.url} does not speak Tidemark's API") from None
        if not isinstance(answer, dict):
            raise Unreachable(f"{self.url} does not speak Tidemark's API")
        return answer


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _query(values: Mapping[str, Any]) -> str:
    given: list[tuple[str, str]] = []
    for name, value in values.items():
        listed = value if isinstance(value, list | tuple) else [value]
        for item in listed:
            if item is not None:
                given.append((name, str(item).lower() if isinstance(item, bool) else str(item)))
    return urllib.parse.urlencode(given)


def _problem(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        document = json.load(error)
    except (ValueError, OSError, http.client.HTTPException):
        return {"title": error.reason}
    return document if isinstance(document, dict) else {"title": str(document)}
