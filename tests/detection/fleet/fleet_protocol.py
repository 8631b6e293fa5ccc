"""Playing a fleet to a program, record by record, and keeping what it says.

Every record (fleet, run, accept, confirm, end) is answered by incidents and perhaps a request for a session, before the
next one is given: nothing of the future is ever told. A malformed answer is counted and not applied.
"""

from __future__ import annotations

import functools
import json
import math
import time

import numpy as np

TOL, LOOSE = 3, 10  # commits: right, and near enough to be about the same event
SETTLE = 40  # records after telling at which commit, testbeds and series are judged
MUST = 4.0  # percent: series that must be listed; anything below .5 is wrong to list
STORM = 2  # confirmed regressions that a machine, environment or method event may raise
SESSIONS = 400  # per fleet; later requests are answered with an error
CAUSES = ("code", "environment", "hardware", "method")
KINDS = ("regression", "improvement", "infra", "environment", "method")
FIELDS = ("kind", "cause", "series", "testbed", "worker", "first_bad_commit", "range", "magnitude_pct", "confirmed")
OWN_KIND = {"hardware": "infra", "environment": "environment", "method": "method"}


class Incident:
    """What one program said under one id, line by line."""

    def __init__(self, line, fields):
        self.history, self.withdrawn, self.closed = [(line, fields)], None, None

    def update(self, line, fields):
        self.history.append((line, {**self.history[-1][1], **fields}))

    @functools.cached_property
    def told(self):
        """The line at which people were told, or None; ask when the stream is over."""
        return next((n for n, f in self.history if f["confirmed"] and f["cause"] != "noise"), None)

    def at(self, line):
        return [f for n, f in self.history if n <= line][-1]

    @property
    def retracted(self):
        """Taken back after it was told: withdrawn, or given another kind or cause."""
        first, last = self.at(self.told), self.history[-1][1]
        return self.withdrawn is not None or (first["kind"], first["cause"]) != (last["kind"], last["cause"])


class Book:
    """Checks every answer and keeps the incidents; whatever is malformed is reported and not applied."""

    def __init__(self, header):
        self.series = {s["id"] for s in header["series"]}
        self.testbeds, self.workers = header["testbeds"], {w for ws in header["testbeds"].values() for w in ws}
        self.incidents, self.bad, self.top = {}, [], -1

    def reject(self, line, why):
        self.bad.append(f"line {line}: {why}")

    def _fault(self, e, whole):
        """Why an event cannot be taken, or None."""
        missing = [k for k in FIELDS if whole and k not in e]
        if missing:
            return f"missing {', '.join(missing)}"

        def number(v):
            return isinstance(v, int | float) and not isinstance(v, bool) and not math.isnan(v)

        def commit(v):
            return isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= self.top

        tests = {
            "kind": lambda v: v in KINDS,
            "cause": lambda v: v in (*CAUSES, "noise"),
            "confirmed": lambda v: isinstance(v, bool),
            "series": lambda v: isinstance(v, list) and all(s in self.series for s in v),
            "testbed": lambda v: (
                v is None or v in self.testbeds if not isinstance(v, list) else v and all(t in self.testbeds for t in v)
            ),
            "worker": lambda v: v is None or v in self.workers,
            "first_bad_commit": commit,
            "magnitude_pct": number,
            "range": lambda v: isinstance(v, list) and len(v) == 2 and all(map(commit, v)) and v[0] <= v[1],
        }
        for key, good in tests.items():
            try:
                fine = key not in e or good(e[key])
            except TypeError:  # unhashable, say a list of lists
                fine = False
            if not fine:
                return f"bad {key} {str(e[key])[:60]!r}"

    def take(self, line, answer):
        """Apply one answer; returns its request or None."""
        try:
            answer = json.loads(answer) if isinstance(answer, str) else answer
        except ValueError:
            return self.reject(line, f"not JSON: {answer[:60]!r}")
        if not isinstance(answer, dict) or not isinstance(answer.get("incidents"), list):
            return self.reject(line, 'not an object with a list "incidents"')
        for e in answer["incidents"]:
            action, key = (e.get("action"), e.get("id")) if isinstance(e, dict) else (None, None)
            if not isinstance(key, (str, int)) or action not in ("open", "update", "withdraw", "close"):
                self.reject(line, f"bad id or action in {str(e)[:80]}")
                continue
            known = self.incidents.get(key)
            fault = (
                f"{action} of unknown id {key!r}"
                if action != "open" and known is None
                else f"id {key!r} opened twice"
                if action == "open" and known
                else f"{action} after withdrawal of {key!r}"
                if known and known.withdrawn is not None
                else self._fault(e, action == "open")
            )
            if fault:
                self.reject(line, fault)
            elif action == "open":
                self.incidents[key] = Incident(line, dict(e))
            else:
                known.update(line, e)
                known.withdrawn = line if action == "withdraw" else known.withdrawn
                known.closed = line if action == "close" else known.closed
        return answer.get("request")


def play(fleet, program):
    """Stream one fleet through a program; returns (book, lines, sessions, seconds of wall, seconds of this process)."""
    book, lines, sessions, wall, cpu, last = Book(fleet.header()), [], [], 0.0, 0.0, None

    def say(record):
        nonlocal wall, cpu
        lines.append(record)
        t, c = time.perf_counter(), time.process_time()
        answer = program(record)
        wall, cpu = wall + time.perf_counter() - t, cpu + time.process_time() - c
        return book.take(len(lines) - 1, answer)

    def serve(request):
        n, tb = (
            len(sessions),
            request.get("testbed") or (last and last["testbed"]) if isinstance(request, dict) else None,
        )
        ok = (
            isinstance(request, dict)
            and last
            and tb in book.testbeds
            and request.get("kind") == "confirm"
            and isinstance(request.get("series"), list)
            and request["series"]
            and all(s in book.series for s in request["series"])
            and all(isinstance(request.get(k), int) and 0 <= request[k] <= book.top for k in ("base", "head"))
        )
        if not ok or n >= SESSIONS:
            if not ok:
                book.reject(len(lines) - 1, f"bad request {str(request)[:80]}")
            return dict(type="confirm", error="no budget" if ok else "bad request")
        pool = [w for w in book.testbeds[tb] if w != request.get("avoid")] or book.testbeds[tb]
        worker = pool[int(np.random.default_rng([fleet.seed, 3, n]).integers(len(pool)))]
        sessions.append(
            dict(line=len(lines), testbed=tb, base=request["base"], head=request["head"], series=request["series"])
        )
        return fleet.session(
            n, tb, worker, last["timestamp"] + 1800, request["series"], request["base"], request["head"]
        )

    try:
        say(fleet.header())
        for record in (*fleet.stream(), dict(type="end")):
            if record["type"] == "run":
                last, book.top = record, max(book.top, record["commit"])
            request = say(record)
            while request is not None:
                request = say(serve(request))
    except EOFError as e:
        book.reject(len(lines) - 1, str(e))
    return book, lines, sessions, wall, cpu
