"""Diagnosis: the class of one result by its bands, and the difference of two by phases, kernels and rules."""

import pytest

from benchmarks.analysis.diagnose import BANDS, classify, explain, interval_of_difference
from benchmarks.analysis.kernels import KernelCall, difference, normalised, table


def measurement(metric, value, role="phase", processes=None, **more):
    unit = "ms" if metric.endswith("_ms") else "ratio"
    spread = processes or [value * factor for factor in (0.998, 1.0, 1.002)]
    return {
        "metric": metric,
        "unit": unit,
        "direction": "lower",
        "role": role,
        "value": value,
        "processes": spread,
        **more,
    }


def result(step=24.0, roofline=None, **phases):
    found = [measurement("step_ms", step, "watch"), *(measurement(f"{name}_ms", ms) for name, ms in phases.items())]
    return {"benchmark": "gpt.train", "variant": {}, "status": "ok", "measurements": found, "roofline": roofline}


def test_the_communication_of_the_worked_example_is_worth_a_look_and_no_fault():
    example = {"forward": 10.5, "backward": 9.0, "exposed_communication": 4.0, "other": 0.5}
    found = classify(result(24.0, **example))
    assert found["tree"] == ["comm warn (17%)"]
    assert found["flags"] == ["comm"]


@pytest.mark.parametrize(
    ("phases", "roofline", "found"),
    [
        ({"data_wait": 2.5}, {"bound": "compute", "share_of_ceiling": 0.9}, "data_bound"),
        ({"data_wait": 0.5, "exposed_communication": 5.0}, None, "communication_bound"),
        ({"data_wait": 2.5, "exposed_communication": 5.0}, None, "data_bound"),
        ({"data_wait": 0.1}, {"bound": "memory", "share_of_ceiling": 0.85}, "memory_bound"),
        ({"data_wait": 0.1}, {"bound": "latency", "share_of_ceiling": 0.1}, "latency_bound"),
        ({}, None, "unclassified"),
    ],
)
def test_the_first_question_that_fails_names_the_class(phases, roofline, found):
    assert classify(result(roofline=roofline, **phases))["class"] == found


def test_the_published_example_warns_of_communication_and_does_not_fail():
    found = classify(result(forward=10.5, backward=9.0, exposed_communication=4.0, other=0.5))
    assert found["flags"] == ["comm"]


@pytest.mark.parametrize(
    ("question", "warn", "fail"), [("data", 0.06, 0.11), ("scaling", 0.79, 0.69), ("net", 0.79, 0.4)]
)
def test_bands_have_a_warning_before_the_fault(question, warn, fail):
    band = BANDS[question]
    assert (band.level(warn), band.level(fail)) == ("warn", "fail")


def test_the_published_four_gpu_scaling_is_a_warning():
    assert BANDS["scaling"].level(0.737) == "warn"


def test_allocator_retries_are_memory_pressure_whatever_is_reserved():
    tight = result()
    tight["measurements"] += [
        measurement("peak_reserved_bytes", 10.0, "gate"),
        measurement("alloc_retries", 3.0, "gate"),
    ]
    assert classify(tight, total_memory_bytes=100.0)["class"] == "memory_pressure"


def test_the_phase_that_grew_is_named_and_carries_the_change():
    base = result(24.0, forward=10.5, backward=9.0, optimizer=4.0)
    head = result(27.0, forward=13.5, backward=9.0, optimizer=4.0)
    found = explain(base, head)
    assert found.phases[0].phase == "forward"
    assert found.phases[0].significant
    assert found.explained == pytest.approx(1.0, abs=0.05)
    assert found.change == pytest.approx(0.125)
    assert found.cause == "code"
    assert "forward" in found.reason


def test_two_equal_results_are_noise():
    base = result(24.0, forward=10.5, backward=9.0)
    assert explain(base, base).cause == "noise"


def test_a_phase_that_only_one_side_has_cost_nothing_on_the_other():
    found = explain(result(20.0, forward=20.0), result(22.0, forward=20.0, data_wait=2.0))
    assert found.phases[0].phase == "data_wait"
    assert found.phases[0].base == 0.0
    assert "loader" in found.reason


def test_more_host_syncs_are_named_before_the_phase_they_slow():
    base, head = result(24.0, forward=10.0), result(26.0, forward=12.0)
    for side, count in ((base, 0), (head, 8)):
        side["measurements"].append({**measurement("host_syncs", count, "gate"), "exact": True})
    assert "host_syncs 0 → 8" in explain(base, head).reason


def test_the_quotient_is_preferred_to_milliseconds():
    both = [measurement("step_over_yardstick", 2.0, "gate"), measurement("forward_over_yardstick", 1.0)]
    base = {**result(24.0, forward=10.0)}
    base["measurements"] = base["measurements"] + both
    assert explain(base, base).metric == "step_over_yardstick"


def test_results_without_a_step_cannot_be_explained():
    with pytest.raises(ValueError, match="no step time in common"):
        explain({"measurements": []}, {"measurements": []})


