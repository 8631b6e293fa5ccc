"""What is planted in a fleet, and where: events in commits, machine states in time, runs on workers, and their labels.

Code changes (of a series, a benchmark, a suite, the project), improvements, a pair of regression and fix, an accepted
change that worsens again, drift; throttled, slow, blind (network: no canary sees it) and busy workers; upgrades with
and without effect, at once or rolling; a new suite version; and what may never be called a regression: unlucky runs of
commits that only touched documentation, a worker with two states, benchmarks that fail.
"""

from __future__ import annotations

import numpy as np
from fleet_layout import RESOURCES, Layout

WARMUP = 45  # commits before the first event
NEAR = 5  # a code change this close to a machine event or upgrade is hard
FOREVER = 1e18


class Plan:
    """What happens in one fleet, and its labels."""

    def __init__(self, seed):
        self.seed = seed
        rng = np.random.default_rng([seed, 0])
        self.lay = L = Layout(rng)
        self.roles = {s["id"]: s["role"] for s in L.series}
        self.procs = int(rng.integers(3, 6))
        self.testbeds = {
            f"tb{i}": [f"tb{i}-w{j}" for j in range(int(rng.choice((1, 2, 3, 4, 6), p=(0.12, 0.2, 0.28, 0.24, 0.16))))]
            for i in range(int(rng.choice((1, 2, 3), p=(0.35, 0.4, 0.25))))
        }
        self.boxes = {}  # worker -> (resource offsets, atom offsets)
        for w in (w for ws in self.testbeds.values() for w in ws):
            self.boxes[w] = rng.uniform(-0.05, 0.05, 4), (0.012 * rng.standard_normal(len(L.bench)))[L.of] * L.time
        self.labels, self.machine, self.upgrades, self.accepts = [], [], [], []
        self._plan(rng)
        self._schedule(rng)
        self._place(rng)
        for a in self.labels:  # which code changes are hard
            a["near"] = [
                b["id"]
                for b in self.labels
                if a["cause"] == "code"
                and b["kind"] in ("throttle", "slow", "blind", "neighbour", "upgrade", "upgrade_none")
                and set(a["testbeds"]) & set(b["testbeds"])
                and min(abs(a["commit"] - c) for c in (b["commit"], b["end"]) if c is not None) <= NEAR
            ]
        self.labels.sort(key=lambda e: (e["commit"], e["id"]))

    # ------------------------------------------------------------------ what happens, in commits

    def _plan(self, rng):
        """Order the events and give each a commit; the sum of the gaps sets the length of the history."""
        items = ["regression"] * int(rng.integers(2, 4)) + [
            "improvement",
            "pair",
            "accepted",
            "method",
            "upgrade",
            "upgrade_none",
            "hard_machine",
            "hard_machine",
            "hard_upgrade",
        ]
        items += list(
            rng.choice(("throttle", "slow", "blind", "neighbour"), int(rng.integers(3, 5)), p=(0.35, 0.25, 0.2, 0.2))
        )
        items += ["upgrade_none"] * int(rng.integers(0, 2))
        gaps = rng.integers(13, 25, len(items))
        self.items = list(
            zip(
                [str(items[i]) for i in rng.permutation(len(items))],
                (WARMUP + np.concatenate([[0], np.cumsum(gaps)[:-1]])).tolist(),
                strict=True,
            )
        )
        self.n = int(WARMUP + gaps.sum() + 25)
        self.docs = rng.random(self.n) < 0.15
        self.times = 1.7e9 + np.cumsum(rng.exponential(1500, self.n))

    def _schedule(self, rng):
        """Who benchmarks what and when: runs as dicts, sorted by arrival."""
        self.runs = []
        for tb, workers in self.testbeds.items():
            busy, skipped = dict.fromkeys(workers, 0.0), 0
            skip = rng.uniform(0.05, 0.22)
            for c in range(self.n):
                if skipped < 3 and rng.random() < (skip if not skipped else 0.4):
                    skipped += 1
                    continue
                skipped = 0
                order = sorted(rng.permutation(workers), key=lambda w: max(busy[w] - self.times[c], 0))
                for w in order[: 1 + (len(workers) > 1 and rng.random() < 0.12)]:
                    start = max(self.times[c], busy[w]) + rng.uniform(60, 900)
                    busy[w] = start + rng.uniform(500, 1100)
                    late = rng.uniform(3600, 40000) if rng.random() < 0.03 else rng.exponential(120)
                    self.runs.append(
                        dict(commit=c, testbed=tb, worker=str(w), start=float(start), arrival=float(busy[w] + late))
                    )
        self.runs.sort(key=lambda r: r["arrival"])
        for i, r in enumerate(self.runs):
            r.update(index=i, extra=None, failed=[])

    def _label(self, kind, cause, commit, testbeds, shift, end=None, worker=None, **more):
        series = self.lay.impact(shift) if shift is not None else {}
        gate = {s["id"] for s in self.lay.series if s["role"] == "gate"}
        e = dict(
            id=f"e{len(self.labels):02d}",
            kind=kind,
            cause=cause,
            commit=int(commit),
            end=None if end is None else int(end),
            testbeds=sorted(testbeds),
            worker=worker,
            series=series,
            size_pct=max((p for s, p in series.items() if s in gate), key=abs, default=0.0),
            accept=None,
            **more,
        )
        self.labels.append(e)
        return e

    def _place(self, rng):
        """Turn the plan into effects on atoms and labels."""
        L = self.lay
        self.code = {tb: np.zeros((self.n, len(L.base))) for tb in self.testbeds}
        self.method = np.zeros((self.n, len(L.base)))
        self.versions = {s: [] for s in dict.fromkeys(L.suite_of)}
        self.used = {b: [] for b in range(len(L.bench))}  # commits at which code moved a benchmark
        if rng.random() < 0.7:
            self._drift(rng)
        if rng.random() < 0.5 and max(map(len, self.testbeds.values())) > 1:
            self._bimodal(rng)
        for name, at in self.items:
            if name in ("regression", "improvement"):
                self._code(rng, at, name)
            elif name == "pair":
                self._pair(rng, at)
            elif name == "twins":
                self._twins(rng, at)
            elif name == "accepted":
                e, d = self._code(rng, at, "regression")
                e["accept"] = at + int(rng.integers(11, 15))
                self.accepts.append((e["accept"], e))
                if at + 32 < self.n - 20:
                    self._code(rng, at + int(rng.integers(25, 33)), "regression", again=(e, d))
            elif name == "method":
                self._method(rng, at)
            elif name.startswith("upgrade"):
                self._upgrade(rng, at, name == "upgrade")
            elif name == "hard_upgrade":
                u = self._upgrade(rng, at, rng.random() < 0.65)
                self._code(rng, at + int(rng.integers(-4, 5)), "regression", testbed=u["testbeds"][0])
            elif name == "hard_machine":
                m = self._machine(
                    rng, at, str(rng.choice(("throttle", "slow", "blind", "neighbour"), p=(0.4, 0.25, 0.2, 0.15)))
                )
                if m:
                    self._code(rng, m["commit"] + int(rng.integers(-4, 5)), "regression", testbed=m["testbeds"][0])
            else:
                self._machine(rng, at, name)
        self._harmless(rng)

    def _pair(self, rng, at):
        """A regression, and the commit that fixes it."""
        e, d = self._code(rng, at, "regression")
        fix = at + int(rng.integers(9, 18))
        for tb in e["testbeds"]:
            self.code[tb][fix:] -= d
        self.docs[fix] = False
        for b in {int(self.lay.of[i]) for i in np.flatnonzero(d)}:
            self.used[b].append(fix)
        self._label("fix", "code", fix, e["testbeds"], -d, fixes=e["id"])
        e["end"] = fix - 1

    def _twins(self, rng, at):
        """Two causes 1 to 5 commits apart, of different benchmarks or of benchmarks that overlap."""
        L, own = self.lay, rng.permutation(len(self.lay.bench))[:3].tolist()
        overlap = bool(rng.random() < 0.5)
        commits = [at, at + int(rng.integers(1, 6))]
        tbs = list(self.testbeds) if rng.random() < 0.75 else [str(rng.choice(list(self.testbeds)))]
        pair = []
        for commit, benches in zip(commits, ([own[0], own[2]], [own[1], own[2]]), strict=True):
            d = L.phases(benches if overlap else benches[:1], rng, float(min(5.3 + rng.exponential(6.0), 30)))
            for tb in tbs:
                self.code[tb][commit:] += d
            self.docs[commit] = False
            pair.append(self._label("regression", "code", commit, tbs, d, scope="twin", overlap=overlap))
        pair[1]["twin"] = pair[0]["id"]

    def _free(self, rng, at, benches, gap=25):
        return [b for b in benches if all(abs(at - c) >= gap for c in self.used[b])]

    def _code(self, rng, at, kind, testbed=None, again=None):
        """A code change at commit `at`: one series, a benchmark, a suite or the whole project."""
        L, at = self.lay, int(np.clip(at, WARMUP - 8, self.n - 22))
        pct = float(min(5.3 + rng.exponential(6.0), 30))
        pct = pct if kind == "regression" else -max(0.7 * pct, 5.5)
        free = (
            self._free(rng, at, range(len(L.bench)))
            or self._free(rng, at, range(len(L.bench)), 10)
            or [int(rng.integers(len(L.bench)))]
        )
        scope = str(rng.choice(("series", "benchmark", "suite", "project"), p=(0.2, 0.4, 0.28, 0.12)))
        one = int(rng.choice(free))
        benches = [one]
        if scope in ("suite", "project"):
            benches = [b for b in free if scope == "project" or L.suite_of[b] == L.suite_of[one]]
        pct = float(np.clip(pct, -12, 12)) if scope == "project" else pct
        d = np.zeros(len(L.base))
        if again:  # the same atoms once more, a different size
            d, scope = again[1] * float(rng.uniform(0.7, 1.2)), "again"
            big = max(abs(v) for v in L.impact(d).values())
            d *= max(1.0, 6.5 / big)
            benches = sorted({int(L.of[i]) for i in np.flatnonzero(d)})
        elif scope == "series":
            d[(L.of == one) & (L.kind == "memory")] = np.log1p(pct / 100)
        else:
            d = L.phases(benches, rng, pct)
            if rng.random() < 0.4:
                d[np.isin(L.of, benches) & (L.kind == "count")] = np.log1p(rng.uniform(0.03, 0.2)) * np.sign(pct)
        tbs = list(self.testbeds) if testbed is None or rng.random() < 0.6 else [testbed]
        if testbed is None and len(tbs) > 1 and rng.random() < 0.25:
            tbs = [str(rng.choice(tbs))]
        if again:
            tbs = again[0]["testbeds"]
        for tb in tbs:
            self.code[tb][at:] += d
        self.docs[at] = False
        for b in benches:
            self.used[b].append(at)
        return self._label(kind, "code", at, tbs, d, scope=scope), d

    def _drift(self, rng):
        """One benchmark loses 8-15 % in many small commits on every testbed."""
        L, b, m = self.lay, int(rng.integers(len(self.lay.bench))), int(rng.integers(60, 110))
        at = int(rng.integers(WARMUP, self.n - m - 20))
        d = L.phases([b], rng, rng.uniform(8, 15))
        w = np.cumsum(rng.gamma(1.0, size=m))
        for tb in self.testbeds:
            self.code[tb][at : at + m] += (w / w[-1])[:, None] * d
            self.code[tb][at + m :] += d
        self.used[b] += range(at, at + m, 8)
        self._label("drift", "code", at, list(self.testbeds), d, at + m, scope="benchmark")

    def _method(self, rng, at):
        """A suite gets a new version, some of its benchmarks measure something else."""
        L = self.lay
        suite = str(rng.choice(list(self.versions)))
        own = [b for b in range(len(L.bench)) if L.suite_of[b] == suite]
        hit = [b for b in own if rng.random() < 0.6] or own[:1]
        d = L.phases(hit, rng, float(rng.choice((-1, 1)) * rng.uniform(6, 25)))
        self.method[at:] += d
        self.versions[suite].append(at)
        self.docs[at] = False
        self._label("method", "method", at, list(self.testbeds), d, suite=suite)

    # ------------------------------------------------------------------ what happens, in time

    def _bimodal(self, rng):
        """One worker has two states, chosen anew in every session."""
        L, (tb, ws) = self.lay, max(self.testbeds.items(), key=lambda kv: len(kv[1]))
        w = str(rng.choice(ws))
        hit = rng.random(len(L.bench)) < 0.4
        d = (hit[L.of] & L.time) * np.log1p(rng.uniform(0.05, 0.10))
        self.machine.append(
            dict(kind="bimodal", worker=w, t0=0.0, t1=FOREVER, shift=d, p=float(rng.uniform(0.2, 0.5)), label=None)
        )
        self._label("bimodal", "noise", 0, [tb], d, self.n, w)

    def _machine(self, rng, at, kind):
        """An event on one worker from its first run at or after a commit on; None if no worker is free."""
        L = self.lay
        taken = {m["worker"] for m in self.machine if m["t1"] > self.times[max(0, at - 20)]}
        pool = [(tb, w) for tb, ws in self.testbeds.items() for w in ws]
        if kind == "blind" and (max(map(len, self.testbeds.values())) < 2 or (L.sens[L.time, 3] > 0.3).sum() < 4):
            kind = "slow"
        pool = [x for x in pool if x[1] not in taken and (kind != "blind" or len(self.testbeds[x[0]]) > 1)]
        many = [x for x in pool if len(self.testbeds[x[0]]) > 1]
        pool = many if many and rng.random() < 0.85 else pool
        if not pool:
            return None
        tb, w = pool[int(rng.integers(len(pool)))]
        mine = sorted((r for r in self.runs if r["worker"] == w), key=lambda r: r["start"])
        i = next((k for k, r in enumerate(mine) if r["commit"] >= at), len(mine) - 6)
        i = max(0, min(i, len(mine) - 6))
        lasts = (
            int(rng.integers(4, 13))
            if kind in ("throttle", "neighbour")
            else len(mine)
            if rng.random() < 0.5
            else int(rng.integers(10, 25))
        )
        last = min(len(mine) - 1, i + lasts)
        r, mult = np.zeros(4), 1.0
        if kind == "throttle":
            r[0] = rng.uniform(0.10, 0.35)
        elif kind == "slow":
            r[int(rng.choice((0, 1, 2)))] = rng.uniform(0.08, 0.25)
        elif kind == "blind":
            r[3] = rng.uniform(0.12, 0.35)
        else:
            r[[0, 2]], mult = rng.uniform(0.01, 0.05, 2), rng.uniform(3, 6)
        ev = dict(
            kind=kind,
            worker=w,
            t0=mine[i]["start"] - 1,
            t1=FOREVER if last == len(mine) - 1 else mine[last]["start"] + 1,
            r=r,
            mult=mult,
            shown=rng.random() < 0.75,
            shift=None,
        )
        self.machine.append(ev)
        hit = mine[i : last + 1]
        return self._label(
            kind,
            "hardware",
            min(x["commit"] for x in hit),
            [tb],
            np.log1p(L.sens @ r),
            max(x["commit"] for x in hit),
            w,
            runs=len(hit),
            resource=RESOURCES[int(np.argmax(r))],
        )

    def _upgrade(self, rng, at, effect):
        """New software on all workers of a testbed, at once or rolling; it moves some of the atoms, or nothing."""
        L, tb = self.lay, str(rng.choice(list(self.testbeds)))
        d, canary = np.zeros(len(L.base)), np.zeros(4)
        key = str(rng.choice(("torch", "driver", "cuda", "nccl", "container")))
        if effect:
            key = str(rng.choice(("torch", "driver", "cuda", "nccl")))
            hit = [b for b in range(len(L.bench)) if rng.random() < rng.uniform(0.3, 0.8)] or [0]
            sign = float(rng.choice((1, -1), p=(0.7, 0.3)))
            names = list(dict.fromkeys(n for n, t in zip(L.name, L.time, strict=True) if t))
            size = {n: sign * rng.uniform(0.05, 0.2) * (rng.random() < 0.75) for n in names}
            for i in np.flatnonzero(L.time & np.isin(L.of, hit)):
                d[i] = np.log1p(size[L.name[i]])
            if not L.impact(d) or max(map(abs, L.impact(d).values())) < 6:
                d[L.time & np.isin(L.of, hit)] = np.log1p(0.1 * sign)
            if rng.random() < 0.35:
                canary[int(rng.integers(3))] = sign * rng.uniform(0.02, 0.06)
        t0, roll = self.times[at], rng.uniform(4, 14) * 1500 if rng.random() < 0.35 else 0.0
        when = {
            w: float(t0 + roll * k / max(1, len(self.testbeds[tb]) - 1))
            for k, w in enumerate(rng.permutation(self.testbeds[tb]))
        }
        self.upgrades.append(
            dict(testbed=tb, when={str(w): t for w, t in when.items()}, key=key, shift=d, canary=canary)
        )
        first = [
            min((r["commit"] for r in self.runs if r["worker"] == w and r["start"] >= t), default=self.n)
            for w, t in when.items()
        ]
        return self._label(
            "upgrade" if effect else "upgrade_none",
            "environment" if effect else "noise",
            min(first),
            [tb],
            d,
            max((f for f in first if f < self.n), default=at),
            key=key,
            rolling=roll > 0,
        )

    def _harmless(self, rng):
        """Unlucky runs of docs-only commits, and failed benchmarks."""
        L = self.lay
        quiet = [r for r in self.runs if self.docs[r["commit"]] and r["commit"] > WARMUP]
        for i in rng.choice(len(quiet), min(4, len(quiet)), replace=False):
            hit = rng.random(len(L.bench)) < rng.uniform(0.2, 0.7)
            quiet[i]["extra"] = (hit[L.of] & L.time) * np.log1p(rng.uniform(0.05, 0.14))
            self._label(
                "docs_noise",
                "noise",
                quiet[i]["commit"],
                [quiet[i]["testbed"]],
                quiet[i]["extra"],
                quiet[i]["commit"],
                quiet[i]["worker"],
            )
        for r in self.runs:
            if rng.random() < 0.02:
                r["failed"].append(int(rng.integers(len(L.bench))))
        b, at = int(rng.integers(len(L.bench))), int(rng.integers(WARMUP, self.n - 10))
        for r in self.runs:
            if at <= r["commit"] < at + 3:
                r["failed"].append(b)
        self._label("failed", "noise", at, list(self.testbeds), None, at + 2, benchmark=L.bench[b])
