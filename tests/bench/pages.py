"""Budgets of pages: HTML beside the bare endpoint, the board's first frame beside a static page of as many charts, and
how long a result takes from its delivery to the red cell of a page that is open.
"""

from __future__ import annotations

import gzip
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson
from plotly.offline import get_plotlyjs
from sqlalchemy import text

from frontend.screenshots import launch_chromium
from tests.bench.registry import Figure, row
from tests.bench.stage import Client, Stage, Times, in_turns
from tests.bench.writes import Delivery, bodies, sender

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROUNDS = 20
FRAMES = 3
MOST_PATIENCE_MS = 180_000  # of a static page on a busy machine
MOST_BYTES = 150_000
PROJECT = "project=bench%2Flarge"
BOARD = f"/board?{PROJECT}&lens=all&changed=0"
CHARTS, POINTS = 200, 50
WARM_UP_RUNS, REDS = 12, 20
SUSTAINED = 3  # runs that must agree before a cell is red
PATIENCE_MS = 20_000


def page_paths(stage: Stage) -> dict[str, str]:
    """The pages of the large project. A series is asked for a week of it: by itself a page shows three months, which
    the small store has not lived yet."""
    filled = stage.filled
    with stage.connect() as connection:
        run = connection.scalar(
            text("SELECT id FROM run WHERE project_id = :project ORDER BY id DESC LIMIT 1"),
            {"project": filled.project_id},
        )
        base = connection.scalar(
            text(
                "SELECT c.sha FROM branch_commit b JOIN commit c ON c.id = b.commit_id "
                "WHERE b.branch_id = :branch AND b.position = :position"
            ),
            {"branch": filled.branch_id, "position": filled.shape.commits - 2},
        )
        number = connection.scalar(
            text("SELECT max(id) FROM regression WHERE project_id = :project"), {"project": filled.project_id}
        )
        assert number is not None, "a store of 10,000 measurements and more has a regression; ask for as many"
    return {
        "board, 200 series × 50 commits": BOARD,
        "board as it opens": f"/board?{PROJECT}",
        "overview": f"/?{PROJECT}&range=7d",
        "regressions": f"/regressions?{PROJECT}",
        "a regression": f"/regressions/{number}",
        "a series": f"/series/{filled.first_series_id + 9}?range=7d",
        "a suite": f"/suites/suite1?{PROJECT}",
        "a run": f"/runs/{run}",
        "compare": f"/compare?{PROJECT}&base={base}&head={filled.head}",
    }


@row("html pages", is_read=True)
def html_pages(stage: Stage) -> Iterable[Figure]:
    """Each page of the large project, compressed as browsers ask for it."""
    pages, pages_port, bare_port = page_paths(stage), stage.pages_port, stage.bare_port
    for name, path in pages.items():
        # New connections for each: servers close those that were idle meanwhile.
        asked = {"accept-encoding": "gzip", "accept": "text/html"}
        get = partial(Client(pages_port).send, "GET", path, b"", asked)
        size = len(get())
        assert size <= MOST_BYTES, f"{name}: {size} bytes compressed, at most {MOST_BYTES}"
        times, bare = in_turns(get, partial(Client(bare_port).get, "/bare"), ROUNDS)
        yield Figure(
            what=f"page: {name}, p50",
            value_ms=times.p50,
            yardstick="bare",
            yardstick_ms=bare.p50,
            at_most=80,
            note=f"{size / 1000:.0f} kB compressed of {MOST_BYTES // 1000}",
        )


# --- in a browser ----------------------------------------------------------------------------------------------------


@contextmanager
def chromium(stage: Stage) -> Iterator[Browser | None]:
    """A browser; None, and a word about it, where there is none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        if browser is None:
            stage.say("no Chromium on PATH: nothing is measured in a browser; tests/provide_chromium.py installs one")
            yield None
            return
        yield browser
        browser.close()


def first_frame(browser: Browser, address: str) -> None:
    """Opens a page until what it contains has been painted: loaded, and two frames on."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(address, wait_until="load", timeout=MOST_PATIENCE_MS)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    context.close()


