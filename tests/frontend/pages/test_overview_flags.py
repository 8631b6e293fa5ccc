"""Labels of onsets on a strip of the Overview: none runs into another, and none is lost."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from backend.services.reports.trend_strips import Onset
from backend.services.reports.trends import Trends
from frontend.pages.overview import flags

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


@given(st.lists(st.integers(0, 1000), unique=True, max_size=40))
def test_labels_keep_apart_and_count_every_onset(days: list[int]) -> None:
    found = flags(TRENDS, [onset(day) for day in days])
    spans = [flag.span for flag in found]
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert sum(1 + int(flag.text.partition("+")[2] or 0) for flag in found) == len(days)


def test_of_onsets_side_by_side_the_largest_is_named() -> None:
    (flag,) = flags(TRENDS, [onset(500, 0.06), onset(510, 0.3), onset(520, 0.1)])
    assert flag.text == "▼30 +2"
    assert flag.href == "/regressions/510"
