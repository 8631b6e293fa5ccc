"""Two causes are two, one is one: pairs of changes 1 to 5 commits apart, in fleets of nothing else.

    python tests/detection/fleet/fleet_pairs.py --seeds 1001-1020

A pair counts as wrongly joined where one thing that is told holds what only its first change moved beside what only its
second one moved; a change as wrongly split where two things told hold what it alone moved. Left out are pairs that the
runs between the two do not part even for one who knows sizes and noise, and would err in one pair of a hundred.
"""

from __future__ import annotations

import argparse
import collections
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from fleet_plan import WARMUP
from fleet_protocol import MUST, SETTLE, play
from fleet_synthetic import Fleet

from backend.regression.grouping import SeriesChange, group
from backend.regression.joint.stream import JudgeStream
from backend.regression.policy import Policy
from backend.regression.series.judge import judge_histories
from backend.regression.series.state import SeriesState
from backend.regression.terms import ChangeDirection, ChangeState, Direction, Point, Role, SeriesKind

JOINED_AT_MOST = 0.02
SPLIT_AT_MOST = 0.05
PARTED = 4.65  # times the noise between two levels, so that one run in a hundred is nearer to the other
NEAR = 10  # commits within which what is told may be about a change


class PairFleet(Fleet):
    """Pairs, single changes, and the usual boxes, noise, gaps, late runs, unlucky runs and failures."""

    def _plan(self, rng):
        super()._plan(rng)
        names = rng.permutation(["twins"] * 8 + ["regression"] * 4).tolist()
        at = WARMUP + np.concatenate([[0], np.cumsum(rng.integers(22, 30, len(names)))])
        self.items = list(zip(names, at[:-1].tolist(), strict=True))
        self.n = int(at[-1])
        self.docs = rng.random(self.n) < 0.15
        self.times = 1.7e9 + np.cumsum(rng.exponential(1500, self.n))

    def _drift(self, rng):
        """None here."""


def told_jointly(fleet):
    """What the joint detector tells: (testbeds, series, first bad commit), as it stands some time later."""
    book, *_ = play(fleet, JudgeStream())
    for incident in book.incidents.values():
        if incident.told is not None and incident.withdrawn is None:
            said = incident.at(incident.told + SETTLE)
            if said["kind"] == "regression" and said["cause"] == "code":
                beds = {said["testbed"]} if isinstance(said["testbed"], str) else set(said["testbed"] or fleet.testbeds)
                yield beds, set(said["series"]), said["first_bad_commit"]


def told_by_series(fleet):
    """What the series tell, each judged by itself, and grouped by their suspect ranges."""
    described = {s["id"]: s for s in fleet.header()["series"]}
    runs = sorted((r for r in fleet.stream() if r["type"] == "run"), key=lambda r: r["commit"])
    for testbed in fleet.testbeds:
        changes = []
        for name, s in described.items():
            points, last = [], -1
            for r in runs:
                if r["testbed"] == testbed and name in r["values"] and r["commit"] > last:
                    last = r["commit"]
                    points.append(Point(last, str(last), tuple(r["values"][name]), worker=r["worker"]))
            changes += _changes_of(s, points)
        for found in group(changes):
            if found.opens:
                yield {testbed}, {m.series_id for m in found.members}, found.onset_position


def _changes_of(s, points):
    kind = SeriesKind(
        direction=Direction(s["direction"].removesuffix("_is_better")), role=Role(s["role"]), exact=s["exact"]
    )
    ((judged, _),) = judge_histories([(SeriesState.new(kind), points, Policy())])
    live = {}
    for judgement in judged:
        for event in judgement.events:
            live.pop(event.previous_onset_position, None)
            if event.direction is ChangeDirection.REGRESSION and event.past_threshold:
                if event.state is ChangeState.WITHDRAWN:
                    live.pop(event.onset_position, None)
                elif event.state is not ChangeState.FIXED:
                    live[event.onset_position] = (event, judgement.noise)
    return [
        SeriesChange(s["id"], "", s["benchmark"], s["metric"], kind.role, _as_stored(e), exact=s["exact"], noise=noise)
        for e, noise in live.values()
        if e.state is not ChangeState.SUSPECT
    ]


