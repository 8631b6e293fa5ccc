"""How a project is doing, over time, from what was stored when its results came in."""

from datetime import timedelta
from typing import Any

import pytest

from backend.services.base.errors import NotFound
from backend.services.reports.trends import PassRate, TrendQuery, load_trends
from backend.store.base.commits import save_tags
from tests.backend.services.loom import Loom


def result_of(variant: str, status: str, **more: Any) -> dict[str, Any]:
    return {"benchmark": "gpt.train", "variant": {"dtype": variant}, "preset": "cpu", "status": status, **more}


def pass_rate(loom: Loom) -> PassRate:
    query = TrendQuery(project="northsea/loom", range="all")
    return load_trends(loom.connection, query, now=loom.now + timedelta(hours=1)).pass_rate


def test_the_pass_rate_is_that_of_the_newest_run_also_where_it_was_not_noted_with_it(loom: Loom) -> None:
    loom.history([100.0] * 12)
    measured = loom.run_of(12, [loom.measurement("step_ms", 100.0)])
    measured["results"] += [
        result_of("fp8", "not_applicable", error="no tensor cores"),
        result_of("fp16", "failed", error="out of memory"),
    ]
    loom.deliver(measured, now=loom.now + timedelta(minutes=1))
    noted = pass_rate(loom)
    assert (noted.applicable, noted.passed) == (2, 1)
    loom.rows("UPDATE run SET applicable = NULL, passed = NULL RETURNING id")
    assert pass_rate(loom) == noted


def test_a_base_before_any_date_that_a_result_may_have_is_no_moment(loom: Loom) -> None:
    loom.history([100.0] * 3)
    with pytest.raises(NotFound, match="'0001-01-01' is no commit"):
        load_trends(loom.connection, TrendQuery(project="northsea/loom", base="0001-01-01"), now=loom.now)


def test_a_tag_that_is_a_date_stands_for_its_commit_and_any_other_date_for_itself(loom: Loom) -> None:
    for position in range(4):
        loom.run(position, 100.0, commit_info={"at": f"2026-11-1{position}T10:00:00Z"})
    save_tags(loom.connection, loom.value("SELECT id FROM project"), {"2026-11-13": loom.sha_of(1)})

    def base(name: str) -> int | None:
        query = TrendQuery(project="northsea/loom", range="all", base=name)
        found = load_trends(loom.connection, query, now=loom.now).base
        return None if found is None else found.position

    assert (base("2026-11-13"), base("2026-11-12T12:00:00Z")) == (1, 2)
