"""A measuring process: what watches every operation comes after what is timed, and what it ran under is stated."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness.workload import StepCounter, Work  # noqa: E402
from benchmarks.running import child  # noqa: E402

DONE: list[str] = []


class NotesItsSteps:
    """A workload that writes down what is asked of it."""

    work, compiles = Work(flop=0.0), False

    def __init__(self, job):
        DONE.clear()

    def prepare(self):
        DONE.append("prepare")

    def step(self, marks):
        marks.enter("forward")
        DONE.append("step")

    def counters(self):
        DONE.append("count")
        return [StepCounter(metric="ops_per_step", value=1)]

    def after(self):
        return None


def test_a_step_is_counted_only_when_every_timed_one_is_over(monkeypatch):
    """The compiler may give up for good on code that was watched before it was compiled."""
    monkeypatch.setattr(child, "CPU_MEASURE_S", 0.01)
    monkeypatch.setattr(child, "CPU_WARM_UP_S", 0.01)
    threads = torch.get_num_threads()
    job = {"benchmark": "x", "workload": f"{__name__}:NotesItsSteps", "variant": {}, "config": {"device": "cpu"}}
    job |= {"preset": "cpu", "implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1}
    report = child._run(job | {"tasks": ["time", "count"], "extra": {}})
    torch.set_num_threads(threads)
    assert report["status"] == "ok", report["error"]
    assert DONE[0] == "prepare" and DONE[-1] == "count"
    assert "step" not in DONE[DONE.index("count") :] and DONE.count("step") > 9


def test_settings_of_the_allocator_and_of_the_compilers_caches_are_part_of_the_environment(monkeypatch):
    for name in child.STATED:
        monkeypatch.setenv(name, f"of {name}")
    found = child._environment(SimpleNamespace(config={"device": "cpu"}))
    assert {name: found[name.lower()] for name in child.STATED} == {name: f"of {name}" for name in child.STATED}
    monkeypatch.delenv(child.STATED[0])
    assert child.STATED[0].lower() not in child._environment(SimpleNamespace(config={"device": "cpu"}))
