"""Suites, benchmarks and series of one synthetic project, and the arithmetic between them.

A project is made of atoms: the phases of every benchmark, its peak memory and its kernel count. Whatever happens moves
atoms in log space; the step is the sum of the phases and throughput its inverse, so one cause moves the metrics of a
benchmark together.
"""

from __future__ import annotations

import numpy as np

RESOURCES = ("compute", "bandwidth", "launch", "network")
MIX = {
    "compute": (0.75, 0.13, 0.10, 0.02),
    "bandwidth": (0.08, 0.80, 0.10, 0.02),
    "launch": (0.08, 0.10, 0.80, 0.02),
    "network": (0.02, 0.10, 0.08, 0.80),
}
SUITES = {  # phase, share of the step, what bounds it
    "gpt": (
        ("forward", 0.33, "compute"),
        ("backward", 0.50, "compute"),
        ("optimizer", 0.12, "bandwidth"),
        ("data", 0.05, "launch"),
    ),
    "moe": (
        ("router", 0.10, "launch"),
        ("dispatch", 0.20, "network"),
        ("experts", 0.50, "compute"),
        ("combine", 0.20, "bandwidth"),
    ),
    "attn": (("forward", 0.35, "compute"), ("backward", 0.65, "compute")),
    "ddp": (("forward", 0.30, "compute"), ("backward", 0.45, "compute"), ("comm", 0.25, "network")),
    "decode": (("attention", 0.60, "bandwidth"), ("sampling", 0.40, "launch")),
    "coll": (("all_reduce", 0.60, "network"), ("all_gather", 0.40, "network")),
}
CVS = (0.003, 0.005, 0.01, 0.02, 0.03, 0.04)  # of a process, per benchmark


class Layout:
    """Suites, benchmarks, atoms and series of one project, and the arithmetic between atoms and series."""

    def __init__(self, rng):
        target = int(np.clip(np.exp(rng.uniform(np.log(30), np.log(200))), 30, 200))
        suites = list(rng.permutation(list(SUITES)))[: int(rng.integers(3, 7))]
        self.suite_of, self.bench, rows, self.series = [], [], [], []
        self.cv, self.heavy, self.mem_noise = [], [], []
        made, i = 0, 0
        while True:
            suite, b = str(suites[i % len(suites)]), len(self.bench)
            counter, phases = rng.random() < 0.6, rng.random() < 0.75
            size = 3 + counter + (len(SUITES[suite]) if phases else 0)
            if (made and made + size > max(target, 30) and made >= 30) or made + size > 200:
                break
            i, made = i + 1, made + size
            name = f"{suite}.b{sum(s == suite for s in self.suite_of)}"
            self.suite_of.append(suite)
            self.bench.append(name)
            self.cv.append(float(rng.choice(CVS, p=(0.15, 0.2, 0.25, 0.2, 0.12, 0.08))))
            self.heavy.append(rng.random() < 0.2)
            self.mem_noise.append(0.002 * (rng.random() < 0.3))
            step_ms = 10 ** rng.uniform(0, 2.7)
            share = np.array([p[1] for p in SUITES[suite]]) * rng.uniform(0.7, 1.3, len(SUITES[suite]))
            self._put(name, suite, "step_time_ms", "ms", "lower", "gate", False, ("step", b))
            self._put(name, suite, "tokens_per_s", "1/s", "higher", "derived", False, ("rate", b))
            for (phase, _, bound), w in zip(SUITES[suite], share / share.sum(), strict=True):
                if phases:
                    self._put(name, suite, f"{phase}_ms", "ms", "lower", "phase", False, ("atom", len(rows)))
                rows.append((b, phase, "time", step_ms * w, rng.dirichlet(25 * np.array(MIX[bound]) + 0.1)))
            self._put(name, suite, "peak_memory_gb", "GB", "lower", "gate", not self.mem_noise[-1], ("atom", len(rows)))
            rows.append((b, "memory", "memory", rng.uniform(2, 120), np.zeros(4)))
            if counter:
                self._put(name, suite, "kernels", "1", "lower", "gate", True, ("atom", len(rows)))
            rows.append((b, "kernels", "count", float(rng.integers(200, 6000)), np.zeros(4)))
        self.of = np.array([r[0] for r in rows])  # atom -> benchmark
        self.name = [r[1] for r in rows]
        self.kind = np.array([r[2] for r in rows])
        self.base = np.array([r[3] for r in rows])
        self.sens = np.array([r[4] for r in rows])  # atom x resource
        self.time = self.kind == "time"
        self.sum = np.zeros((len(rows), len(self.bench)))  # atoms -> step times
        self.sum[self.time, self.of[self.time]] = 1
        self.cv, self.heavy, self.mem_noise = np.array(self.cv), np.array(self.heavy), np.array(self.mem_noise)
        self.tokens = rng.uniform(1e3, 1e6, len(self.bench))
        self.column = {s["id"]: j for j, s in enumerate(self.series)}

    def _put(self, benchmark, suite, metric, unit, better, role, exact, at):
        described = {"id": f"{benchmark}/{metric}", "suite": suite, "benchmark": benchmark, "metric": metric}
        described |= {"unit": unit, "direction": f"{better}_is_better", "role": role, "exact": exact, "at": at}
        self.series.append(described)

    def observe(self, log):
        """Log atoms (k, atoms) -> metric values (k, series)."""
        a = self.base * np.exp(log)
        a = np.where(self.kind == "count", np.round(a), a)
        step = a @ self.sum
        pick = {
            "step": lambda i: step[:, i],
            "rate": lambda i: 1e3 * self.tokens[i] / step[:, i],
            "atom": lambda i: a[:, i],
        }
        return np.stack([pick[s["at"][0]](s["at"][1]) for s in self.series], 1)

    def impact(self, shift):
        """Cost change in percent (up = worse) of every series that a shift of the log atoms moves by 0.5 % or more."""
        v = self.observe(np.stack([np.zeros_like(shift), shift]))
        up = np.array([1 if s["direction"][0] == "l" else -1 for s in self.series])
        pct = 100 * np.expm1(up * np.log(v[1] / v[0]))
        return {s["id"]: round(float(p), 3) for s, p in zip(self.series, pct, strict=True) if abs(p) >= 0.5}

    def phases(self, benches, rng, pct):
        """A shift that makes the steps of `benches` so many percent slower, through one phase they share if they do."""
        d = np.zeros(len(self.base))
        names = [n for n in dict.fromkeys(self.name[i] for i in np.flatnonzero(self.time & np.isin(self.of, benches)))]
        name = str(rng.choice(names))
        for b in benches:
            own = np.flatnonzero(self.time & (self.of == b))
            hit = [i for i in own if self.name[i] == name] or [int(rng.choice(own))]
            share = self.base[hit].sum() / self.base[own].sum()
            if 1 + pct / 100 / share < 0.35:  # a small phase cannot win that much: spread it
                hit, share = own, 1.0
            d[hit] += np.log1p(pct / 100 / share)
        return d
