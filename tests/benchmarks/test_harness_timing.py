"""The harness times what it says it times: the points of the protocol that a CPU can show."""

from __future__ import annotations

import random
import time

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")

from benchmarks.analysis import measurements  # noqa: E402
from benchmarks.harness.counters import count_activation_bytes, count_operations, host_syncs  # noqa: E402
from benchmarks.harness.timing import paired  # noqa: E402
from benchmarks.harness.timing.clock import HostClock  # noqa: E402
from benchmarks.harness.timing.events import settled  # noqa: E402
from benchmarks.harness.timing.marks import HostMarks  # noqa: E402
from benchmarks.registry import find, select  # noqa: E402
from benchmarks.running import plan  # noqa: E402
from benchmarks.spec import Preset  # noqa: E402

BUDGET = paired.Budget(warm_up_s=0.02, measure_s=0.15)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_step_that_sleeps_costs_at_least_its_sleep():
    def slept() -> float:
        before = clock.now()
        time.sleep(0.05)
        return before.until(clock.now())

    clock = HostClock()
    # A sleep ends at a time fixed when it was asked for: what was queued before it began is no part of its cost.
    assert max(slept() for _ in range(5)) >= 0.0499


def test_a_step_that_computes_costs_its_cpu_time():
    clock = HostClock()
    before, cpu = clock.now(), time.thread_time()
    spin(0.03)
    assert before.until(clock.now()) >= 0.03
    assert before.until(clock.now()) <= time.thread_time() - cpu + 0.05


def test_phases_are_charged_to_their_names_and_add_up():
    clock = HostClock()
    marks = HostMarks(clock)
    marks.start()
    marks.enter("forward")
    spin(0.02)
    marks.enter("backward")
    spin(0.04)
    found = marks.stop()
    assert list(found) == ["other", "forward", "backward"]
    assert found["backward"] > found["forward"] >= 0.02


def test_a_step_that_takes_ten_milliseconds_is_never_said_to_take_less():
    times = paired.measure(lambda marks: spin(0.01), HostClock(), BUDGET, random.Random(1))
    assert min(times.step_s) >= 0.01
    assert len(times.step_s) == len(times.yardstick_s) >= paired.LEAST_PAIRS


def test_a_step_far_below_the_yardstick_is_repeated_within_a_sample():
    calls = []
    times = paired.measure(lambda marks: calls.append(1), HostClock(), BUDGET, random.Random(1))
    assert 1 < times.steps_per_sample <= paired.MOST_STEPS_PER_SAMPLE
    assert len(calls) == times.warm_up_steps + len(times.step_s) * times.steps_per_sample


def test_the_collector_is_off_while_steps_are_timed_and_on_again_after():
    import gc

    seen = []

    def step(marks):
        seen.append(gc.isenabled())
        spin(0.005)

    paired.measure(step, HostClock(), BUDGET, random.Random(1))
    assert seen[-1] is False
    assert gc.isenabled()


def test_pairs_come_in_random_order():
    log = []

    class Watched(paired.Yardstick):
        def step(self):
            log.append("yard")
            super().step()

    original = paired.Yardstick
    paired.Yardstick = Watched
    try:
        paired.measure(lambda marks: (log.append("step"), spin(0.004)), HostClock(), BUDGET, random.Random(3))
    finally:
        paired.Yardstick = original
    pairs = ["".join(pair) for pair in zip(log[-18::2], log[-17::2], strict=False)]
    assert "stepyard" in pairs and "yardstep" in pairs


def test_phase_shares_of_typical_steps_sum_to_one_and_a_straggler_does_not_decide():
    times = paired.PairedTimes(
        step_s=[1.0] * 11 + [50.0],
        yardstick_s=[0.5] * 12,
        phases_s=[{"forward": 0.4, "backward": 0.6}] * 11 + [{"forward": 49.0, "backward": 1.0}],
    )
    shares = paired.phases_of_typical_steps(times)
    assert shares == pytest.approx({"forward": 0.4, "backward": 0.6})


def test_warm_up_is_settled_only_when_two_windows_agree():
    falling = [10.0 - 0.5 * i for i in range(12)]
    assert not settled(falling, 0.005)
    assert settled([10, 8, 5, 5, 5, 5, 5, 5, 5, 5, 5], 0.005)
    assert not settled([5.0] * 9, 0.005), "fewer than ten steps settle nothing"


def test_processes_run_in_rounds_of_random_order_and_every_case_as_often():
    cases = select(find("gpt.ladder"), Preset.CPU, {})
    order = plan.repetitions(cases, 2, seed=7)
    runnable = [s for s in cases if s.case.not_applicable is None]
    assert len(order) == 2 * len(runnable)
    rounds = [order[i : i + len(runnable)] for i in range(0, len(order), len(runnable))]
    names = [[r.selected.case.variant["rung"] for r in one] for one in rounds]
    assert all(sorted(one) == sorted(names[0]) for one in names)
    assert names[0] != names[1]
    assert [r.number for r in rounds[1]] == [1] * len(runnable)


