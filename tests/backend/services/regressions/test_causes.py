"""Two commits measured by different workers: what boxes usually differ by is no difference of the commits."""

from typing import Any

import pytest

from backend.services.comparison.commits import compare_commits

OWN = {"box-a": 1.0, "box-b": 1.1}


@pytest.fixture
def two_boxes(loom: Any) -> Any:
    """Every other commit on a box that is 10 % slower; 8 % more time from commit 30 on; box-c has run once."""
    for position in range(37):
        worker = "box-c" if position == 36 else ("box-a", "box-b")[position % 2]
        level = OWN.get(worker, 1.2) * (1.08 if position >= 30 else 1.0)
        throughput = loom.measurement("rate", 1000 / level, seed=position, unit="1/s", direction="higher")
        loom.deliver(
            loom.run_of(position, [loom.measurement("step_ms", 10 * level, seed=position), throughput], worker=worker)
        )
    return loom


def compared(loom: Any, base: int, head: int) -> tuple[dict[str, tuple[str, float]], int]:
    found = compare_commits(loom.connection, "northsea/loom", loom.sha_of(base), loom.sha_of(head))
    return {row.metric: (row.verdict, row.change) for row in found.rows}, found.levelled


@pytest.mark.parametrize(
    ("base", "head", "verdict", "change", "levelled"),
    [
        (20, 21, "unchanged", 0.0, 2),
        (21, 20, "unchanged", 0.0, 2),
        (20, 31, "regression", 0.08, 2),
        (31, 20, "improvement", -0.074, 2),
        (20, 22, "unchanged", 0.0, 0),  # one box: nothing to take off
        (21, 31, "regression", 0.08, 0),
        (34, 36, "regression", 0.2, 0),  # of the third nothing is known yet
    ],
)
def test_the_boxes_own_distance_is_taken_off_where_it_is_known(
    two_boxes: Any, base: int, head: int, verdict: str, change: float, levelled: int
) -> None:
    found, taken_off = compared(two_boxes, base, head)
    near = pytest.approx(change, abs=0.015)
    assert found == {"step_ms": (verdict, near), "rate": (verdict, near)}
    assert taken_off == levelled
