"""The trend as data."""

import re
from typing import NamedTuple

from frontend.figures.phases import PhaseBar, growth, phases_svg
from frontend.figures.small import distribution, forest, sparkline
from frontend.figures.trend import ChangeMark, Marker, Trend, escaped_all, hover_text, lift, trend_figure
from frontend.render import script_json


def trend(**changes: object) -> Trend:
    count = 8
    shape: dict[str, object] = {
        "unit": "ms",
        "metric": "step_ms",
        "x": [float(i) for i in range(count)],
        "value": [100.0] * 4 + [120.0] * 4,
        "ticks": [f"sha{i}" for i in range(count)],
        "hover": [f"point {i}" for i in range(count)],
        "links": [f"/series/1?commit={i}" for i in range(count)],
        "state": ["unchanged"] * 4 + ["regression"] * 3 + ["quarantined"],
        "smoothed": [100.0] * 4 + [101.0, 119.0, 120.0, 120.0],
        "baseline": [None, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0],
        "band_low": [None] + [98.0] * 7,
        "band_high": [None] + [102.0] * 7,
        "steps": [ChangeMark(at=4.0, range_from=3.0, label="▼ 20 % sha4", worse=True, before=100.0, after=120.0)],
        "after": 4.0,
        "threshold": 105.0,
        "anchor": 99.0,
        "markers": [Marker(at=2.0, label="torch <b>2.14</b>")],
    }
    return Trend(**(shape | changes))  # type: ignore[arg-type]


def traces(name: str, figure: dict[str, object]) -> list[dict[str, object]]:
    data = figure["data"]
    assert isinstance(data, list)
    return [each for each in data if each["name"] == name]


def test_raw_points_are_one_trace_whose_points_lead_somewhere() -> None:
    (raw,) = traces("runs", trend_figure(trend()))
    assert raw["links"] == [f"/series/1?commit={i}" for i in range(8)]
    marker = raw["marker"]
    assert isinstance(marker, dict)
    assert marker["color"][3:5] == ["--c-raw", "--reg"]
    assert marker["symbol"][-1] == "diamond"


def test_the_smoothed_line_breaks_at_the_onset_and_is_red_after_it() -> None:
    before, after = traces("smoothed", trend_figure(trend()))
    assert before["line"] == {"width": 1.8, "color": "--c-line"}
    assert after["line"] == {"width": 1.8, "color": "--reg"}
    assert after["x"] == [4.0, 5.0, 6.0, 7.0]


def test_the_smoothed_line_does_not_draw_its_memory_of_the_level_before() -> None:
    _, after = traces("smoothed", trend_figure(trend()))
    assert after["y"] == [None, 119.0, 120.0, 120.0]


def test_the_band_begins_where_the_baseline_does() -> None:
    low, high, middle = traces("baseline", trend_figure(trend()))
    assert low["x"] == high["x"] == middle["x"] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert (low["y"], high["fill"]) == ([98.0] * 7, "tonexty")


def test_change_point_threshold_anchor_and_environment_are_drawn_and_named() -> None:
    layout = trend_figure(trend())["layout"]
    assert isinstance(layout, dict)
    texts = [note["text"] for note in layout["annotations"]]
    assert "▼ 20 % sha4" in texts
    assert "threshold 105" in texts
    assert "anchor 99.0" in texts
    kinds = [shape["type"] for shape in layout["shapes"]]
    assert (kinds.count("rect"), kinds.count("line")) == (1, 4)


def test_what_the_reader_holds_it_against_is_a_line_of_its_own_with_its_name() -> None:
    layout = trend_figure(trend(reference=(97.5, "ab<b>12")), 360)["layout"]
    assert any(shape.get("y0") == 97.5 and shape["line"]["dash"] == "longdash" for shape in layout["shapes"])
    assert any(note["text"] == "ab&lt;b&gt;12 97.5" for note in layout["annotations"])
    assert not any(shape["line"].get("dash") == "longdash" for shape in trend_figure(trend(), 360)["layout"]["shapes"])


