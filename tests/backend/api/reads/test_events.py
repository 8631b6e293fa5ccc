"""Live pages: events as they happen, what a page missed, heartbeats, and a clean end."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from backend.services.base import live
from backend.services.base.live import Hub, Subscription
from backend.services.base.reads import Reads
from backend.store.base.live import LiveEventRow
from tests.loops import in_a_loop_of_its_own


@dataclass(frozen=True)
class Event:
    id: int
    kind: str
    data: dict[str, Any]


class Page:
    """An open page: parses the stream as a browser would."""

    def __init__(self, response: httpx.Response) -> None:
        self.lines = response.iter_lines()
        self.heartbeats = 0

    def next(self) -> Event:
        fields: dict[str, str] = {}
        for line in self.lines:
            if line.startswith(": still here"):
                self.heartbeats += 1
            elif line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif not line and "data" in fields:
                return Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
            elif not line:
                fields = {}
        raise EOFError

    def rest(self) -> list[str]:
        return list(self.lines)


@contextmanager
def page(server: Any, query: str = "", **headers: str) -> Iterator[Page]:
    with (
        server.client() as client,
        client.stream("GET", f"/api/v1/events{query}", headers=headers, timeout=20) as response,
    ):
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in response.headers
        opened = Page(response)
        assert next(opened.lines) == ": connected" and next(opened.lines) == "retry: 2000"
        yield opened


def publish(server: Any, kind: str, project: int | None = None, **payload: Any) -> int:
    with server.engine.begin() as c:
        return live.publish(c, kind, project, payload)


@pytest.fixture
def project(live_server: Any) -> int:
    with live_server.engine.begin() as c:
        return int(c.scalar(text("INSERT INTO project (slug) VALUES ('a/b') RETURNING id")))


def test_an_event_reaches_every_open_page(live_server: Any) -> None:
    with page(live_server) as one, page(live_server) as other:
        event_id = publish(live_server, "run", run_id="01RUN00000", text="line\nbreak <b>")
        for opened in (one, other):
            event = opened.next()
            assert (event.id, event.kind) == (event_id, "run")
            assert event.data["text"] == "line\nbreak <b>" and "at" in event.data


def test_an_event_that_was_rolled_back_never_happened(live_server: Any) -> None:
    with page(live_server) as opened:
        with pytest.raises(RuntimeError), live_server.engine.begin() as c:
            live.publish(c, "run", None, {"run_id": "lost"})
            raise RuntimeError
        kept = publish(live_server, "run", run_id="kept")
        assert opened.next().id == kept


def test_a_page_opened_before_anybody_listens_misses_nothing(live_server: Any) -> None:
    async def first_event() -> LiveEventRow | None:
        hub = Hub(Reads(live_server.engine, None))
        async with hub.stream(Subscription(), None) as opened:
            await asyncio.to_thread(publish, live_server, "run", n=1)
            hub.start()
            try:
                return await opened.next(10)
            finally:
                await hub.stop()

    event = in_a_loop_of_its_own(first_event())
    assert event is not None and event.payload == {"n": 1}


def test_a_page_that_comes_back_gets_what_it_missed(live_server: Any) -> None:
    with page(live_server) as opened:
        first = publish(live_server, "run", n=1)
        assert opened.next().id == first
    missed = [publish(live_server, "run", n=n) for n in (2, 3)]
    with page(live_server, **{"Last-Event-ID": str(first)}) as again:
        assert [again.next().id for _ in missed] == missed
        newest = publish(live_server, "run", n=4)
        assert again.next().id == newest


def test_a_page_misses_nothing_between_its_making_and_its_stream(live_server: Any) -> None:
    publish(live_server, "run", n=1)
    with live_server.engine.begin() as c:
        made_at = live.newest_event(c)
    meanwhile = publish(live_server, "run", n=2)
    with page(live_server, f"?after={made_at}") as opened:
        assert opened.next().id == meanwhile


def test_a_page_that_opens_before_its_events_are_heard_gets_each_once(live_server: Any) -> None:
    with page(live_server) as other:
        publish(live_server, "run", run_id="first")
        assert other.next().data["run_id"] == "first"  # now the hub rests for a moment
        seen, missed = (publish(live_server, "run", run_id=name) for name in ("seen", "missed"))
        with page(live_server, f"?after={seen}") as opened:
            last = publish(live_server, "run", run_id="last")
            assert [opened.next().id, opened.next().id] == [missed, last]
            assert [other.next().id for _ in range(3)] == [seen, missed, last]


def test_what_happens_while_a_page_that_comes_back_is_served_is_not_lost(
    live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(live_server, "run", n=1)
    missed = publish(live_server, "run", n=2)
    meanwhile: list[int] = []
    read_after = Hub._read_after

    def slow(hub: Hub, event_id: int) -> list[Any]:
        found = read_after(hub, event_id)
        if not meanwhile:
            meanwhile.append(publish(live_server, "run", n=3))
            until = time.monotonic() + 10
            while meanwhile[0] not in hub._heard and time.monotonic() < until:
                time.sleep(0.01)
        return found

    monkeypatch.setattr(Hub, "_read_after", slow)
    with page(live_server, f"?after={first - 1}") as opened:
        last = publish(live_server, "run", n=4)
        assert [opened.next().id for _ in range(3)] == [first, missed, *meanwhile]
        assert opened.next().id == last


def test_an_event_whose_notice_was_lost_in_a_crash_reaches_open_pages_all_the_same(live_server: Any) -> None:
    with page(live_server) as open_page:
        publish(live_server, "run", run_id="told")
        assert open_page.next().data["run_id"] == "told"
        with live_server.engine.begin() as c:  # committed, and the server ended before it gave notice
            c.execute(text("INSERT INTO live_event (kind, payload) VALUES ('run', '{\"run_id\": \"unheard\"}')"))
        publish(live_server, "run", run_id="later")
        assert [open_page.next().data["run_id"] for _ in range(2)] == ["later", "unheard"]


def test_what_was_missed_while_the_service_was_down_is_told_too(live_server: Any) -> None:
    with live_server.engine.begin() as c:
        c.execute(text("INSERT INTO live_event (kind, payload) VALUES ('run', '{\"n\": 1}'), ('run', '{\"n\": 2}')"))
    with page(live_server, **{"Last-Event-ID": "1"}) as opened:
        assert opened.next().data["n"] == 2


def test_a_page_hears_of_its_own_project_only(live_server: Any, project: int) -> None:
    with page(live_server, "?project=a/b") as opened:
        publish(live_server, "run", project + 1, n=1)
        own = publish(live_server, "run", project, n=2)
        general = publish(live_server, "worker", None, n=3)
        assert [opened.next().id, opened.next().id] == [own, general]


def test_log_lines_go_to_the_page_of_their_run_only(live_server: Any) -> None:
    with page(live_server) as board, page(live_server, "?run=01RUN00001") as of_run:
        publish(live_server, "log", run_id="01RUN00002")
        log = publish(live_server, "log", run_id="01RUN00001")
        state = publish(live_server, "run", run_id="01RUN00001")
        assert board.next().id == state
        assert [of_run.next().id, of_run.next().id] == [log, state]


def test_a_quiet_stream_says_that_it_is_still_there(live_server: Any) -> None:
    with page(live_server) as opened:
        timer = threading.Timer(0.7, publish, (live_server, "run"))
        timer.start()
        opened.next()
        assert opened.heartbeats >= 1


def test_the_stream_survives_a_lost_database_connection(live_server: Any) -> None:
    with page(live_server) as opened:
        publish(live_server, "run", n=0)
        assert opened.next().data["n"] == 0
        with live_server.engine.begin() as c:
            c.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemark live'")
            )
        sent = publish(live_server, "run", n=1)
        assert opened.next().id == sent


def test_open_pages_do_not_hold_up_the_end_of_the_service(live_server: Any, serve_app: Any) -> None:
    from backend.api import create_api

    opened: list[list[str]] = []
    with serve_app(
        create_api(live_server.config, live_server.engine), live_server.engine, live_server.config
    ) as server:

        def stay() -> None:
            with page(server) as stream:
                opened.append([])
                opened[0] += stream.rest()

        thread = threading.Thread(target=stay)
        thread.start()
        deadline = time.monotonic() + 10
        while not opened and time.monotonic() < deadline:
            time.sleep(0.02)
    thread.join(10)
    assert not thread.is_alive() and opened, "the stream ended with the service"


def test_an_unknown_project_or_a_wrong_id_is_refused(live_server: Any) -> None:
    with live_server.client() as client:
        assert client.get("/api/v1/events?project=no/such").status_code == 404
        assert client.get("/api/v1/events", headers={"Last-Event-ID": "x"}).status_code == 422
        assert client.get("/api/v1/events?run=../x").status_code == 422


def test_a_stream_ends_soon_after_its_token_is_revoked_however_busy_it_is(live_server: Any) -> None:
    token = live_server.token("read")
    with page(live_server, Authorization=f"Bearer {token}") as opened:
        publish(live_server, "run", n=1)
        assert opened.next().data["n"] == 1
        with live_server.engine.begin() as c:
            c.execute(text("UPDATE api_token SET revoked_at = now()"))
        stop = threading.Event()

        def keep_busy() -> None:
            while not stop.wait(0.05):
                publish(live_server, "run", n=2)

        busy = threading.Thread(target=keep_busy)
        busy.start()
        try:
            opened.rest()  # comes to its end
        finally:
            stop.set()
            busy.join(10)
