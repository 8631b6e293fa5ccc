"""A preview that follows another goes on from the histories that are at hand, as long as nothing has happened."""

from datetime import timedelta

import pytest
from sqlalchemy import Connection

from backend.services.judging import what_if
from backend.services.judging.entered_histories import HISTORIES, EnteredHistories
from backend.store.judging import points as series_points
from tests.backend.services.loom import Loom

PROJECT = "northsea/loom"


@pytest.fixture
def slower(connection: Connection) -> Loom:
    loom = Loom(connection)
    loom.history([100.0] * 12 + [104.0] * 12)
    return loom


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The series whose points are read."""
    found: list[int] = []
    load = series_points.load_columns

    def counted(c, stretches, **more):
        found.extend(stretches)
        return load(c, stretches, **more)

    monkeypatch.setattr(series_points, "load_columns", counted)
    return found


def told(loom: Loom, min_change: float, **more: int) -> list[int]:
    change = {"min_change": min_change}
    preview = what_if.preview(loom.connection, PROJECT, change, now=loom.now, **more)
    return [flag.position for flag in preview.added]


def test_the_next_preview_reads_nothing_again_and_says_what_it_would_have_said(
    slower: Loom, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [told(slower, size) for size in (0.03, 0.06, 0.02)]
    assert len(reads) == 1
    monkeypatch.setattr(what_if, "HISTORIES", EnteredHistories())
    assert [told(slower, size) for size in (0.03, 0.06, 0.02)] == first == [[12], [], [12]]
    assert len(reads) == 2


def test_records_tell_what_columns_tell(slower: Loom, monkeypatch: pytest.MonkeyPatch) -> None:
    """A series of several workers is read as records."""
    first = [told(slower, size) for size in (0.03, 0.06, 0.02)]
    monkeypatch.setattr(what_if, "HISTORIES", EnteredHistories())
    monkeypatch.setattr(series_points, "load_columns", lambda *_, **__: {})
    assert [told(slower, size) for size in (0.03, 0.06, 0.02)] == first == [[12], [], [12]]


def test_a_run_that_comes_between_is_seen_by_the_next_preview(slower: Loom) -> None:
    assert what_if.preview(slower.connection, PROJECT, {"min_change": 0.03}, now=slower.now).then == 1
    slower.history([115.0] * 12, start=24)
    assert what_if.preview(slower.connection, PROJECT, {"min_change": 0.03}, now=slower.now).then == 2


def test_another_stretch_of_time_is_read_anew(slower: Loom, reads: list[int]) -> None:
    told(slower, 0.03)
    told(slower, 0.03, days=30)
    assert len(reads) == 2


def test_what_was_read_is_forgotten_after_a_minute(slower: Loom) -> None:
    known = HISTORIES.of(slower.connection, 1, slower.now, 90)
    assert HISTORIES.of(slower.connection, 1, slower.now + timedelta(seconds=59), 90) is known
    assert HISTORIES.of(slower.connection, 1, slower.now + timedelta(seconds=60), 90) is not known
