"""Scores a detector's alerts on labelled histories, online: an alert counts at the commit at which it was raised.

Must be found: regressions (steps and drifts) of at least 6.5 % in cost, for a true 5 % is a coin toss of a gate of 5 %.
Nobody minds: regressions of 3.5 to 6.5 %, machine events, what a history lists as unclear, repeats within 10 commits of
what was found. A step is found
by an alert within 3 commits; a drift by one inside it, raised once it has passed 2 %. Every other alert is false.
Truncated histories are judged again now and then: what was raised must be the same, and nothing may be taken back.
"""

from __future__ import annotations

import collections
import random
import statistics
import time

MUST_PCT, SMALL_PCT = 6.499, 3.499
NEAR, LOOSE, REPEAT, REACH = 3, 10, 10, 15


def public(series, upto=None):
    """What a detector may see of a history, up to a commit."""
    values = series["values"] if upto is None else series["values"][: upto + 1]
    return {
        "series_id": series["series_id"],
        "direction": series["direction"],
        "machine": series["machine"],
        "values": values,
    }


def taken_back(detect, series, alerts, rng, checks):
    """How many spot checks on truncated histories disagree with the alerts of the whole."""

    def keys(found):
        return {(a["index"], a["detected_at"]) for a in found}

    n, wrong = len(series["values"]), 0
    wrong += sum(not a["index"] <= a["detected_at"] < n for a in alerts)
    for _ in range(checks):
        at_alert = alerts and rng.random() < 0.5
        upto = rng.choice([a["detected_at"] for a in alerts]) if at_alert else rng.randrange(n)
        got = keys(detect(public(series, upto))["regressions"])
        wrong += got != {k for k in keys(alerts) if k[1] <= upto}
    return wrong


def nearest(alerts, steps, tolerance):
    """Alerts paired with the steps they are about, nearest first, each once: {step: alert}."""
    distances = sorted(
        (abs(a["index"] - s["index"]), k, m)
        for k, a in enumerate(alerts)
        for m, s in enumerate(steps)
        if abs(a["index"] - s["index"]) <= tolerance
    )
    paired, used = {}, set()
    for _, k, m in distances:
        if k not in used and m not in paired:
            paired[m] = k
            used.add(k)
    return paired


def forgiven(labels):
    """Ranges in which nobody minds an alert, drifts that must be found included."""
    zones = []
    for d in labels:
        small = d["regression"] and SMALL_PCT <= d["cost_pct"] < MUST_PCT
        if d["kind"] == "environment" or (d["kind"] == "step" and small):
            zones.append((d["index"] - REACH, d["index"] + REACH))
        if d["kind"] == "drift" and d["regression"] and d["cost_pct"] >= SMALL_PCT:
            zones.append((d["index"] - NEAR, d["end"] + 30))
    return zones


def quiet(series, zones):
    """Which commits are far from anything that happens."""
    clean = [True] * len(series["values"])
    reach = [
        (d["index"] - 10, (d["end"] or d["index"]) + (30 if d["kind"] == "drift" else 10)) for d in series["labels"]
    ]
    for first, last in [*zones, *reach]:
        for i in range(max(0, first), min(len(clean), last + 1)):
            clean[i] = False
    return clean


def minded(series):
    """What of a history must be found, steps and drifts, and the ranges in which nobody minds an alert."""
    labels = series["labels"]
    must = [d for d in labels if d["regression"] and d["cost_pct"] >= MUST_PCT]
    steps, drifts = ([d for d in must if d["kind"] == kind] for kind in ("step", "drift"))
    return steps, drifts, forgiven(labels) + [tuple(unclear) for unclear in series.get("dont_care", ())]


def false_ones(alerts, steps, hit, zones):
    """Which alerts are false: about no step, no repeat of what was found, and in no range where nobody minds."""
    matched = set(hit.values())
    for k, alert in enumerate(alerts):
        at = alert["index"]
        repeat = any(abs(at - steps[m]["index"]) <= REPEAT for m in hit)
        if not (k in matched or repeat or any(first <= at <= last for first, last in zones)):
            yield k


