"""The decision rules of other trackers, written from their published descriptions, for a table beside our detector.

Each takes a record of the protocol and answers like `tidemark detect`. A rule that says nothing of onsets alerts at the
commit it is looking at; a rule that alerts again and again while nothing changed is counted once per excursion.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit


def costs(record):
    """One cost a commit: the mean of its samples, or its inverse where higher is better."""
    values = np.array([np.mean(v) for v in record["values"]])
    return 1 / values if record["direction"] == "higher_is_better" else values


def answer(record, alerts):
    """Alerts as the protocol wants them; consecutive ones are one."""
    found, last = [], -10
    for index, at, size in alerts:
        if at > last + 1:
            found.append(
                {"index": int(index), "detected_at": int(at), "magnitude_pct": float(100 * size), "kind": "step"}
            )
        last = at
    return {"series_id": record["series_id"], "regressions": found}


def previous_commit(record, limit=0.07):
    """More than 7 % above the commit before (TorchBench)."""
    x = costs(record)
    change = x[1:] / x[:-1] - 1
    return answer(record, [(i + 1, i + 1, change[i]) for i in np.flatnonzero(change > limit)])


def interquartile(record, history=30, factor=3.0):
    """A change to the commit before beyond the third quartile plus 3 IQR of the last 30 changes (rustc-perf)."""
    x = costs(record)
    change = x[1:] / x[:-1] - 1
    alerts = []
    for i in range(history, len(change)):
        low, high = np.quantile(np.abs(change[i - history : i]), (0.25, 0.75))
        if change[i] > max(high + factor * (high - low), 0.002):
            alerts.append((i + 1, i + 1, change[i]))
    return answer(record, alerts)


def t_test(record, window=64, confidence=0.99, least=10):
    """Above the one-sided prediction limit of the last 64 commits (Bencher, t-test 0.99)."""
    x = costs(record)
    alerts = []
    for i in range(least, len(x)):
        past = x[max(0, i - window) : i]
        limit = past.mean() + stdtrit(len(past) - 1, confidence) * past.std(ddof=1) * np.sqrt(1 + 1 / len(past))
        if x[i] > limit:
            alerts.append((i, i, x[i] / past.mean() - 1))
    return answer(record, alerts)


def z_score(record, window=100, limit=5.0, least=10):
    """More than 5 standard deviations above the mean of the last 100 commits (Conbench)."""
    x = costs(record)
    alerts = []
    for i in range(least, len(x)):
        past = x[max(0, i - window) : i]
        if x[i] - past.mean() > limit * max(past.std(ddof=1), 1e-12):
            alerts.append((i, i, x[i] / past.mean() - 1))
    return answer(record, alerts)


def plain(record, window=20, runs=3, limit=0.05):
    """At least 5 % above a rolling median for 3 runs."""
    x = costs(record)
    alerts, base, streak = [], None, 0
    for i in range(window, len(x)):
        if streak == 0:
            base = np.median(x[i - window : i])
        streak = streak + 1 if x[i] >= base * (1 + limit) else 0
        if streak >= runs:
            alerts.append((i - streak + 1, i, x[i] / base - 1))
    return answer(record, alerts)


def pinned(record, window=30, runs=3, limit=0.05):
    """The same against a pinned baseline, which moves when it has alerted."""
    x = costs(record)
    alerts, base, streak = [], np.median(x[:window]), 0
    for i in range(window, len(x)):
        streak = streak + 1 if x[i] >= base * (1 + limit) else 0
        if streak == runs:
            alerts.append((i - runs + 1, i, x[i] / base - 1))
            base = np.median(x[i - runs + 1 : i + 1])
            streak = 0
    return answer(record, alerts)


def perfherder(record, back=(12, 24), forward=12, limit=7.0, least=0.02):
    """A t value above 7 between up to 24 weighted commits before and 12 after, with 2 % change (Perfherder)."""
    x = costs(record)
    found = []
    values = np.zeros(len(x))
    for i in range(back[0], len(x) - forward + 1):
        before, after = x[max(0, i - back[1]) : i], x[i : i + forward]
        old, new = np.arange(1, len(before) + 1) / len(before), np.arange(forward, 0, -1) / forward
        mean = [np.average(v, weights=w) for v, w in ((before, old), (after, new))]
        spread = [np.average((v - m) ** 2, weights=w) for v, w, m in ((before, old, mean[0]), (after, new, mean[1]))]
        error = np.sqrt(spread[0] / len(before) + spread[1] / forward)
        if mean[1] > mean[0] * (1 + least):
            values[i] = (mean[1] - mean[0]) / max(error, 1e-12)
    for i in np.flatnonzero(values > limit):
        if values[i] == values[max(0, i - forward) : i + forward].max():
            found.append(
                (i, min(i + forward - 1, len(x) - 1), x[i : i + forward].mean() / x[max(0, i - 24) : i].mean() - 1)
            )
    return answer(record, found)


RULES = {
    "previous commit, 7 % (TorchBench)": previous_commit,
    "t-test .99 of 64 (Bencher)": t_test,
    "Q3 + 3 IQR of 30 changes (rustc-perf)": interquartile,
    "z = 5 of 100 (Conbench)": z_score,
    "5 % over a rolling median, 3 runs": plain,
    "5 % over a pinned baseline, 3 runs": pinned,
    "t > 7, 12 to 24 before, 12 after (Perfherder)": perfherder,
}
