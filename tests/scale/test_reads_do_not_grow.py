"""What a page reads is a matter of what it shows, never of how long the project has been watched.

Two stores are filled with the same project, after two months and after ten. The server says of every statement
of every page and route what it touched: that neither the number of statements nor the blocks they touch grow, and that
no month is opened that the page does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from backend.api import create_api
from backend.services.base.config import ServiceConfig
from frontend.app import mount
from tests.bench.dataset import Filled, Shape, fill, settle
from tests.conftest import copy_of
from tests.scale.explained import Explained, Explaining
from tidemark.machine.postgres import EmbeddedPostgres
from tidemark.machine.valkey import EmbeddedValkey

SHAPE = Shape(suites=2, variants=5)
COMMITS = {"young": 1_500, "old": 7_500}
MOST_GROWTH = 1.5
SLACK_BLOCKS = 60
"""Indexes of a larger table are a level deeper, and a month may have begun in between."""
MOST_MONTHS = 3
"""The newest one; the one before, where the month has just begun; next month's, which is still empty."""


@dataclass(frozen=True)
class Site:
    """The service on one of the stores; `get` says what it took."""

    filled: Filled
    client: TestClient
    explaining: Explaining
    names: dict[str, str]

    def get(self, path: str) -> list[Explained]:
        """What the statements of a page or route did; the first answer, which also fills caches, is not counted."""
        path = path.format_map(self.names)
        for _ in range(2):
            with self.explaining.during() as heard:
                answer = self.client.get(path)
            assert answer.status_code == 200, f"{path}: {answer.text[:300]}"
        return heard


@pytest.fixture(scope="module")
def sites(
    template: str,
    postgres: EmbeddedPostgres,
    administer: Callable[[str], None],
    valkey: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Site]]:
    with copy_of(template, postgres, administer) as young, copy_of(template, postgres, administer) as old:
        directory = tmp_path_factory.mktemp("sites")
        made = {"young": site(young, COMMITS["young"], valkey, directory)}
        made["old"] = site(old, COMMITS["old"], valkey, directory)
        yield made
        for each in made.values():
            each.explaining.engine.dispose()


def site(url: str, commits: int, valkey: EmbeddedValkey, directory: Path) -> Site:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as c:
        filled = fill(c, replace(SHAPE, commits=commits))
        c.execute(text("INSERT INTO testbed (name) VALUES ('bench-idle')"))  # the project never ran there
        position = text("SELECT c.sha FROM branch_commit b JOIN commit c ON c.id = b.commit_id WHERE position = :n")
        names = {
            "head": filled.head,
            "base": str(c.scalar(position, {"n": commits - 20})),
            "series": str(filled.first_series_id + 3),
            "run": str(c.scalar(text("SELECT max(id) FROM run"))),
            "regression": str(c.scalar(text("SELECT max(id) FROM regression WHERE state <> 'fixed'"))),
        }
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        settle(c)
    explaining = Explaining(url)
    config = ServiceConfig(database_url=url, redis_url=valkey.url, data_dir=directory)
    app = create_api(config, explaining.engine)
    mount(app, config, explaining.engine)
    client = TestClient(app, base_url="http://127.0.0.1")
    return Site(filled, client, explaining, names)


# What each may ask at most: eight more than it asks, which a page that asks once for every row exceeds.
PAGES = {
    "/?project=bench/large&range=7d": 38,
    "/board?project=bench/large&lens=all": 32,
    "/board?project=bench/large&lens=all&granularity=day&range=7d": 25,
    "/regressions?project=bench/large": 24,
    "/regressions/{regression}": 57,
    "/series/{series}?range=7d": 31,
    "/suites?project=bench/large&range=7d": 41,
    "/suites/suite1?project=bench/large": 24,
    "/runs/{run}": 23,
    "/compare?project=bench/large&base={base}&head={head}": 29,
    "/workers?project=bench/large": 30,
    "/measuring?project=bench/large": 21,
    "/api/v1/board?project=bench/large&limit=50": 21,
    "/api/v1/board?project=bench/large&limit=10&granularity=day": 18,
    "/api/v1/series?project=bench/large": 13,
    "/api/v1/series/{series}": 13,
    "/api/v1/series/{series}/points?last=200": 13,
    "/api/v1/series/{series}/points?granularity=day&range=7d": 12,
    "/api/v1/series/{series}/explain?commit={base}": 19,
    "/api/v1/compare?project=bench/large&base={base}&head={head}": 17,
    "/api/v1/regressions?project=bench/large&state=open": 11,
    "/api/v1/regressions/{regression}": 19,
    "/api/v1/runs/{run}": 20,
    "/api/v1/commits/{head}/verdict?project=bench/large": 16,
    "/api/v1/queue": 12,
    "/api/v1/workers": 12,
    "/api/v1/projects": 10,
    "/badge/bench/large.svg": 11,
}


@pytest.mark.parametrize(("path", "most"), PAGES.items())
def test_a_page_asks_no_more_and_touches_no_more_after_ten_months_than_after_two(
    sites: dict[str, Site], path: str, most: int
) -> None:
    young, old = sites["young"].get(path), sites["old"].get(path)
    assert len(old) <= most, "\n".join(each.sql[:150] for each in old)
    assert len(old) <= len(young) + 2
    blocks = {name: sum(each.blocks for each in heard) for name, heard in (("young", young), ("old", old))}
    assert blocks["old"] <= MOST_GROWTH * blocks["young"] + SLACK_BLOCKS, (blocks, dearest(old))
    for each in old:
        assert len(each.months) <= MOST_MONTHS, (sorted(each.months), each.sql)


def dearest(heard: list[Explained]) -> list[tuple[int, str]]:
    return sorted(((each.blocks, each.sql[:200]) for each in heard), reverse=True)[:5]


def test_points_of_long_ago_are_read_where_they_lie(sites: dict[str, Site]) -> None:
    """The middle of the history opens the month of it, and not all that came since."""
    old = sites["old"]
    with old.explaining.engine.connect() as c:
        middle = c.scalar(
            text("SELECT c.sha FROM branch_commit b JOIN commit c ON c.id = b.commit_id WHERE position = 3000")
        )
    for each in old.get(f"/api/v1/series/{{series}}/explain?commit={middle}"):
        assert len(each.months) <= 1, (sorted(each.months), each.sql)


def test_the_cells_of_a_board_come_from_the_covering_index_alone(sites: dict[str, Site]) -> None:
    heard = sites["old"].get("/api/v1/board?project=bench/large&limit=50")
    (cells,) = [each for each in heard if each.sql.startswith("SELECT string_agg( int8send((series_id")]
    assert cells.rows == 50 * SHAPE.series and cells.blocks <= 12 * SHAPE.series