def test_the_interval_of_equal_processes_holds_zero_and_of_unequal_ones_does_not():
    same = interval_of_difference([1.0, 1.1, 0.9], [1.05, 0.95, 1.0])
    assert same[0] <= 0 <= same[1]
    assert interval_of_difference([1.0, 1.01, 0.99], [1.3, 1.31, 1.29])[0] > 0


def kernels(*rows):
    return table([KernelCall(*row) for row in rows], steps=1)


def test_more_launches_and_slower_calls_are_told_apart():
    base = kernels(*[("forward", "mm", "a", 10.0)] * 4)
    more = difference(base, kernels(*[("forward", "mm", "a", 10.0)] * 6))[0]
    slower = difference(base, kernels(*[("forward", "mm", "a", 15.0)] * 4))[0]
    assert (more.verdict, more.us_per_step, more.from_calls_us, more.from_duration_us) == (
        "more launches",
        20.0,
        20.0,
        0.0,
    )
    assert (slower.verdict, slower.us_per_step, slower.from_duration_us) == ("slower", 20.0, 20.0)


def test_a_replaced_kernel_is_paired_within_its_phase():
    base = kernels(("forward", "flash_attention", "s", 10.0), ("forward", "mm", "m", 5.0))
    head = kernels(("forward", "_softmax", "t", 30.0), ("forward", "mm", "m", 5.0))
    found = difference(base, head)
    assert len(found) == 1
    assert found[0].replaces == "flash_attention"
    assert found[0].us_per_step == 20.0


def test_a_kernel_that_vanished_is_fewer_launches():
    gone = difference(kernels(("forward", "cat", "s", 10.0)), kernels())[0]
    assert (gone.us_per_step, gone.verdict) == (-10.0, "fewer launches")


def test_clock_loss_with_all_kernels_scaled_alike_is_hardware():
    base = kernels(*[("forward", f"kernel_{name}", "s", 10.0) for name in "abcdef"])
    head = kernels(*[("forward", f"kernel_{name}", "s", 11.0) for name in "abcdef"])
    clocks = [{"telemetry": {"sm_clock_mhz": {"p50": clock}}} for clock in (1755, 1600)]
    found = explain(
        result(24.0, forward=10.0),
        result(26.4, forward=11.0),
        base_kernels=base,
        head_kernels=head,
        base_run=clocks[0],
        head_run=clocks[1],
    )
    assert found.cause == "hardware"
    assert "1755 → 1600 MHz" in found.reason


def test_one_stretched_call_does_not_decide_a_kernels_time():
    rows = [KernelCall("forward", "mm", "s", duration) for duration in (10.0, 10.0, 10.0, 10.0, 5000.0)]
    assert table(rows, steps=5)["us_per_step"] == [10.0]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float)",
         "at::native::vectorized_elementwise_kernel"),
        ("triton_poi_fused_add_gelu_3", "triton_poi_fused_add_gelu"),
        ("sm90_xmma_gemm_bf16_128x256x64_warpgroup", "sm90_xmma_gemm_bf16_warpgroup"),
        ("aten::mm", "aten::mm"),
    ],
)  # fmt: skip
def test_names_of_two_builds_become_one(name, plain):
    assert normalised(name) == plain


@pytest.mark.parametrize(
    ("question", "fine", "warn", "fail"),
    [
        ("data", 0.05, 0.051, 0.101),
        ("busy", 0.80, 0.79, 0.49),
        ("comm", 0.15, 0.151, 0.201),
        ("roof", 0.80, 0.79, 0.49),
        ("memory", 0.95, 0.96, 1.01),
        ("scaling", 0.80, 0.737, 0.69),
        ("net", 0.80, 0.79, 0.49),
    ],
)
def test_every_question_has_its_published_band(question, fine, warn, fail):
    band = BANDS[question]
    assert [band.level(value) for value in (fine, warn, fail)] == ["ok", "warn", "fail"]
    assert band.level(band.warn) == "ok", "the limit itself is still fine"


GIB = 2**30
FAULTS = {
    "data": ({"data_wait_ms": 3.0}, "data_bound"),
    "busy": ({"device_busy": 0.4}, "launch_bound"),
    "comm": ({"exposed_communication_ms": 6.0}, "communication_bound"),
    "memory": ({"peak_reserved_bytes": 141.0 * GIB, "alloc_retries": 2.0}, "memory_pressure"),
    "scaling": ({"scaling_efficiency": 0.6}, "scaling_loss"),
    "net": ({"busbw_gb_per_s": 200.0}, "network"),
}


def with_metrics(**values):
    made = result(24.0)
    made["measurements"] += [measurement(name, value, "gate") for name, value in values.items()]
    return classify(made, total_memory_bytes=141.0 * GIB, link_gb_per_s=450.0)


@pytest.mark.parametrize("question", FAULTS)
def test_a_fault_of_every_question_has_its_class(question):
    values, verdict = FAULTS[question]
    assert with_metrics(**values)["class"] == verdict


