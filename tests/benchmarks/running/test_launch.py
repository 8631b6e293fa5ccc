"""Points 2, 3 and 11 of the protocol: real sessions of real processes around a workload that notes what it sees."""

from __future__ import annotations

import json
import os

import pytest

pytestmark = pytest.mark.torch

from benchmarks.registry import Selected  # noqa: E402
from benchmarks.running.launch import Launcher  # noqa: E402
from benchmarks.running.session import Request, SuiteSession  # noqa: E402
from benchmarks.spec import Benchmark, Case, Preset  # noqa: E402

WORKLOAD = '''
import json, os
from benchmarks.harness.check import Correctness
from benchmarks.harness.values import Value
from benchmarks.harness.workload import Work


class Noted:
    work = Work(flop=0.0)

    def __init__(self, job):
        self.job = job
        with open(job.config["log"], "a") as log:
            log.write(json.dumps({"case": job.variant["name"], "pid": os.getpid(), "tasks": job.tasks}) + "\\n")

    def check(self):
        return Correctness(reference="none")

    def prepare(self):
        pass

    def counters(self):
        return []

    def after(self):
        return None


class Noisy(Noted):
    """Every process reports another level, so that no precision is ever reached early."""

    def measure(self):
        level = self.job.config["levels"][self.job.process % len(self.job.config["levels"])]
        return [Value(metric="level", unit="1", value=level, samples=[level] * 3, role="gate")]

'''


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Makes sessions of such workloads, and reads what their processes noted."""
    (tmp_path / "noted_workload.py").write_text(WORKLOAD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = tmp_path / "log"

    def make(*cases, **request):
        variants = tuple(
            Case(variant={"name": name}, config={"log": str(log), "device": "cpu", **config}, timeout_s=60)
            for name, config in cases
        )
        benchmark = Benchmark(
            id="test.noted", title="", mode="", workload="noted_workload:Noisy", cases=lambda preset: variants,
            meaning="", formula="", bound="",
        )  # fmt: skip
        asked = {"processes": 2, "seed": 5, **request}
        selection = tuple(Selected(benchmark, case) for case in variants)
        made = SuiteSession(Request(selection=selection, preset=Preset.CPU, implementation=None, **asked), Launcher())
        made.run()
        return made, [json.loads(line) for line in log.read_text().splitlines()]

    return make


def test_every_repetition_has_a_process_of_its_own_and_only_the_ends_read_the_canary(session):
    made, noted = session(("a", {"levels": [1.0]}))
    assert len({one["pid"] for one in noted} | {os.getpid()}) == len(noted) + 1 == 3
    assert ["canary_before" in one["tasks"] for one in noted] == [True, False]
    assert ["canary_after" in one["tasks"] for one in noted] == [False, True]
    assert made.canary()[0]["before"] > 0 and made.canary()[0]["after"] > 0


def test_with_a_precision_to_reach_the_closing_canary_is_read_after_the_last_repeat(session):
    made, noted = session(("a", {"levels": [1.0, 1.015]}), precision=0.05)
    assert len(noted) > 2, "the spread asks for more than the two planned"
    assert not any("canary_after" in one["tasks"] for one in noted)
    assert made.canary()[0]["after"] > 0
    found = made.results()[0]["measurements"][0]
    assert len(found["processes"]) == len(noted), "the closing process is in no sample"
    assert found["minimum_detectable_change"] <= 0.05
