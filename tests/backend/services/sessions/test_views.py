"""Sessions as they are shown: found by id or listed, with their rounds and what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from backend.services.base.errors import NotFound
from backend.services.sessions import views as session_views
from tests.backend.services.counting import counted
from tests.backend.services.ingest.sessions_of_loom import QUIET, compare, connect, deliver, hello, round_of


@pytest.fixture
def watched(loom: Any) -> Any:
    """A project with a repository, a living worker, and a quiet history."""
    loom.history(QUIET)
    hello(loom, "box-02")
    connect(loom)
    return loom


def test_a_session_that_nobody_requested_is_not_found(watched: Any) -> None:
    with pytest.raises(NotFound, match="session"):
        session_views.session_view(watched.connection, "01J00000000000000000000000")


def test_a_session_shows_its_arms_its_rounds_and_its_measurements(watched: Any) -> None:
    session_id = compare(watched)
    view = session_views.session_view(watched.connection, session_id)
    assert (view.state, view.order, view.rounds_done, view.series, len(view.runs)) == ("waiting", "", 0, (), 1)
    assert (view.base_setup, view.head_setup) == ({}, {"pip": "torch==2.14.0"})
    deliver(watched, round_of(watched, 100.0, 110.0))
    view = session_views.session_view(watched.connection, session_id)
    assert (view.order, view.rounds_done, view.worker) == ("ABBA", 1, "box-02")
    (series,) = view.series
    assert (series.metric, len(series.base), len(series.head)) == ("step_ms", 2, 2)


def test_sessions_are_listed_by_purpose_and_state(watched: Any) -> None:
    session_id = compare(watched)
    listed = session_views.list_sessions(watched.connection, purpose="compare", state="waiting")
    assert [view.id for view in listed] == [session_id]
    assert session_views.list_sessions(watched.connection, purpose="bisect") == []
    assert session_views.list_sessions(watched.connection, state="decided") == []


def test_thirty_sessions_are_listed_by_as_many_statements_as_three(watched: Any) -> None:
    listed = []
    for more in (3, 27):
        for number in range(more):
            compare(watched, rounds_at_most=number + 1)
        with counted(watched.connection) as sent:
            views = session_views.list_sessions(watched.connection, limit=100)
        listed.append((len(views), len(sent)))
        assert all(len(view.runs) == 1 for view in views)
    (three, few), (thirty, many) = listed
    assert (three, thirty, few) == (3, 30, many) and few > 2