def test_questions_are_asked_in_order_and_later_faults_become_flags():
    everything = {name: value for values, _ in FAULTS.values() for name, value in values.items()}
    found = with_metrics(**everything)
    assert found["class"] == "data_bound"
    assert found["flags"] == ["busy", "comm", "memory", "scaling", "net"]
    assert [line.split()[0] for line in found["tree"]] == ["data", "busy", "comm", "memory", "scaling", "net"]


def test_low_use_of_memory_is_no_defect():
    assert with_metrics(peak_reserved_bytes=10.0 * GIB, alloc_retries=0.0) == {
        "class": "unclassified",
        "flags": [],
        "tree": ["memory ok (7%)"],
    }


def test_the_bus_bandwidth_of_the_worked_example_is_a_fault_of_the_network():
    from benchmarks.analysis.bandwidth import Operation, bus_gb_per_s

    found = with_metrics(busbw_gb_per_s=bus_gb_per_s(Operation.ALL_REDUCE, 8, GIB, 0.0152))
    assert found["tree"] == ["net fail (27%)"]
    assert found["class"] == "network"


def moved(counter=None, base_kernels=None, head_kernels=None, clocks=None, **phases):
    """The explanation of one change on top of a plain step."""
    plain = {"forward": 10.5, "backward": 9.0, "optimizer": 4.0, "other": 0.5}
    grown = {**plain, **{name: plain.get(name, 0.0) + more for name, more in phases.items()}}
    base, head = result(sum(plain.values()), **plain), result(sum(grown.values()), **grown)
    if counter:
        for side, value in ((base, counter[1]), (head, counter[2])):
            side["measurements"].append({**measurement(counter[0], value, "gate"), "exact": True})
    runs = [{"telemetry": {"sm_clock_mhz": {"p50": clock}}} for clock in clocks or (1755, 1755)]
    return explain(base, head, base_kernels=base_kernels, head_kernels=head_kernels, base_run=runs[0], head_run=runs[1])


def six_kernels(factor=1.0, only=None):
    names = ("sm90_gemm_a", "sm90_gemm_b", "softmax", "layer_norm", "gelu", "adam")
    return kernels(*[("forward", name, "s", 10.0 * (factor if (only or name) in name else 1.0)) for name in names])


RULES = {
    "graph breaks": (dict(counter=("graph_breaks", 0, 3), forward=2.0), "code", "graph_breaks 0 → 3"),
    "recompiles": (dict(counter=("recompiles", 0, 2), forward=2.0), "code", "recompiles 0 → 2"),
    "host syncs": (dict(counter=("host_syncs", 0, 8), forward=2.0), "code", "host_syncs 0 → 8"),
    "allocator": (dict(counter=("alloc_retries", 0, 5), forward=2.0), "code", "alloc_retries 0 → 5"),
    "loader": (dict(data_wait=3.0), "code", "the loader"),
    "overlap": (dict(exposed_communication=4.0), "code", "exposed communication grew"),
    "overlap, by its kernels": (
        dict(base_kernels=six_kernels(), head_kernels=six_kernels(), exposed_communication=4.0),
        "code",
        "overlap lost",
    ),
    "topology": (
        dict(
            base_kernels=kernels(("backward", "ncclDevKernel_AllReduce", "s", 4000.0)),
            head_kernels=kernels(("backward", "ncclDevKernel_AllReduce", "s", 8000.0)),
            exposed_communication=4.0,
        ),
        "code",
        "the collectives themselves take +4000 us",
    ),
    "host": (dict(idle=3.0), "code", "the host cannot keep up"),
    "clock": (
        dict(clocks=(1755, 1500), base_kernels=six_kernels(), head_kernels=six_kernels(1.17), forward=1.8),
        "hardware",
        "all kernels scaled alike",
    ),
    "library": (
        dict(base_kernels=six_kernels(), head_kernels=six_kernels(1.3, "gemm"), forward=3.0),
        "code",
        "only matrix products are slower, +6 us",
    ),
    "kernel": (
        dict(base_kernels=six_kernels(), head_kernels=six_kernels(1.3, "softmax"), forward=3.0),
        "code",
        "softmax in forward: slower",
    ),
    "operations": (dict(counter=("ops_per_step", 100, 160), backward=2.0), "code", "100 → 160 operations"),
    "plain": (dict(backward=2.0), "code", "backward grew"),
    "nothing": ({}, "noise", "leaves room for zero"),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_names_its_cause_and_its_evidence(name):
    change, cause, evidence = RULES[name]
    found = moved(**change)
    assert found.cause == cause
    assert evidence in found.reason


def test_a_lower_clock_with_only_one_slower_kernel_is_not_blamed_on_the_hardware():
    one = six_kernels(1.3, "softmax")
    found = moved(clocks=(1755, 1500), base_kernels=six_kernels(), head_kernels=one, forward=3.0)
    assert found.cause == "code"