def drift_found(drift, alerts, matched):
    """Whether an alert that is about no step lies in a drift, and was raised once it had passed 2 %."""
    passed = drift["index"] + 2 * (drift["end"] - drift["index"]) / drift["cost_pct"]
    return any(
        k not in matched and drift["index"] - NEAR <= a["index"] <= drift["end"] + 10 and a["detected_at"] >= passed
        for k, a in enumerate(alerts)
    )


class Tally:
    """Counters and lists over many histories."""

    def __init__(self):
        self.count = collections.Counter()
        self.delays, self.by_cv = [], collections.defaultdict(list)

    def add(self, series, alerts):
        """Match the alerts of one history with its labels."""
        labels, count = series["labels"], self.count
        steps, drifts, zones = minded(series)
        hit, loose = nearest(alerts, steps, NEAR), nearest(alerts, steps, LOOSE)
        for m in range(len(steps)):
            self.by_cv[series["meta"]["cv_pct"]].append(m in hit)
        self.delays += [max(0, alerts[k]["detected_at"] - steps[m]["index"]) for m, k in hit.items()]
        count.update(steps=len(steps), found=len(hit), found_loose=len(loose), drifts=len(drifts))
        matched = set(hit.values())
        count["drifts_found"] += sum(drift_found(d, alerts, matched) for d in drifts)
        clean = quiet(series, zones)
        count["quiet"] += sum(clean)
        count["spikes"] += sum(d["kind"] == "spike" for d in labels)
        for k in false_ones(alerts, steps, hit, zones):
            at = alerts[k]["index"]
            count["false"] += 1
            count["false_loose"] += k not in set(loose.values())
            count["false_quiet"] += clean[at]
            near = [d["kind"] for d in labels if d["index"] - NEAR <= at <= (d["end"] or d["index"]) + NEAR]
            count["spikes_flagged"] += near[:1] == ["spike"]


def quieter(by_cv, most):
    """Steps found and all steps in histories of at most so much noise (percent)."""
    hits = [hit for cv, found in by_cv.items() if cv <= most for hit in found]
    return sum(hits), len(hits)


def ratio(a, b):
    return a / b if b else float("nan")


def harmonic(precision, recall):
    return ratio(2 * precision * recall, precision + recall)


def evaluate(detect, data, checks=2, seed=0):
    """Run a detector over histories and pool the figures."""
    rng, tally, spent, points, violations = random.Random(seed), Tally(), 0.0, 0, 0
    for series in data:
        began = time.process_time()
        alerts = detect(public(series))["regressions"]
        spent += time.process_time() - began
        points += len(series["values"])
        violations += taken_back(detect, series, alerts, rng, checks)
        tally.add(series, alerts)
    c = tally.count
    wanted, found, loose = (
        c["steps"] + c["drifts"],
        c["found"] + c["drifts_found"],
        c["found_loose"] + c["drifts_found"],
    )
    precision, recall = ratio(found, found + c["false"]), ratio(found, wanted)
    delays = sorted(tally.delays)
    return {
        "P": precision,
        "R": recall,
        "F1": harmonic(precision, recall),
        "F1_loose": harmonic(ratio(loose, loose + c["false_loose"]), ratio(loose, wanted)),
        "fa_per_1000": 1000 * ratio(c["false_quiet"], c["quiet"]),
        "step_recall": ratio(c["found"], c["steps"]),
        "drift_recall": ratio(c["drifts_found"], c["drifts"]),
        "delay": statistics.median(delays) if delays else float("nan"),
        "delay_p90": delays[int(0.9 * len(delays))] if delays else float("nan"),
        "spike_flagged": ratio(c["spikes_flagged"], c["spikes"]),
        "recall_to_cv_3": ratio(*quieter(tally.by_cv, 3)),
        "ms_per_1000": 1e6 * spent / max(1, points),
        "violations": violations,
        **{f"recall_cv_{cv:g}": ratio(sum(hits), len(hits)) for cv, hits in tally.by_cv.items()},
    }