def _as_stored(event):
    """With the suspect range that is kept of it: the commits after the last good run, up to the first bad one."""
    good = event.last_good_position
    first = event.onset_position if good is None else good + 1
    return replace(event, range_start=first, range_end=event.onset_position)


def score(fleet, told):
    """Counts of one fleet: pairs that runs part and that were told, those joined; changes told, those split."""
    counts, told = collections.Counter(), list(told)
    events = {e["id"]: e for e in fleet.labels if e["cause"] == "code" and e["kind"] == "regression"}
    own = {number: _only(e, events.values()) for number, e in events.items()}
    for number, event in events.items():
        about = [t for t in told if _is_about(t, event, own[number])]
        counts["changes"] += 1
        counts["told"] += bool(about)
        counts["split"] += any(a[0] & b[0] for i, a in enumerate(about) for b in about[:i])
        if "twin" not in event:
            continue
        first = events[event["twin"]]
        if not all(_parted(fleet, testbed, first, event, own) for testbed in event["testbeds"]):
            continue
        both = any(_is_about(t, first, own[first["id"]]) for t in told) and bool(about)
        where = "overlapping" if event["overlap"] else "different"
        joined = any(_is_about(t, first, own[first["id"]]) for t in about)
        for key in ("pairs", f"pairs {where}"):
            counts[key] += both
            counts[key + " joined"] += joined
    return counts


def _only(event, events):
    """The series that this change moved, of benchmarks that no other one nearby touched."""
    near = [e for e in events if e is not event and abs(e["commit"] - event["commit"]) <= NEAR]
    touched = {_benchmark(s) for e in near for s in e["series"]}
    return {s for s, pct in event["series"].items() if pct >= MUST and _benchmark(s) not in touched}


def _benchmark(series):
    return series.partition("/")[0]


def _parted(fleet, testbed, first, second, own):
    """Whether who knows sizes and noise could tell that no single commit did both."""
    commits = [r["commit"] for r in fleet.runs if r["testbed"] == testbed]
    clear = [_clarity(fleet, event, own[event["id"]]) for event in (first, second)]
    joint = [
        clear[0] * sum(first["commit"] <= c < one for c in commits)
        + clear[1] * sum(one <= c < second["commit"] for c in commits)
        for one in range(first["commit"], second["commit"] + 1)
    ]
    return min(joint) >= PARTED**2


def _clarity(fleet, event, own):
    """Squared size over noise of one run, summed over the benchmarks that this change alone moved."""
    cv = dict(zip(fleet.lay.bench, fleet.lay.cv, strict=True))
    best = collections.defaultdict(float)
    for name in own & {s for s, role in fleet.roles.items() if role == "gate"}:
        benchmark = _benchmark(name)
        noise = np.sqrt(0.002**2 + cv[benchmark] ** 2 * (0.36 + 0.89 / fleet.procs))
        best[benchmark] = max(best[benchmark], (np.log1p(event["series"][name] / 100) / noise) ** 2)
    return sum(best.values())


def _is_about(told, event, own):
    beds, series, commit = told
    near = abs(commit - event["commit"]) <= NEAR
    return near and bool(series & own) and bool(beds & set(event["testbeds"]))


def evaluate(tell, seeds):
    """Figures by name, pooled over fleets."""
    total = collections.Counter()
    for seed in seeds:
        fleet = PairFleet(seed)
        total += score(fleet, tell(fleet))
    return {
        "pairs": total["pairs"],
        "found": total["told"] / total["changes"],
        "joined": total["pairs joined"] / total["pairs"],
        "joined, different benchmarks": total["pairs different joined"] / max(1, total["pairs different"]),
        "joined, overlapping benchmarks": total["pairs overlapping joined"] / max(1, total["pairs overlapping"]),
        "split": total["split"] / total["told"],
        "changes": total["changes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1001-1010", help="such as 1001-1020")
    first, _, last = parser.parse_args().seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    for title, tell in (("all series together", told_jointly), ("series by series, grouped", told_by_series)):
        print(title, {key: round(value, 4) for key, value in evaluate(tell, seeds).items()}, flush=True)


if __name__ == "__main__":
    main()
