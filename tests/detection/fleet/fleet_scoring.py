"""What a program said of a fleet against what was planted in it, pooled over fleets.

An incident counts from the line that says it is confirmed, with a cause other than noise: then people are told. Kind
and cause are judged as first told; commit, testbeds and series SETTLE records later.
"""

from __future__ import annotations

import collections
import statistics

import numpy as np
from fleet_protocol import CAUSES, LOOSE, MUST, OWN_KIND, SETTLE, STORM, TOL, play
from fleet_synthetic import Fleet

WEEK_S = 7 * 86400


def beds(s, book):
    """The testbeds an incident names."""
    return (
        set(book.testbeds)
        if s["testbed"] is None
        else {s["testbed"]}
        if isinstance(s["testbed"], str)
        else set(s["testbed"])
    )


def reach(e, s, claim):
    """Distance in commits between a claim and an event it may be about, else None."""
    fb, c, end = s["first_bad_commit"], e["commit"], e["end"]
    if e["kind"] == "drift":
        return 0 if c - TOL <= fb <= end + LOOSE else None
    if e["cause"] == "hardware":
        near = (
            c + 30 if claim["kind"] != "infra" else end
        )  # a late code alarm is not about a machine that has long been slow
        return max(0, abs(fb - c) - TOL) if c - TOL <= fb <= min(end, near) + TOL or abs(fb - end) <= TOL else None
    far = max(c - fb, fb - end, 0) if e["cause"] == "environment" else abs(fb - c)
    return far if far <= LOOSE else None


def assign(labels, i, book):
    """The true event an incident is about, or None."""
    claim, s, best = i.at(i.told), i.at(i.told + SETTLE), None
    listed = set(s["series"])
    for e in labels:
        if (
            e["cause"] == "noise"
            or not beds(s, book) & set(e["testbeds"])
            or (listed and not listed & set(e["series"]))
        ):
            continue
        if e["cause"] == "hardware" and s["worker"] not in (None, e["worker"]):
            continue
        if (
            e["cause"] == "code"
            and claim["cause"] == "code"
            and (claim["kind"] == "improvement") != (e["kind"] in ("improvement", "fix"))
        ):
            continue
        far = reach(e, s, claim)
        if far is not None and (
            far <= TOL or claim["cause"] == e["cause"]
        ):  # with the wrong cause it must at least be the right place
            shared = len(listed & set(e["series"])) / max(1, len(listed | set(e["series"])))
            rank = (claim["cause"] != e["cause"], far > TOL, -round(shared, 1), far, -shared)
            if best is None or rank < best[0]:
                best = rank, e
    return best and best[1]


def blame(labels, s, book):
    """What tempted a false incident: the kind of a harmless event nearby, else plain noise."""

    def near(e):
        if e["kind"] == "bimodal":
            return s["worker"] in (None, e["worker"]) and set(s["series"]) <= set(e["series"])
        return abs(s["first_bad_commit"] - e["commit"]) <= TOL

    return next(
        (e["kind"] for e in labels if e["cause"] == "noise" and beds(s, book) & set(e["testbeds"]) and near(e)), "none"
    )


def score(fleet, book, lines, sessions):
    """Counters and lists of one fleet, for pooling."""
    scored = _Scored(fleet, book, lines)
    scored.incidents()
    scored.counts["sessions"] = len(sessions)
    for event in fleet.labels:
        if event["cause"] != "noise":
            scored.event(event)
    return scored.counts, scored.lists


