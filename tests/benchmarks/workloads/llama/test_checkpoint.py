"""Activation checkpointing: the same output and gradients, fewer bytes kept, more operations; counted on a CPU."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402
from benchmarks.workloads.llama.checkpoint import LlamaCheckpoint  # noqa: E402


def workload(keep):
    case = next(case for case in BY_ID["llama.checkpoint"].cases(Preset.CPU) if case.variant["keep"] == keep)
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "seed": 1234, "tasks": ()}
    return LlamaCheckpoint(Job(benchmark="llama", workload="", variant={}, config=case.config, preset="cpu", **fields))


def test_what_is_not_kept_is_made_again_and_what_is_selected_is_not():
    counted = {}
    for keep in ("all", "products", "none"):
        made = workload(keep)
        made.prepare()
        counted[keep] = {counter.metric: counter.value for counter in made.counters()}
    operations = {keep: counters["ops_per_step"] for keep, counters in counted.items()}
    assert operations["all"] < operations["products"] < operations["none"]
    assert counted["none"]["activation_bytes"] < counted["all"]["activation_bytes"] / 4
    assert "activation_bytes" not in counted["products"], "torch holds them where they are not seen"
    assert len({counters["flop_per_step"] for counters in counted.values()}) == 1


def test_every_way_gives_the_same_gradients():
    found = {}
    for keep in ("all", "products", "none"):
        made = workload(keep)
        drawn = made.inputs(reduced=True).to(torch.float32, "cpu")
        made.function(drawn).sum().backward()
        found[keep] = drawn.gradients()
    for keep in ("products", "none"):
        assert all(torch.equal(one, other) for one, other in zip(found["all"], found[keep], strict=True))
