"""What workers report of their runs is kept in order, and not for ever."""

from datetime import timedelta

from sqlalchemy import Connection

from backend.store.queue.events import insert_run_events, prune_run_events, run_events_after
from tests.backend.services.loom import NOW, Loom


def test_events_are_read_on_from_the_last_one_known_until_they_are_pruned(connection: Connection) -> None:
    loom = Loom(connection)
    run_id = loom.run(0, 100.0).run_id
    said = {"run_id": run_id, "project_id": loom.value("SELECT id FROM project"), "attempt": 1, "kind": "log"}
    rows = [{**said, "at": NOW + timedelta(seconds=second), "detail": {"n": second}} for second in range(4)]
    ids = insert_run_events(connection, rows)
    assert [event["detail"] for event in run_events_after(connection, run_id, ids[0], 2)] == [{"n": 1}, {"n": 2}]
    assert prune_run_events(connection, NOW + timedelta(seconds=3)) == 3
    assert [event["id"] for event in run_events_after(connection, run_id, 0, 10)] == ids[3:]