class _Scored:
    """One fleet's score, put together step by step."""

    def __init__(self, fleet, book, lines):
        self.fleet, self.book = fleet, book
        self.counts, self.lists = collections.Counter(), collections.defaultdict(list)
        self.told = [i for i in book.incidents.values() if i.told is not None]
        self.accepted = {record["commit"]: n for n, record in enumerate(lines) if record["type"] == "accept"}
        self.runs = [(n, record) for n, record in enumerate(lines) if record["type"] == "run"]
        self.tops = np.maximum.accumulate([r["commit"] if r["type"] == "run" else -1 for r in lines])
        self.mine = collections.defaultdict(list)  # event -> its incidents

    def incidents(self):
        """Give every incident to its event, or count it as false."""
        r, labels = self.counts, self.fleet.labels
        for i in self.told:
            e, s, claim = assign(labels, i, self.book), i.at(i.told + SETTLE), i.at(i.told)
            code = claim["cause"] == "code"
            r["docs_blamed"] += code and bool(self.fleet.docs[s["first_bad_commit"]])
            r["range_named"] += code
            if e and e["accept"] is not None and i.told > self.accepted.get(e["commit"], 1 << 60):
                r["nags"] += 1
                e = None
            if e:
                self.mine[e["id"]].append(i)
                r["range_right"] += code and s["range"][0] <= e["commit"] <= s["range"][1]
                wrong = set(s["series"]) - set(e["series"])
                self.lists["series_wrong"].append(len(wrong) / max(1, len(s["series"])))
            elif claim["kind"] != "infra" or not self._is_bimodal(s["worker"]):
                r["false"] += 1
                r["false regressions"] += claim["kind"] == "regression"
                r["false/" + blame(labels, s, self.book)] += 1
        r["runs"], r["told"] = len(self.runs), len(self.told)
        times = [record["timestamp"] for _, record in self.runs]
        r["seconds"] = max(times) - min(times)
        r["retracted"] = sum(i.retracted for i in self.told)
        r["malformed"] = len(self.book.bad)

    def _is_bimodal(self, worker):
        return any(b["kind"] == "bimodal" and b["worker"] == worker for b in self.fleet.labels)

    def event(self, e):
        """What was said of one event."""
        own = sorted(self.mine[e["id"]], key=lambda i: i.told)
        must = {s for s, p in e["series"].items() if abs(p) >= MUST}
        self.lists["cause"].append((e["cause"], own[0].at(own[0].told)["cause"] if own else "missed"))
        if own:
            self.lists["incidents"].append((e["cause"], len(own)))
        if own and must:
            listed = max(len(must & set(i.at(i.told + SETTLE)["series"])) for i in own)
            self.lists["series_found"].append(listed / len(must))
        if e["cause"] == "code":
            self._code(e, own, must)
        else:
            self._other(e, own)

    def _code(self, e, own, must):
        bad = e["kind"] in ("regression", "drift")
        # What people look at: the phases only explain it.
        shown = {s for s in must if self.fleet.roles[s] != "phase"}
        hit = [i for i in own if self._is_right(e, i, shown)]
        drift, hard = e["kind"] == "drift", bool(bad and e["near"])
        for key in ("regressions" if bad else "gains", *["hard"] * hard, *["drifts"] * drift):
            self.counts.update({key: 1, key + " found": bool(hit)})
        if bad:
            named = set().union(*[beds(i.at(i.told + SETTLE), self.book) for i in hit])
            self.counts.update({"testbeds": len(e["testbeds"]), "testbeds found": len(named)})
        if bad and hit and not drift:
            first = min(i.told for i in hit)
            seen = [n for n, x in self.runs if x["commit"] >= e["commit"] and x["testbed"] in e["testbeds"]]
            self.lists["delay_runs"].append(sum(n <= first for n in seen))
        if e["kind"] == "regression" and e["end"] is not None and hit:
            closed = any(i.closed is not None and self.tops[i.closed] > e["end"] for i in hit)
            self.counts.update({"fixed": 1, "fixed closed": closed})

    def _is_right(self, e, i, shown):
        settled = i.at(i.told + SETTLE)
        return (
            i.withdrawn is None
            and i.at(i.told)["cause"] == "code"
            and bool(shown & set(settled["series"]))
            and beds(settled, self.book) <= set(e["testbeds"])
            and (e["kind"] == "drift" or abs(settled["first_bad_commit"] - e["commit"]) <= TOL)
        )

    def _other(self, e, own):
        alone = len(self.book.testbeds[e["testbeds"][0]]) == 1
        red = sum(i.at(i.told)["kind"] == "regression" for i in own)
        named = [
            i
            for i in own
            if i.at(i.told)["kind"] == OWN_KIND[e["cause"]]
            and i.withdrawn is None
            and (e["cause"] != "hardware" or alone or i.at(i.told + SETTLE)["worker"] == e["worker"])
        ]
        for key in (e["cause"], "kind " + e["kind"]):
            self.counts.update({key: 1, key + " ok": len(named) == 1 and red <= STORM})
        self.counts["red on " + e["cause"]] += red
        self.lists["storm"].append(red)
        self.lists["delay_" + e["cause"]] += [int(self.tops[i.told]) - e["commit"] for i in named[:1]]