def test_an_explicit_number_of_processes_wins_over_what_a_case_is_content_with():
    from benchmarks import cli

    for asked, wanted in ((["--processes", "5"], 5), ([], 2)):
        options = cli._parser().parse_args(["run", "attn.decode", *asked])
        request = cli._request(options, options.out)
        assert len(plan.repetitions(request.selection, request.processes, 1)) == 2 * wanted


def test_activations_are_counted_once_each_and_parameters_not_at_all():
    weight = torch.randn(8, 8, requires_grad=True)
    x = torch.randn(4, 8)
    kept = count_activation_bytes(lambda: (x @ weight).tanh().sum(), [weight])
    # x for the weight's gradient, and the hyperbolic tangent's own output.
    assert kept == x.numel() * 4 + 4 * 8 * 4


def test_operations_are_counted_and_views_are_free():
    x = torch.randn(4, 4)
    counter = count_operations(lambda: (x.t().view(16) if x.t().is_contiguous() else x.view(16)) + 1)
    assert counter.total == 1


def test_a_step_that_asks_for_a_value_makes_the_host_wait():
    x = torch.randn(4)
    waits = [host_syncs(count_operations(step), "cpu", step) for step in (lambda: x.sum().item(), x.sum)]
    assert [one.value for one in waits] == [1, 0]
    assert {one.role for one in waits} == {"watch"}, "on a CPU it costs nothing"


def report_of(ratios, **more):
    return {
        "times": {
            "clock": "x",
            "step_s": ratios,
            "yardstick_s": [1.0] * len(ratios),
            "phase_shares": {"forward": 0.99, "other": 0.01},
            "settled": True,
        },
        "work": {"units": 10.0, "unit_metric": "tokens_per_s", "unit_unit": "1/s"},
        "peak_rss_bytes": 1.0,
        **more,
    }


def test_the_value_is_the_median_of_process_medians_and_no_sample_is_dropped():
    found = measurements.of_reports(
        [report_of([1.0, 1.1, 9.0]), report_of([2.0, 2.1, 2.2]), report_of([3.0, 3.1, 3.2])]
    )
    gate = next(m for m in found if m["metric"] == "step_over_yardstick")
    assert gate["processes"] == [1.1, 2.1, 3.1]
    assert gate["value"] == 2.1
    assert 9.0 in gate["samples"][0]
    assert gate["minimum_detectable_change"] > 0


def test_a_counter_that_two_processes_state_differently_is_not_called_exact():
    counter = {"metric": "ops", "unit": "1", "direction": "lower", "role": "watch", "exact": True, "formula": None}
    reports = [{"counters": [{**counter, "value": value}]} for value in (5, 6)]
    assert measurements.counters_of(reports)[0]["exact"] is False


@pytest.mark.parametrize(
    ("flop", "traffic", "seconds", "bound"),
    [(1e12, 1e9, 2.0, "compute"), (1e9, 1e11, 1.5, "memory"), (1e9, 1e9, 100.0, "latency")],
)
def test_the_roofline_says_what_bounds_a_step(flop, traffic, seconds, bound):
    found = measurements.roofline_of({"flop": flop, "bytes": traffic}, seconds, 1e12, 1e11)
    assert found["bound"] == bound
    assert found["share_of_ceiling"] <= 1.0


def test_the_activations_that_a_step_keeps_are_traffic_too():
    """Without them the unfused rungs of the ladder had so little traffic that latency was said to bound them."""
    work = {"flop": 1e11, "bytes": 1e9}
    assert measurements.roofline_of(work, 1.0, 1e12, 1e11)["bound"] == "latency"
    assert measurements.roofline_of(work, 1.0, 1e12, 1e11, activation_bytes=2e10)["bound"] == "memory"


def test_a_step_is_held_against_the_ceiling_of_its_precision():
    ceilings = {"gemm_bf16_tflops": 700.0, "gemm_fp32_tflops": 50.0, "hbm_copy_gb_per_s": 4000.0}
    assert measurements.compute_ceiling(ceilings, "fp32") == 50e12
    assert measurements.compute_ceiling(ceilings, "bf16") == 700e12
    assert measurements.compute_ceiling({"gemm_fp32_tflops": 0.1}, "bf16") == 0.1e12, "the one that was measured"


def test_work_without_arithmetic_has_no_roofline():
    assert measurements.roofline_of({"flop": 0.0, "bytes": None}, 1.0, 1e12, 1e11) is None
