"""What the head of a board counts."""

from datetime import timedelta

from sqlalchemy import Connection, text

from backend.store.board.summary import Summary, summary
from tests.backend.services.loom import NOW, Loom


def counted(loom: Loom, days: int) -> Summary:
    ((project, testbed),) = loom.rows("SELECT project_id, testbed_id FROM series")
    since = NOW - timedelta(days=days)
    suites, counts = summary(loom.connection, project, testbed, alarms_since=since, failed_since=since)
    assert suites == ["gpt"]
    return counts


def test_an_open_regression_counts_until_it_is_closed_and_as_wrong_when_it_is_invalid(connection: Connection) -> None:
    loom = Loom(connection)
    loom.history([100.0] * 12 + [125.0] * 6)
    before = counted(loom, 30)
    assert (before.open_regressions, before.unowned, before.suspects) == (1, 1, 0)
    assert (before.alarms_reported, before.alarms_right) == (1, 1)
    connection.execute(text("UPDATE regression SET state = 'invalid'"))
    after = counted(loom, 30)
    assert (after.open_regressions, after.alarms_reported, after.alarms_right) == (0, 1, 0)


def test_suites_are_named_and_failures_counted_since_their_day(connection: Connection) -> None:
    loom = Loom(connection)
    loom.run(0, 100.0)
    loom.deliver(loom.run_of(1, [], status="failed", error="killed"))
    assert counted(loom, 1).failed == 1
    assert counted(loom, -1).failed == 0