def evaluate(make, seeds):
    """Play several fleets to fresh programs and pool what is counted."""
    total, lists, bad, cpu = collections.Counter(), collections.defaultdict(list), [], 0.0
    for seed in seeds:
        fleet = Fleet(seed)
        book, lines, sessions, _, seconds = play(fleet, make())
        counted, listed = score(fleet, book, lines, sessions)
        total, cpu, bad = total + counted, cpu + seconds, bad + [f"seed {seed} {x}" for x in book.bad]
        for key, values in listed.items():
            lists[key] += values
    return figures(total, lists, bad, cpu, len(seeds))


def share(a, b):
    return a / b if b else float("nan")


def mean(values):
    return statistics.mean(values) if values else float("nan")


def quantile(values, q):
    return round(float(np.quantile(values, q)), 1) if values else float("nan")


def figures(total, lists, bad, cpu, fleets):
    """The pooled figures by name."""
    found = {"fleets": fleets, "runs": total["runs"]}
    for key in ("hardware", "environment", "method"):
        found[key + "_ok"] = share(total[key + " ok"], total[key])
        found[key + "_events"] = total[key]
    found["blind_ok"] = share(total["kind blind ok"], total["kind blind"])
    found["red_per_machine"] = share(total["red on hardware"], total["hardware"])
    found["storm"] = max(lists["storm"], default=0)
    for key in ("regressions", "hard", "gains", "drifts"):
        found[key + "_found"] = share(total[key + " found"], total[key])
        found[key + "_events"] = total[key]
    found["testbeds_found"] = share(total["testbeds found"], total["testbeds"])
    causes = collections.Counter(lists["cause"])
    seen = sum(n for (_, said), n in causes.items() if said != "missed")
    found["cause_accuracy"] = share(sum(causes[c, c] for c in CAUSES), seen)
    code = sum(n for (true, said), n in causes.items() if true == "code" and said != "missed")
    found["code_excused"] = share(causes["code", "hardware"] + causes["code", "environment"], code)
    found["incidents_per_event"] = mean([n for _, n in lists["incidents"]])
    found["series_listed"], found["series_wrong"] = mean(lists["series_found"]), mean(lists["series_wrong"])
    found["false_per_1000"] = 1000 * share(total["false"], total["runs"])
    wrongly = sum(total["red on " + cause] for cause in OWN_KIND)
    found["weeks"] = total["seconds"] / WEEK_S
    found["false_regressions_per_week"] = share(total["false regressions"] + wrongly, found["weeks"])
    found["false_kinds"] = {key[6:]: n for key, n in total.items() if key.startswith("false/")}
    found["nags"], found["docs_blamed"] = total["nags"], total["docs_blamed"]
    found["range_right"] = share(total["range_right"], total["range_named"])
    for key, name in (("delay_runs", "delay_runs"), ("delay_hardware", "delay_infra")):
        found[name], found[name + "_p90"] = quantile(lists[key], 0.5), quantile(lists[key], 0.9)
    found["sessions_per_event"] = share(total["sessions"], len(lists["cause"]))
    found["sessions_per_1000"] = 1000 * share(total["sessions"], total["runs"])
    found["retracted"] = share(total["retracted"], total["told"])
    found["fixed_closed"] = share(total["fixed closed"], total["fixed"])
    found["cpu_ms_per_run"] = 1000 * share(cpu, total["runs"])
    found["malformed"], found["malformed_examples"] = total["malformed"], bad[:5]
    return found
