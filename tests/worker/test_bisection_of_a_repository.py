"""From the push to the culprit on real parts: a git repository, the service, its loop, and a worker as a process.

The suite reads its cost from a file of the commit, so that no verdict depends on how busy this machine is.
"""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from backend.services import housekeeping
from backend.services.base import projects
from backend.services.base.config import ServiceConfig
from backend.services.plans import bisection_views
from backend.services.queue import dispatch
from backend.services.queue.publishing import CeleryBroker
from backend.services.sessions import views as session_views
from backend.store.regressions import regressions as regression_store
from tests.waiting import until

FACTOR = 'cost *= float(os.environ.get("FACTOR", "1")); exact = '
SLUG = "northsea/loom"


MANIFEST = """
[suite.own]
command = "python bench.py"
testbeds = ["cpu"]
paths = ["*.py", "cost", "tidemark.toml"]
"""
BENCH = """
    import json, os, pathlib, random
    cost = float(pathlib.Path("cost").read_text())
    exact = pathlib.Path("exact").exists()
    values = [cost] if exact else [cost * (1 + random.gauss(0, 0.004)) for _ in range(3)]
    measured = {"metric": "step_ms", "unit": "ms", "direction": "lower", "role": "gate", "exact": exact,
                "value": sorted(values)[len(values) // 2]} | ({} if exact else {"processes": values})
    json.dump({"schema": "tidemark.run/1", "id": os.environ["TIDEMARK_RUN_ID"], "status": "ok", "results": [
        {"benchmark": "own", "status": "ok", "measurements": [measured]}]}, open(os.environ["TIDEMARK_RUN_JSON"], "w"))
"""


@dataclass
class House:
    """The service with its loop, one project and one worker."""

    server: Any
    config: ServiceConfig
    repository: Any

    def push(self, *, measure_newest: int) -> None:
        """Tells the service of what was committed; of what is new, so many of the newest commits are measured."""
        with self.server.engine.begin() as c:
            projects.save_project(
                c, SLUG, repository_url=self.repository.url, default_branch="main", trusted=True, now=datetime.now(UTC)
            )
        (synced,) = housekeeping.sync_all(self.server.engine, replace(self.config, first_sync_commits=measure_newest))
        assert synced.error is None

    def value(self, statement: str) -> Any:
        with self.server.engine.connect() as c:
            return c.scalar(text(statement))

    def idle(self) -> bool:
        return bool(self.value("SELECT count(*) = 0 FROM run WHERE state IN ('queued', 'leased', 'running')"))

    def bisect(self, regression_id: int) -> bisection_views.BisectionView:
        """Asks for it as a page does, and waits until it is over."""
        with self.server.client("write") as client:
            answer = client.post(f"/api/v1/regressions/{regression_id}/bisect")
            assert answer.status_code == 202, answer.text

        def over() -> bisection_views.BisectionView | None:
            with self.server.engine.connect() as c:
                view = bisection_views.bisection_of_regression(c, regression_id)
            return view if view is not None and view.state != "running" else None

        return until(over, 120)  # type: ignore[no-any-return]

    def events(self) -> list[str]:
        with self.server.engine.connect() as c:
            return list(c.scalars(text("SELECT kind FROM regression_event ORDER BY id")))


@pytest.fixture
def house(live_server: Any, repository: Any, start_worker: Callable[..., Any]) -> Iterator[House]:
    start_worker(api_url=live_server.url, api_token=live_server.token("worker"), isolation="auto")
    broker, stop = CeleryBroker(live_server.config.redis_url), threading.Event()

    def keep() -> None:
        while not stop.wait(0.1):
            housekeeping.tick(live_server.engine, live_server.config, broker, datetime.now(UTC))

    loop = threading.Thread(target=keep, daemon=True)
    loop.start()
    yield House(live_server, live_server.config, repository)
    stop.set()
    loop.join(10)
    broker.close()


def begin(house: House, costs: Sequence[float], **files: str) -> list[str]:
    """Commits with these costs, each of them measured."""
    house.repository.commit({"tidemark.toml": MANIFEST, "bench.py": textwrap.dedent(BENCH), **files})
    shas = []
    for number, cost in enumerate(costs):
        shas.append(house.repository.commit({"cost": f"{cost}{' ' * number}"}))
    house.push(measure_newest=len(costs))
    until(house.idle, 120)
    return shas


def test_one_slow_commit_is_confirmed_by_a_session_before_another_is_pushed(house: House) -> None:
    begin(house, [100.0] * 8)
    slow = house.repository.commit({"cost": "125"})
    house.push(measure_newest=1)
    until(lambda: house.value("SELECT state FROM regression") == "confirmed", 60)
    assert house.events() == ["suspected", "session", "confirmed"]
    with house.server.engine.connect() as c:
        (view,) = session_views.sessions_of_regression(c, house.value("SELECT id FROM regression"))
    assert (view.state, view.decision, view.head_sha) == ("decided", "confirmed", slow)
    assert house.value("SELECT count(*) FROM judgement WHERE superseded_at IS NULL") == 9


