"""Points 4, 10 and 13 of the protocol: inputs, statistics, and the yardstick beside every step."""

from __future__ import annotations

import random

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.analysis import measurements  # noqa: E402
from benchmarks.harness.timing import paired  # noqa: E402
from benchmarks.harness.timing.clock import Instant  # noqa: E402
from benchmarks.harness.workload import Job  # noqa: E402
from benchmarks.registry import BY_ID  # noqa: E402
from benchmarks.spec import Preset, Role  # noqa: E402
from benchmarks.workloads import ceilings  # noqa: E402
from benchmarks.workloads.attention import dense as attention  # noqa: E402
from benchmarks.workloads.gpt.config import GptConfig  # noqa: E402
from benchmarks.workloads.gpt.training import TokenStream  # noqa: E402
from benchmarks.workloads.llama import block as llama  # noqa: E402
from benchmarks.workloads.moe import layer as moe  # noqa: E402


def job_of(name, seed):
    case = BY_ID[name].cases(Preset.CPU)[0]
    fields = {"implementation": None, "builtin": None, "process": 0, "processes": 1, "tasks": ()}
    return Job(benchmark=name, workload="", variant=case.variant, config=case.config, preset="cpu", seed=seed, **fields)


INPUTS = {
    "attn.train": lambda job: list(attention.AttentionTraining(job).inputs(reduced=True).learned.values()),
    "attn.decode": lambda job: list(attention.AttentionDecoding(job).inputs(reduced=True).learned.values()),
    "llama.block": lambda job: list(llama.LlamaBlock(job).inputs(reduced=True).learned.values()),
    "moe.layer": lambda job: list(moe.MoeLayer(job).inputs(reduced=True).learned.values()),
    "ceiling.gemm": lambda job: [ceilings.Gemm(job).left, ceilings.Gemm(job).right],
    "ceiling.memory": lambda job: [ceilings.MemoryTraffic(job).source],
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_are_seeded_random_numbers_and_never_zeros(name):
    drawn, again, other = (INPUTS[name](job_of(name, seed)) for seed in (1, 1, 2))
    for tensor, same, different in zip(drawn, again, other, strict=True):
        assert tensor.float().std() > 0
        assert (tensor == 0).float().mean() < 0.01
        assert torch.equal(tensor, same)
        assert not torch.equal(tensor, different)


def test_token_ids_are_seeded_and_as_skewed_as_text():
    config = GptConfig(n_layer=1, n_head=1, n_embd=8, block_size=256, vocab_size=512, batch_size=2)
    one, same, other = (TokenStream(config, 512, pinned=False, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.tokens, same.tokens)
    assert not torch.equal(one.tokens, other.tokens)
    counts = torch.bincount(one.tokens, minlength=512)
    assert counts[:8].sum() > 5 * counts[256:264].sum()
    inputs, targets = one.next()
    assert torch.equal(inputs[:, 1:], targets[:, :-1]), "targets are the inputs, one ahead"


def test_a_metric_of_two_modes_is_flagged_and_keeps_every_sample():
    calm, torn = [1.0 + 1e-4 * (i % 5) for i in range(40)], [1.0 + 0.2 * (i % 2) + 1e-4 * (i % 5) for i in range(40)]
    for samples, flagged in ((calm, False), (torn, True)):
        found = measurements.measurement("step_ms", "ms", Role.GATE, [1.0, 1.0], samples=[calm, samples])
        assert found["bimodal"] is flagged
        assert found["samples"] == [calm, samples]
        assert found["samples_taken"] == [40, 40]


class NoisyClock:
    """A machine on which everything takes longer whenever neighbours come: by the minute, for all alike."""

    name = "simulated"

    def __init__(self):
        self.at_s, self.read = 0.0, 0

    def spend(self, seconds):
        self.at_s += seconds * (1.0 + 0.4 * ((self.read // 40) % 2))

    def now(self):
        self.read += 1
        return Instant(self.at_s, self.at_s, 0.0, 0)


def test_neighbours_move_times_by_tens_of_percent_and_the_paired_quotient_not_at_all(monkeypatch):
    clock = NoisyClock()

    class Yardstick:
        def step(self):
            clock.spend(0.008)

    monkeypatch.setattr(paired, "Yardstick", Yardstick)
    budget = paired.Budget(warm_up_s=0.0, measure_s=0.02)
    times = paired.measure(lambda marks: clock.spend(0.016), clock, budget, random.Random(1))
    assert max(times.step_s) > 1.3 * min(times.step_s)
    found = {
        m["metric"]: m
        for m in measurements.of_reports(
            [
                {
                    "times": {
                        "clock": "x",
                        "step_s": times.step_s,
                        "yardstick_s": times.yardstick_s,
                        "phase_shares": {},
                        "settled": True,
                    },
                    "work": {"units": 1.0, "unit_metric": "steps_per_s", "unit_unit": "1/s"},
                    "peak_rss_bytes": 1.0,
                }
            ]
        )
    }
    assert found["step_over_yardstick"]["value"] == pytest.approx(2.0)
    assert (found["step_over_yardstick"]["role"], found["step_ms"]["role"]) == ("gate", "watch")