def static_page() -> bytes:
    """What a generator of static reports writes: Plotly inside, and a chart for each series."""
    chance = random.Random(CHARTS)
    charts = []
    for number in range(CHARTS):
        values = [round(10 * (1 + chance.gauss(0, 0.01)), 4) for _ in range(POINTS)]
        trace = orjson.dumps([{"y": values, "type": "scatter", "mode": "lines+markers"}]).decode()
        charts.append(
            f'<div id="c{number}" style="height:300px"></div><script>Plotly.newPlot("c{number}",{trace})</script>'
        )
    return f"<!doctype html><title>static</title><script>{get_plotlyjs()}</script>{''.join(charts)}".encode()


@row("first frame")
def first_frame_of_the_board(stage: Stage) -> Iterable[Figure]:
    """The board of 200 series × 50 commits beside a static page of 200 charts of 50 points."""
    _ = stage.filled
    static = stage.directory / "static.html"
    static.write_bytes(static_page())
    board, peer = f"http://127.0.0.1:{stage.pages_port}{BOARD}", static.as_uri()
    with chromium(stage) as browser:
        if browser is None:
            return
        opened, drawn = [], []
        for number in range(-1, FRAMES):  # the first of each warms the browser up
            first, second = in_turn(lambda: first_frame(browser, board)), in_turn(lambda: first_frame(browser, peer))
            if number >= 0:
                opened.append(first)
                drawn.append(second)
    written = static.read_bytes()
    yield Figure(
        what="board's first frame, 200 series × 50 commits",
        value_ms=statistics.median(opened),
        yardstick="static page of 200 charts",
        yardstick_ms=statistics.median(drawn),
        at_most=1 / 3,
        note=f"the static page has {len(written) / 1e6:.1f} MB, {len(gzip.compress(written, 5)) / 1e6:.1f} compressed",
    )


def in_turn(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


@row("submit to red")
def submit_to_red(stage: Stage) -> Iterable[Figure]:
    """From the delivery of the run that makes it certain to the red cell of a page that is open. Against one second."""
    _ = stage.filled
    put = sender(stage, Client(stage.pages_port))
    runs = bodies("bench/red", results=REDS, metrics=1)
    deliveries = list(islice(runs, WARM_UP_RUNS + REDS + SUSTAINED))
    project = orjson.loads(deliveries[0].body)["project"]
    for delivery in deliveries[:WARM_UP_RUNS]:
        put(delivery)
    with chromium(stage) as browser:
        if browser is None:
            return
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://127.0.0.1:{stage.pages_port}/board?project={project}&lens=all")
        page.wait_for_selector("#live[data-state=live]")
        waited = []
        for number, delivery in enumerate(deliveries[WARM_UP_RUNS:]):
            reds = page.locator("td.vc.r").count()
            began = time.perf_counter()
            answer = orjson.loads(put(slower_from(delivery, number)))
            if any(verdict["verdict"] == "regression" for verdict in answer["verdicts"]) and number >= SUSTAINED - 1:
                waited.append(until_red(page, reds, began))
    times = Times([each for each in waited if each is not None])
    assert len(times.ms) >= REDS // 2, f"{len(times.ms)} cells turned red of {REDS}"
    yield Figure(
        what=f"submit → red on an open page, p99 of {len(times.ms)}",
        value_ms=times.p99,
        yardstick="one second",
        yardstick_ms=1000.0,
        at_most=1.0,
        note=f"p50 {times.p50:.0f} ms",
    )


def slower_from(delivery: Delivery, number: int) -> Delivery:
    """From the n-th run on, variant n costs 20 % more: every run makes one more cell certain."""
    document: dict[str, Any] = orjson.loads(delivery.body)
    for variant, result in enumerate(document["results"]):
        if variant > number:
            continue
        for measured in result["measurements"]:
            measured["value"] *= 1.2
            measured["processes"] = [1.2 * value for value in measured["processes"]]
            measured["samples"] = [[1.2 * value for value in values] for values in measured["samples"]]
    return Delivery(delivery.run_id, orjson.dumps(document))


def until_red(page: Page, reds: int, began: float) -> float | None:
    """Milliseconds until one more cell is red; None where this run made none."""
    from playwright.sync_api import TimeoutError as Late

    try:
        page.wait_for_function(
            "(before) => document.querySelectorAll('td.vc.r').length > before", arg=reds, timeout=PATIENCE_MS
        )
    except Late:
        return None
    return (time.perf_counter() - began) * 1e3