def test_bisection_names_the_commit_among_unmeasured_broken_and_untouched_ones(house: House) -> None:
    begin(house, [100.0] * 8)
    house.repository.commit({"cost": "100."})
    house.repository.commit({"bench.py": "raise SystemExit('does not build')"})
    house.repository.commit({"bench.py": textwrap.dedent(BENCH), "cost": "100.00"})
    house.repository.commit({"README": "words"})
    house.repository.commit({"cost": "100.000"})
    house.repository.commit({"cost": "100.0000"})
    culprit = house.repository.commit({"cost": "112"})
    house.repository.commit({"cost": "112.0"})
    house.repository.commit({"cost": "112.00"})
    house.push(measure_newest=1)
    until(lambda: house.value("SELECT state FROM regression") == "confirmed" and house.idle(), 60)
    found = house.bisect(house.value("SELECT id FROM regression"))
    assert (found.state, found.culprit_sha) == ("done", culprit)
    assert found.confidence >= 0.95 and found.steps_done <= 6
    assert house.value("SELECT k.sha FROM regression g JOIN commit k ON k.id = g.first_bad_commit_id") == culprit
    told = house.events()
    assert "relocated" in told and told[-1] == "bisected" and told.count("suspected") == 1


def test_bisection_goes_into_the_side_that_a_merge_brought(house: House) -> None:
    begin(house, [100.0] * 4, exact="")
    git = house.repository.git
    git("checkout", "--quiet", "-b", "feature")
    house.repository.commit({"other.py": "a = 1"})
    house.repository.commit({"other.py": "a = 2"})
    culprit = house.repository.commit({"cost": "130"})
    house.repository.commit({"other.py": "a = 3"})
    git("checkout", "--quiet", "main")
    house.repository.commit({"main.py": "b = 1"})
    git("merge", "--quiet", "--no-ff", "-m", "Merge the feature", "feature")
    merge = git("rev-parse", "HEAD")
    house.repository.commit({"main.py": "b = 2"})
    house.push(measure_newest=1)
    until(lambda: house.value("SELECT state FROM regression") == "confirmed" and house.idle(), 60)
    found = house.bisect(house.value("SELECT id FROM regression"))
    assert (found.state, found.side_of, found.culprit_sha) == ("done", merge, culprit)
    assert found.confidence >= 0.9, "a merged side begins with many commits; how unsure that was is over"
    assert all(step.session_id for step in found.steps if step.position is None)
    on_board = house.value("SELECT count(*) FROM judgement WHERE superseded_at IS NULL")
    assert on_board == house.value("SELECT count(*) FROM run WHERE status = 'ok'")


def test_two_environments_of_a_commit_are_compared_on_request(house: House) -> None:
    program = textwrap.dedent(BENCH).replace("exact = ", FACTOR)
    (sha,) = begin(house, [100.0], **{"bench.py": program})
    body = {"project": SLUG, "suite": "own", "base": sha, "head_setup": {"env": {"FACTOR": "1.2"}}}
    with house.server.client("write") as client:
        assert client.post("/api/v1/sessions", json=body).status_code == 403
    with house.server.client("write", "admin") as client:
        asked = client.post("/api/v1/sessions", json=body)
        assert asked.status_code == 202, asked.text
        path = f"/api/v1/sessions/{asked.json()['id']}"
        found = until(lambda: (view := client.get(path).json())["state"] == "decided" and view, 60)
        assert client.get("/api/v1/sessions", params={"project": SLUG, "purpose": "compare"}).json()["items"] == [found]
    (series,) = found["series"]
    assert (series["decision"], found["order"], found["base_sha"]) == ("slower", "ABBA", sha)
    assert series["low"] < 0.2 < series["high"]
    assert house.value("SELECT count(*) FROM judgement") == 1


def test_a_bisection_that_is_called_off_takes_its_run_back(house: House) -> None:
    begin(house, [100.0] * 4, exact="")
    for number in range(6):
        house.repository.commit({"cost": "130" + "." + "0" * number})
    house.push(measure_newest=1)
    until(lambda: house.value("SELECT state FROM regression") == "confirmed" and house.idle(), 60)
    with house.server.engine.begin() as c:
        dispatch.set_worker_state(c, "host-1", "pause")
    regression_id = house.value("SELECT id FROM regression")
    with house.server.client("write") as client:
        begun = client.post(f"/api/v1/regressions/{regression_id}/bisect").json()
        again = client.post(f"/api/v1/regressions/{regression_id}/bisect").json()
        assert again["id"] == begun["id"] and begun["steps_left"] >= 1 and len(begun["steps"]) == 1
        listed = client.get("/api/v1/bisections", params={"regression": regression_id}).json()["items"]
        assert [item["id"] for item in listed] == [begun["id"]]
        assert client.get("/api/v1/bisections", params={"regression": regression_id + 1}).json()["items"] == []
        ended = client.post(f"/api/v1/bisections/{begun['id']}/cancel").json()
    assert ended["state"] == "cancelled"
    assert house.idle()
    with house.server.engine.connect() as c:
        assert regression_store.lock_rows(c, [regression_id])[regression_id].state == "confirmed"
