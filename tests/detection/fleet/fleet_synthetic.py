"""Labelled histories of a whole benchmark fleet, deterministic by seed.

What a run shows is code(commit, testbed) + method(commit) + environment(worker, time) + machine(worker, time) + what
its box always adds + noise. A session that measures two commits on one worker now therefore differs by code only.
Machines act through four resources, of which the canaries see three and the network none.

Seeds below 1000 are for tuning; those from 1000 on are for judging.
"""

from __future__ import annotations

import numpy as np
from fleet_plan import Plan

CANARY = (
    ("gemm_tflops", 0, 720.0, -1, 0.004),
    ("copy_gb_per_s", 1, 4100.0, -1, 0.003),
    ("launch_us", 2, 4.2, 1, 0.015),
)
FINGERPRINT = {
    "torch": (2, 4, 0),
    "driver": (550, 54, 0),
    "cuda": (12, 4, 0),
    "nccl": (2, 21, 0),
    "container": (1, 0, 0),
}


class Fleet(Plan):
    """One labelled fleet: `header()`, `stream()`, `session()` for the player, and `labels` for the scorer."""

    def _state(self, worker, t, rng):
        """Shift of the atoms, noise factor, bimodality, canaries, telemetry and fingerprint of a worker at time t."""
        L, tb = self.lay, worker.split("-")[0]
        box, own = self.boxes[worker]
        r, shift, mult, canary, bi = np.zeros(4), own.copy(), 1.0, np.zeros(4), None
        tel = dict(
            sm_clock_mhz=1980 - 15 * rng.integers(0, 3),
            temperature_c=rng.normal(64, 3),
            throttle=[],
            foreign_processes=int(rng.random() < 0.008),
            load=rng.gamma(4, 0.4),
        )
        tel["throttle"] += ["sw_power_cap"] * (rng.random() < 0.12)
        for m in self.machine:
            if m["worker"] != worker or not m["t0"] <= t <= m["t1"]:
                continue
            if m["kind"] == "bimodal":
                bi = m
                continue
            depth = rng.uniform(0.65, 1.2) if m["kind"] == "throttle" else 1.0
            r = r + m["r"] * depth
            if m["kind"] == "throttle" and m["shown"]:
                tel["sm_clock_mhz"] /= 1 + m["r"][0] * depth
                tel["temperature_c"] += rng.uniform(12, 20)
                tel["throttle"] += ["hw_thermal_slowdown"] * (rng.random() < 0.85)
            if m["kind"] == "neighbour":
                mult = m["mult"]
                tel["foreign_processes"] += int(rng.integers(1, 4)) * (rng.random() < (0.9 if m["shown"] else 0.3))
                tel["load"] += rng.uniform(6, 30)
        finger = {k: list(v) for k, v in FINGERPRINT.items()}
        for u in self.upgrades:
            if u["testbed"] == tb and t >= u["when"][worker]:
                shift += u["shift"]
                canary += u["canary"]
                finger[u["key"]][2] += 1
        res = np.log1p(box) + np.log1p(r)
        shift += np.log1p(L.sens @ (np.expm1(res)))
        dip = rng.random() < 0.01
        can = {}
        for name, i, base, sign, sd in CANARY:
            x = (
                res[i]
                + canary[i]
                + sd * mult * rng.standard_normal()
                + (rng.uniform(0.03, 0.08) if dip and i == 0 else 0)
            )
            can[name] = float(f"{base * np.exp(sign * x):.6g}")
        tel = dict(
            tel,
            sm_clock_mhz=int(tel["sm_clock_mhz"]),
            temperature_c=int(tel["temperature_c"]),
            load=round(float(tel["load"]), 2),
        )
        return shift, mult, bi, can, tel, {k: ".".join(map(str, v)) for k, v in finger.items()}

    def _measure(self, commits, worker, t, k, rng, method_at, extra=None):
        """Process values of each commit, taken in one go: they share what is of that moment; and its context."""
        L, tb = self.lay, worker.split("-")[0]
        shift, noise, bi, canary, tel, finger = self._state(worker, t, rng)
        cv, B = L.cv, len(L.bench)
        e = np.where(L.heavy, rng.standard_t(3, B) / np.sqrt(3), rng.standard_normal(B))
        shared = (0.002 * rng.standard_normal() + (0.6 * noise * cv * e)[L.of]) * L.time
        slow = bi is not None and rng.random() < bi["p"]
        out = []
        for c in commits:
            p = 0.8 * rng.standard_normal((k, B))[:, L.of] + 0.5 * rng.standard_normal((k, len(L.base)))
            x = p * (noise * cv)[L.of] * L.time + rng.standard_normal((k, len(L.base))) * L.mem_noise[L.of] * (
                L.kind == "memory"
            )
            if bi:
                x = x + (slow ^ (rng.random(k) < 0.1))[:, None] * bi["shift"]
            out.append(
                L.observe(
                    x + shared + shift + self.code[tb][c] + self.method[method_at] + (0 if extra is None else extra)
                )
            )
        return out, canary, tel, finger

    def _versions(self, commit):
        return {s: f"{1 + sum(commit >= c for c in at)}.0" for s, at in self.versions.items()}

    def header(self):
        """The first line: what exists. Says nothing of what will happen."""
        return dict(
            type="fleet",
            protocol="tidemark.fleet/1",
            series=[{k: v for k, v in s.items() if k != "at"} for s in self.lay.series],
            testbeds=self.testbeds,
            policy=dict(min_change=0.05),
            canary={n: "higher" if s < 0 else "lower" for n, _, _, s, _ in CANARY},
        )

    def stream(self):
        """Run and accept records in arrival order; every run has its own random stream."""
        waiting, top = sorted(self.accepts, key=lambda a: a[0]), -1
        for r in self.runs:
            c = r["commit"]
            rng = np.random.default_rng([self.seed, 1, r["index"]])
            (v,), canary, tel, finger = self._measure([c], r["worker"], r["start"], self.procs, rng, c, r["extra"])
            names = {self.lay.bench[b] for b in r["failed"]}
            values = {
                s["id"]: [float(f"{x:.6g}") for x in v[:, j]]
                for j, s in enumerate(self.lay.series)
                if s["benchmark"] not in names
            }
            yield dict(
                type="run",
                seq=r["index"],
                commit=c,
                testbed=r["testbed"],
                worker=r["worker"],
                timestamp=int(r["start"]),
                environment=finger,
                suite_version=self._versions(c),
                telemetry=tel,
                canary=canary,
                touched_paths="docs" if self.docs[c] else "code",
                failed=sorted(names),
                values=values,
            )
            top = max(top, c)
            while waiting and waiting[0][0] <= top:
                e = waiting.pop(0)[1]
                yield dict(type="accept", commit=e["commit"], testbeds=e["testbeds"], series=sorted(e["series"]))

    def session(self, number, testbed, worker, now, series, base, head):
        """A confirming session: base and head interleaved on one worker now, with head's suite version for both."""
        rng = np.random.default_rng([self.seed, 2, number])
        (a, b), canary, tel, finger = self._measure([base, head], worker, now, 5, rng, head)
        col = self.lay.column

        def cut(v, s):
            return [float(f"{x:.6g}") for x in v[:, col[s]]]

        return dict(
            type="confirm",
            testbed=testbed,
            worker=worker,
            timestamp=int(now),
            base=base,
            head=head,
            environment=finger,
            telemetry=tel,
            canary=canary,
            values={s: {"base": cut(a, s), "head": cut(b, s)} for s in series},
        )
