"""Evidence as data and in words: kernels that changed, rooflines, sessions."""

from __future__ import annotations

from typing import Any

import pytest

from backend.services.runs.kernels import difference, read_table
from backend.services.runs.profiles import Ceilings, RooflinePoint, ceilings_of, roofline_point
from frontend.figures.confirming import MeasuredSession, sessions_svg
from frontend.figures.roofline import Dot, roofline_figure, said


def table(*rows: tuple[str, str, str, float, float]) -> Any:
    """Rows of (phase, name, shape, calls, µs)."""
    phase, name, shape, calls, us = (list(column) for column in zip(*rows, strict=True))
    columns = {"phase": phase, "name": name, "shape": shape, "calls_per_step": calls, "us_per_step": us}
    return {"schema": "tidemark.kernels/1", "steps": 6, **columns}


def kernels(*rows: tuple[str, str, str, float, float]) -> Any:
    found = read_table(table(*rows))
    assert found is not None
    return found


def test_a_kernel_that_takes_the_place_of_another_is_named_with_it() -> None:
    before = kernels(("forward", "flash_attention", "64,64", 2, 100.0), ("forward", "gemm", "8,8", 4, 40.0))
    after = kernels(("forward", "softmax", "64,64", 2, 260.0), ("forward", "gemm", "8,8", 4, 40.0))
    found = difference(before, after)
    assert [(each.name, each.words, each.change_us) for each in found.changes] == [
        ("softmax", "replaces flash_attention", 160.0)
    ]
    assert (found.before_us, found.after_us) == (140.0, 300.0)


def test_more_calls_and_slower_calls_are_told_apart() -> None:
    before = kernels(("forward", "copy", "8", 4, 40.0), ("backward", "gemm", "8", 4, 40.0))
    after = kernels(("forward", "copy", "8", 12, 120.0), ("backward", "gemm", "8", 4, 60.0))
    assert {each.name: each.words for each in difference(before, after).changes} == {
        "copy": "more calls",
        "gemm": "each call slower",
    }


def test_shapes_of_one_kernel_are_added_and_the_rest_is_summed() -> None:
    before = kernels(*(("forward", f"k{n}", "s", 1.0, 10.0) for n in range(20)), ("forward", "k0", "t", 1.0, 5.0))
    after = kernels(*(("forward", f"k{n}", "s", 1.0, 11.0 + n) for n in range(20)))
    found = difference(before, after, at_most=3)
    assert [each.name for each in found.changes] == ["k19", "k18", "k17"]
    assert found.rest == 17
    assert round(sum(each.change_us for each in found.changes) + found.rest_us, 6) == found.after_us - found.before_us


def test_what_is_no_kernel_table_is_none() -> None:
    good = table(("forward", "gemm", "8", 4, 40.0))
    assert read_table(good) is not None
    for broken in (
        [], {}, "text", good | {"schema": "other"}, good | {"name": ["a", "b"]}, good | {"us_per_step": ["much"]},
        good | {"us_per_step": [float("nan")]}, {name: value for name, value in good.items() if name != "phase"},
    ):  # fmt: skip
        assert read_table(broken) is None, broken


def test_foreign_rooflines_that_are_no_numbers_are_none() -> None:
    assert roofline_point({"flop_per_byte": "50", "achieved_tflops": 0.1}, None) is None
    assert roofline_point({"flop_per_byte": 50, "achieved_tflops": 0}, None) is None
    assert roofline_point(None, None) is None
    assert ceilings_of({"gemm_bf16_tflops": True, "copy_gb_per_s": 3}) is None
    assert ceilings_of({"gemm_bf16_tflops": 780, "hbm_copy_gb_per_s": 4200}) == Ceilings(
        tflops=780.0, gb_per_s=4200.0, tflops_name="gemm_bf16_tflops", gb_per_s_name="hbm_copy_gb_per_s"
    )


@pytest.mark.parametrize(
    ("intensity", "tflops", "said_of"),
    [(400, 315, "43 % of the 728"), (400, 283, "39 % of the 728"), (100, 210, "50 % of the 420")],
)
def test_the_share_of_a_ceiling_is_that_of_the_numbers_beside_it(intensity: float, tflops: float, said_of: str) -> None:
    """Whatever share the run told: of compute at 728, and of what memory lets through at a low intensity."""
    ceilings = ceilings_of({"gemm_bf16_tflops": 728, "copy_gb_per_s": 4200})
    point = roofline_point({"flop_per_byte": intensity, "achieved_tflops": tflops, "share_of_ceiling": 0.43}, ceilings)
    assert point is not None
    words = said(Dot(group="moe.layer", label="before", point=point, link="/runs/R")).replace("\u202f", " ")
    assert words == f"before: {tflops} TFLOP/s, {said_of} above it"


def dot(label: str, intensity: float, tflops: float, **more: Any) -> Dot:
    point = RooflinePoint(
        flop_per_byte=intensity, achieved_tflops=tflops, roof_tflops=None, share_of_ceiling=0.41, bound="compute"
    )
    return Dot(group="moe.layer", label=label, point=point, link="/runs/R", **more)


def test_the_roof_bends_where_both_ceilings_meet() -> None:
    ceilings = Ceilings(tflops=780.0, gb_per_s=4200.0, tflops_name="gemm_bf16_tflops", gb_per_s_name="copy_gb_per_s")
    figure = roofline_figure([dot("before", 200, 322.0, hollow=True), dot("after", 200, 300.0)], ceilings)
    roof = figure["data"][0]
    assert roof["x"][1] == 1000 * 780 / 4200
    assert roof["y"][1:] == [780.0, 780.0]
    assert roof["y"][0] < 780
    hollow, filled = figure["data"][1:]
    assert (hollow["marker"]["symbol"], filled["marker"]["symbol"]) == ("circle-open", "circle")
    assert "41\u202f% of its ceiling" in filled["hovertext"][0]


def test_a_roofline_without_ceilings_shows_the_steps_alone() -> None:
    figure = roofline_figure([dot("<b>x</b>", 3.0, 0.02)], None)
    assert [trace["name"] for trace in figure["data"]] == ["moe.layer"]
    assert "&lt;b&gt;x" in figure["data"][0]["hovertext"][0]


def test_every_process_of_a_session_is_a_dot() -> None:
    shape: dict[str, Any] = {"title": "C1 h200-02", "sub": "18 Nov", "verdict": "▼ 7.2 %", "interval": "6.3 … 8.2"}
    judged = MeasuredSession(base=(24.1, 24.2), head=(25.9, 26.0, 26.1), counts=True, worse=True, **shape)
    held = MeasuredSession(base=(25.0,), head=(26.4,), counts=False, worse=False, **shape)
    picture = sessions_svg([judged, held], "ms")
    assert picture.count("<circle") == 7
    assert picture.count('fill="none" stroke="var(--qua-line)"') == 2
    assert "base 24.1" in picture
    assert sessions_svg([MeasuredSession(base=(), head=(), counts=True, worse=False, **shape)], "ms") == ""