def test_foreign_text_is_escaped_for_plotly_too() -> None:
    layout = trend_figure(trend())["layout"]
    assert isinstance(layout, dict)
    assert any("&lt;b&gt;2.14" in note["text"] for note in layout["annotations"])
    assert hover_text('<a href="javascript:x">') == "&lt;a href=&quot;javascript:x&quot;&gt;"


def test_colours_are_names_of_tokens_and_nothing_else() -> None:
    def colours(value: object) -> list[str]:
        if isinstance(value, dict):
            return [found for each in value.values() for found in colours(each)]
        if isinstance(value, list):
            return [found for each in value for found in colours(each)]
        return [value] if isinstance(value, str) and value.startswith(("#", "rgb")) else []

    assert set(colours(trend_figure(trend()))) == {"rgba(0,0,0,0)"}


def test_a_series_without_anything_but_points_still_has_a_chart() -> None:
    bare = trend(smoothed=(), baseline=(), band_low=(), band_high=(), steps=(), markers=(), threshold=None, anchor=None)
    figure = trend_figure(bare)
    assert [trace["name"] for trace in figure["data"]] == ["runs"]


PHASES = [
    PhaseBar(name="other", before=0.1, after=0.1),
    PhaseBar(name="forward", before=8.0, after=10.0),
    PhaseBar(name="backward", before=12.0, after=12.5),
]


def test_phases_stand_in_the_order_of_a_step_with_their_share_of_the_loss() -> None:
    shares = [(phase.name, round(share, 2)) for phase, share in growth(PHASES)]
    assert shares == [("forward", 0.8), ("backward", 0.2), ("other", 0.0)]


def test_the_picture_of_phases_says_its_totals() -> None:
    picture = str(phases_svg(PHASES, "a71d0b4", "<9f3c2e1>"))
    assert "20.10 ms" in picture
    assert "22.60 ms" in picture
    assert "&lt;9f3c2e1&gt;" in picture
    assert "<9f3c2e1>" not in picture


class Change(NamedTuple):
    change: float | None
    low: float | None = None
    high: float | None = None


def test_small_pictures_survive_flat_and_missing_data() -> None:
    assert str(sparkline([])) == ""
    assert "polyline" in str(sparkline([1.0, 1.0, 1.0]))


def test_half_a_percent_of_noise_is_nearly_a_flat_line() -> None:
    def height(values: list[float]) -> float:
        found = [float(point.partition(",")[2]) for point in re.findall(r"[\d.]+,[\d.]+", str(sparkline(values)))]
        return max(found) - min(found)

    assert height([100.0, 100.5, 100.0, 100.4]) < 3
    assert height([100.0, 120.0]) > 15
    assert str(distribution([], [], "ms")) == ""
    assert "median" in str(distribution([[1.0, 1.0]], [1.0], "ms"))
    assert str(forest(Change(None), 0.1, "slower")) == ""
    assert "off scale" in str(forest(Change(0.9, 0.8, 1.0), 0.1, "slower"))


def test_one_hostile_text_of_a_column_is_escaped_and_the_others_stay_as_they_are() -> None:
    assert escaped_all(["plain", "it's <b>", "\x1b[31mred"]) == ["plain", "it&#x27;s &lt;b&gt;", "␛[31mred"]
    assert escaped_all(["plain", "router: top-k"]) == ["plain", "router: top-k"]


def test_a_data_block_cannot_be_ended_by_what_it_holds() -> None:
    block = str(script_json({"text": "</script><!-- \u2028\u2029 é"}))
    assert block == '{"text":"\\u003c/script>\\u003c!-- \\u2028\\u2029 é"}'


def test_names_of_threshold_and_anchor_that_lie_close_stand_apart() -> None:
    close, far = trend(threshold=105.0, anchor=104.9), trend(threshold=119.0, anchor=99.0)
    assert lift(close, 340) >= 7
    assert lift(trend(threshold=104.9, anchor=105.0), 340) <= -7, "whichever lies below moves down"
    assert lift(far, 340) == lift(trend(anchor=None), 340) == 0
    shifts = {
        note["text"][:4]: note["yshift"] for note in trend_figure(close)["layout"]["annotations"] if "yshift" in note
    }
    assert shifts["thre"] == -shifts["anch"] > 0
