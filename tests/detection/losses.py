"""What the detector loses on labelled histories, by kind: what was missed, and what was told of nothing.

    python tests/detection/losses.py --seeds 601-606 --series 200
    python tests/detection/losses.py --seeds 101-103 --series 200 --rough

Every loss is of one kind, the first that fits.
"""

from __future__ import annotations

import argparse
import collections

import score_table
import scoring

from backend.regression.series.detect import detect_record


def losses(series, alerts):
    """The kind of each change that was missed, and of each false alert."""
    steps, drifts, zones = scoring.minded(series)
    hit = scoring.nearest(alerts, steps, scoring.NEAR)
    for m, step in enumerate(steps):
        if m not in hit:
            yield f"missed: {step_kind(series, alerts, step)}"
    for drift in drifts:
        if not scoring.drift_found(drift, alerts, set(hit.values())):
            yield f"missed: a drift in noise of {series['meta']['cv_pct']:g} %"
    for k in scoring.false_ones(alerts, steps, hit, zones):
        yield f"false: {alert_kind(series['labels'], steps, alerts[k])}"


def step_kind(series, alerts, step):
    """Why a step counts as missed."""
    at, last = step["index"], len(series["values"]) - 1
    away = min((abs(a["index"] - at) for a in alerts), default=last)
    others = [d for d in series["labels"] if d is not step and d["kind"] in ("step", "drift", "environment")]
    if away <= scoring.LOOSE:
        return f"told {scoring.NEAR + 1} to {scoring.LOOSE} commits away"
    if last - at < 10 or at < 10:
        return "within 10 commits of an end of the history"
    if any(abs((d["end"] or d["index"]) - at) <= 20 or abs(d["index"] - at) <= 20 for d in others):
        return "another change within 20 commits"
    if step["cost_pct"] < 8 and series["meta"]["cv_pct"] >= 5:
        return "below 8 % in noise of 5 or 8 %"
    return f"in noise of {series['meta']['cv_pct']:g} %, otherwise"


def alert_kind(labels, steps, alert):
    """Why an alert counts as false."""
    if any(abs(alert["index"] - d["index"]) <= scoring.LOOSE for d in steps):
        return f"of a step {scoring.NEAR + 1} to {scoring.LOOSE} commits away"
    near = {d["kind"] if d["regression"] else "a gain" for d in labels if about(d, alert["index"])}
    return f"near {', '.join(sorted(near))}" if near else f"of nothing, {by_size(alert)}"


def about(label, at):
    return label["index"] - scoring.LOOSE <= at <= (label["end"] or label["index"]) + scoring.LOOSE


def by_size(alert):
    return "said to be below 8 %" if alert["magnitude_pct"] < 8 else "said to be 8 % or more"


def main(argv=None):
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="601-602", help="first-last; below 1000 are for tuning")
    parser.add_argument("--series", type=int, default=200, help="histories a seed")
    parser.add_argument("--rough", action="store_true", help="histories as public machines of a CI leave them")
    args = parser.parse_args(argv)
    first, _, last = args.seeds.partition("-")
    data = score_table.histories(range(int(first), int(last or first) + 1), args.series, args.rough)
    count = collections.Counter()
    for series in data:
        alerts = detect_record(scoring.public(series))["regressions"]
        count.update(losses(series, alerts))
    print(f"{len(data)} histories, {count.total()} losses\n\n| kind | number |\n|---|---|")
    for kind, number in sorted(count.items(), key=lambda item: (item[0].split(":")[0], -item[1])):
        print(f"| {kind} | {number} |")


if __name__ == "__main__":
    main()
