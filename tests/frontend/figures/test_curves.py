"""Curves of a suite as data, and which parameter of the variants makes a curve."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from plotly import graph_objects

from backend.services.reports.suites import Sweep, in_common, sweeps_of
from backend.store.reports.suites import SeriesStatus
from frontend.figures.curves import OUTLINE_PX, Ceiling, curves_figure
from frontend.figures.references import PUBLISHED, beside


def standing(benchmark: str, variant: dict[str, Any], metric: str, value: float, **more: Any) -> SeriesStatus:
    shape: dict[str, Any] = {
        "series_id": 7, "testbed": "h200-sxm", "suite_version": "1.1.0", "preset": "full", "unit": "1/s",
        "direction": "higher", "role": "derived",
        "exact": False, "baseline": value * 0.9, "verdict": "unchanged", "change": 0.0, "low": None, "high": None,
        "red": False, "regression_id": None, "sha": "a" * 40, "run_id": "R",
        "measured_at": datetime(2026, 11, 20, tzinfo=UTC),
    }  # fmt: skip
    key = ",".join(f"{name}={value}" for name, value in sorted(variant.items()))
    names = {"benchmark": benchmark, "variant": variant, "variant_key": key, "metric": metric, "value": value}
    return SeriesStatus(**(shape | names | more))


def only(standings: list[SeriesStatus]) -> Sweep:
    (sweep,) = sweeps_of(standings)
    return sweep


def drawn(figure: dict[str, Any]) -> dict[str, Any]:
    """The traces by name; Plotly itself accepts the figure once names of colours are colours."""

    def coloured(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("--"):
            return "#123456"
        if isinstance(value, dict):
            return {name: coloured(each) for name, each in value.items() if name != "links"}
        return [coloured(each) for each in value] if isinstance(value, list) else value

    graph_objects.Figure(coloured(figure))
    return {trace["name"]: trace for trace in figure["data"]}


def test_a_ladder_is_bars_in_the_order_of_its_rungs() -> None:
    rungs = ["r10_largest_batch", "r00_fp32", "r07_flash"]
    ladder = [standing("gpt.ladder", {"rung": rung}, "tokens_per_s", 1e5 / (n + 1)) for n, rung in enumerate(rungs)]
    sweep = only(ladder)
    assert sweep.named
    traces = drawn(curves_figure(sweep))
    (bars,) = (trace for name, trace in traces.items() if trace["type"] == "bar" and "baseline" not in name)
    assert bars["x"] == ["r00_fp32", "r07_flash", "r10_largest_batch"]
    assert bars["y"] == [5e4, 1e5 / 3, 1e5]
    assert "×0.667 of r00" in bars["hovertext"][1]
    assert bars["links"][0].startswith("/series/7?commit=")


def test_published_rungs_stand_at_the_rungs_of_the_same_number() -> None:
    sweep = only([standing("gpt.ladder", {"rung": name}, "tokens_per_s", 3e4) for name in ("r00_fp32", "r07_flash")])
    near, far = beside("gpt.ladder", "tokens_per_s", 3e4)
    assert (len(near), far) == (1, [])
    trace = drawn(curves_figure(sweep, near))["one A100, published"]
    assert (trace["x"], trace["y"]) == (["r00_fp32", "r07_flash"], [12525, 91901])


def test_figures_of_a_far_faster_machine_are_told_and_not_drawn() -> None:
    near, far = beside("gpt.ladder", "tokens_per_s", 1_000.0)
    assert near == []
    assert [each.name for each in far] == ["one A100, published"]
    assert all(each.source for each in PUBLISHED)


def test_attention_is_a_curve_over_length_for_each_backend_under_the_ceiling() -> None:
    every = [
        standing("attn.train", {"backend": backend, "length": n}, "tflops", speed * n / 1000, unit="TFLOP/s")
        for backend, speed in (("flash", 90.0), ("math", 20.0))
        for n in (512, 2048, 8192)
    ]
    sweep = only(every)
    figure = curves_figure(sweep, ceilings=[Ceiling(name="measured gemm bf16", value=780.0)])
    traces = drawn(figure)
    assert traces["backend=flash"]["x"] == [512.0, 2048.0, 8192.0]
    assert traces["backend=math"]["marker"]["symbol"] != traces["backend=flash"]["marker"]["symbol"]
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert figure["layout"]["xaxis"]["ticktext"] == ["512", "2k", "8k"]
    assert figure["layout"]["shapes"][0]["y0"] == 780.0
    assert figure["layout"]["annotations"][0]["text"].startswith("measured gemm bf16")
    assert figure["layout"]["yaxis"]["range"][1] > 780.0


def test_a_collective_is_bus_bandwidth_over_the_sizes_of_one_result() -> None:
    """1 GiB in 15.2 ms on 8 ranks of an all_reduce is 123.6 GB/s."""
    variant = {"ranks": 8, "placement": "in_place"}
    every = [
        standing("coll.all_reduce", variant, "time_us_1_gib", 15_200.0, unit="us", direction="lower"),
        standing("coll.all_reduce", variant, "time_us_64_kib", 30.0, unit="us", direction="lower"),
        standing("coll.all_reduce", variant, "latency_us", 11.0, unit="us", direction="lower"),
    ]
    points = only(every).curves[0].points
    assert [point.x for point in points] == [65_536.0, 2.0**30]
    assert round(points[1].value, 1) == 123.6
    assert points[1].baseline is not None
    assert points[1].baseline > points[1].value  # it took 10 % less time before
    trace = drawn(curves_figure(only(every)))["busbw_gb_per_s"]
    assert "1.00 GiB" in trace["hovertext"][1]


def test_one_rank_moves_nothing_over_a_link_and_makes_no_curve() -> None:
    assert sweeps_of([standing("coll.all_reduce", {"ranks": 1}, "time_us_1_mib", 9.0, unit="us")]) == []


def test_scaling_is_a_share_over_ranks_with_the_levels_of_concern() -> None:
    every = [
        standing("gpt.ddp", {"ranks": n, "strategy": "ddp"}, "scaling_efficiency", 1 - n / 40, unit="ratio")
        for n in (2, 4, 8)
    ]
    near, _ = beside("gpt.ddp", "scaling_efficiency", 0.95)
    figure = curves_figure(only(every), near)
    assert [shape["y0"] for shape in figure["layout"]["shapes"]] == [0.8, 0.7]
    assert figure["layout"]["yaxis"]["tickformat"] == ".0%"


def test_variants_of_a_benchmark_of_ones_own_are_bars_by_what_differs() -> None:
    every = [
        standing("tokenizer.encode", {"text": text, "threads": 4}, "latency_ms", ms, unit="ms", role="gate")
        for text, ms in (("code", 4.0), ("prose", 3.0))
    ]
    sweep = only(every)
    assert (sweep.parameter, sweep.metric, sweep.named) == ("text", "latency_ms", True)
    assert in_common(every) == {"threads": 4, "preset": "full"}
    assert [point.x for point in sweep.curves[0].points] == ["code", "prose"]


def test_a_lone_variant_makes_no_curve() -> None:
    assert sweeps_of([standing("gpt.train", {"dtype": "bf16"}, "tokens_per_s", 1.0)]) == []


def test_what_regressed_is_outlined_in_red_and_keeps_its_colour() -> None:
    every = [
        standing("a.b", {"n": n}, "step_ms", 5.0 + n, unit="ms", role="gate", verdict=verdict)
        for n, verdict in ((1, "unchanged"), (2, "regression"))
    ]
    (trace,) = (t for t in curves_figure(only(every))["data"] if "baseline" not in t["name"])
    assert trace["marker"]["color"] == "--v1"
    assert trace["marker"]["line"] == {"color": ["--v1", "--reg"], "width": [0.0, OUTLINE_PX]}


def test_a_baseline_lies_across_the_bar_of_its_own_variant() -> None:
    every = [
        standing("gpt.ladder", {"rung": rung, "mode": mode}, "tokens_per_s", 1e5)
        for rung in ("r00_fp32", "r01_bf16")
        for mode in ("compile", "eager")
    ]
    traces = drawn(curves_figure(only(every)))
    bars = {name: trace["offsetgroup"] for name, trace in traces.items() if "baseline" not in name}
    assert len(set(bars.values())) == 2
    for name, group in bars.items():
        mark = traces[f"{name}, baseline"]
        assert mark["offsetgroup"] == group
        assert [low + size / 2 for low, size in zip(mark["base"], mark["y"], strict=True)] == [9e4, 9e4]


def test_names_from_a_commit_are_text_on_the_axis() -> None:
    every = [standing("a.b", {"case": case}, "step_ms", 5.0, unit="ms") for case in ("<b>x</b>", "y")]
    figure = curves_figure(only(every))
    assert "&lt;b&gt;x&lt;/b&gt;" in figure["layout"]["xaxis"]["ticktext"][0]
    assert "<b>x</b>" not in str([trace.get("hovertext") for trace in figure["data"]])
