"""Lists as files: what a page lists, all of it, under its filters; and by a button of the page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet
import pytest
from frontend_site import Site
from playwright.sync_api import expect
from sqlalchemy import text
from starlette.requests import Request

from backend.services.base import projects
from backend.services.base.errors import NotFound
from frontend import frame
from frontend.pages import files

PROJECT = "northsea/loom"


def rows_of(site: Site, address: str) -> list[dict[str, str]]:
    answer = site.client.get(address)
    assert answer.status_code == 200 and "attachment" in answer.headers["content-disposition"], answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_the_file_of_the_regressions_holds_those_that_pass_the_filters_of_its_address(loom: Site) -> None:
    listed = site_regressions(loom)
    rows = rows_of(loom, f"/regressions.csv?project={PROJECT}")
    assert {int(row["id"]) for row in rows} >= {each["id"] for each in listed if each["state"] == "confirmed"}
    moe = rows_of(loom, f"/regressions.csv?project={PROJECT}&suite=moe&state=confirmed")
    assert {row["suite"] for row in moe} == {"moe"} and all(row["first_bad"] for row in moe)
    assert rows_of(loom, f"/regressions.csv?project={PROJECT}&min_change=1000") == []


def site_regressions(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.client.get("/api/v1/regressions", params={"project": PROJECT}).json()["items"]
    return found


def test_the_file_of_the_series_holds_more_than_one_page_of_them(loom: Site) -> None:
    number = len(rows_of(loom, f"/series.csv?project={PROJECT}&role=any"))
    gates = rows_of(loom, f"/series.csv?project={PROJECT}")
    assert number > len(gates) > 0 and {row["role"] for row in gates} == {"gate"}
    parquet = loom.client.get(f"/series.parquet?project={PROJECT}").content
    assert pyarrow.parquet.read_table(io.BytesIO(parquet)).num_rows == len(gates)


def test_the_file_of_a_comparison_says_which_commits_were_compared(loom: Site) -> None:
    base, head = loom.commits[PROJECT][17].sha, loom.commits[PROJECT][18].sha
    rows = rows_of(loom, f"/compare.csv?project={PROJECT}&base={base}&head={head}")
    assert {(row["base_commit"], row["head_commit"]) for row in rows} == {(base, head)}
    assert "regression" in {row["verdict"] for row in rows} and "unchanged" not in {row["verdict"] for row in rows}
    every = rows_of(loom, f"/compare.csv?project={PROJECT}&base={base}&head={head}&all=1")
    assert len(every) > len(rows)


def test_a_wrong_filter_is_refused_and_an_unknown_ending_is_not_a_page(loom: Site) -> None:
    assert loom.client.get(f"/series.csv?project={PROJECT}&verdict=pink").status_code == 400
    assert loom.client.get(f"/regressions.xlsx?project={PROJECT}").status_code in (404, 422)


@pytest.mark.parametrize("query", [f"project={PROJECT}", ""], ids=["named", "busy last"])
@pytest.mark.parametrize(
    "change", ["UPDATE project SET private = true", "DELETE FROM project"], ids=["became private", "is gone"]
)
def test_a_file_of_a_project_that_becomes_private_or_goes_meanwhile_breaks_off(
    own_site: Site, change: str, query: str
) -> None:
    with own_site.engine.begin() as c:
        projects.save_project(c, PROJECT, now=datetime.now(UTC))
    app = own_site.server.config.app
    asked = {"type": "http", "method": "GET", "path": "/series.csv", "query_string": query.encode()}
    request = Request({**asked, "headers": [], "app": app})
    pages = iter([(["first"], "more"), (["second"], "more"), (["third"], None)])
    with own_site.engine.connect() as c:
        visit = frame.visit(request, c, frame.identified(request, c))
        found = files._pages(visit, visit.project(), lambda *_: next(pages))
    assert [next(found), next(found)] == ["first", "second"]
    with own_site.engine.begin() as c:
        c.execute(text(change))
    with pytest.raises(NotFound):
        next(found)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("/regressions", r"regressions-northsea-loom\.(csv|parquet)"),
        ("/series", r"series-northsea-loom\.(csv|parquet)"),
        ("/compare", r"compare-[0-9a-f]{12}-[0-9a-f]{12}\.(csv|parquet)"),
        ("/series/1", r"series-1\.(csv|parquet)"),
        ("run", r".+\.(csv|parquet)"),
    ],
)
def test_a_button_exports_both_formats_under_a_name(
    loom: Site, visit: Callable[..., Any], page: str, name: str
) -> None:
    if page == "run":
        board = loom.client.get("/api/v1/series/1/points").json()
        page = f"/runs/{board['run_id'][-1]}"
    opened = visit(loom, width=390).open(page)
    for kind in ("CSV", "Parquet"):
        opened.locator("main summary", has_text="Export").click()
        with opened.expect_download() as download:
            opened.get_by_role("link", name=kind, exact=True).click()
        assert re.fullmatch(name, download.value.suggested_filename)
        opened.reload()
    expect(opened.locator("main")).to_be_visible()
