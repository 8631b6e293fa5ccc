"""Labels of onsets on a strip of the Overview: none runs into another, and none is lost."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.services.reports.trend_grid import Mean
from backend.services.reports.trend_strips import Onset, Strip
from backend.services.reports.trends import Trends
from frontend.pages.overview_strips import PHONE_PX, USUAL_PX, at_base, flags

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
TRENDS = Trends(
    project="northsea/loom", testbed="cpu", granularity="commit", least=0.05, base=None, head=None,
    at=(BEGAN, BEGAN + timedelta(days=1000)),
)  # fmt: skip


def onset(day: int, change: float = 0.18) -> Onset:
    return Onset(
        at=BEGAN + timedelta(days=day), sha="4915c0e" * 5, change=change, series=1, state="confirmed",
        direction="regression", regression_id=day, owned=False,
    )  # fmt: skip


@given(st.lists(st.integers(0, 1000), unique=True, max_size=40), st.sampled_from((USUAL_PX, PHONE_PX)))
def test_labels_keep_apart_and_count_every_onset(days: list[int], axis_px: int) -> None:
    found = flags(TRENDS, [onset(day) for day in days], axis_px)
    spans = [flag.span for flag in found]
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert all(right <= 100 for _, right in spans)
    assert sum(1 + int(flag.text.partition("+")[2] or 0) for flag in found) == len(days)


def test_of_onsets_side_by_side_the_largest_is_named() -> None:
    (flag,) = flags(TRENDS, [onset(500, 0.06), onset(510, 0.3), onset(520, 0.1)])
    assert flag.text == "▼30 +2"
    assert flag.href == "/regressions/510"


@pytest.mark.parametrize(("direction", "base"), [("lower", 3.0), ("higher", 1.0 / 0.75)])
def test_the_axis_names_the_value_at_the_base_and_not_that_of_the_head(direction: str, base: float) -> None:
    mean = Mean(
        series=1, compared=1, change=0.5, low=None, high=None, slower=0, faster=1, line=(), band_low=(), band_high=()
    )
    strip = Strip(
        suite="moe", metric="step_ms", unit="ms", direction=direction, value=2.0, mean=mean, lines=(), onsets=()
    )
    assert at_base(strip) == pytest.approx(base)
