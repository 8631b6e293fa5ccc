"""Whose turn it is: by kind, by how long nothing was served, by what each project has used; nobody waits for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backend.services.queue.scheduling import Kind, share_out, takes_newest, turns
from backend.store.queue.groups import RunGroup

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def group(
    kind: Kind, project: int = 1, *, waiting: int = 100, trusted: bool = True, waited_h: float = 0.0,
    served_h: float | None = None,
) -> RunGroup:  # fmt: skip
    return RunGroup(
        project_id=project,
        kind=kind,
        trusted=trusted,
        waiting=waiting,
        oldest_at=NOW - timedelta(hours=waited_h),
        served_at=None if served_h is None else NOW - timedelta(hours=served_h),
    )


def order(*groups: RunGroup, slots: int, used_s: dict[int, float] | None = None, isolated: int = 100) -> list[RunGroup]:
    return share_out(groups, used_s or {}, slots=slots, isolated=isolated, now=NOW)


def test_a_confirming_run_goes_before_a_pull_request_main_a_schedule_and_a_backfill() -> None:
    groups = [group(kind, waiting=1) for kind in reversed(Kind)]
    assert [each.kind for each in order(*groups, slots=9)] == list(Kind)


def test_what_nobody_serves_rises_until_it_goes_before_everything() -> None:
    backfill = group(Kind.BACKFILL, waited_h=7.0)
    assert order(group(Kind.CONFIRM), backfill, slots=1) == [backfill]


def test_a_backfill_that_was_served_lately_waits_for_main_again() -> None:
    backfill, main = group(Kind.BACKFILL, waited_h=50.0, served_h=0.1), group(Kind.MAIN)
    assert order(backfill, main, slots=3) == [main, main, main]


def test_one_served_run_is_enough_to_lose_the_lead_that_waiting_gave() -> None:
    backfill, main = group(Kind.BACKFILL, waited_h=5.0), group(Kind.MAIN)
    assert [each.kind for each in order(backfill, main, slots=3)] == [Kind.BACKFILL, Kind.MAIN, Kind.MAIN]


def test_projects_take_turns_whatever_they_have_queued() -> None:
    flood, single = group(Kind.MAIN, 1, waiting=5000), group(Kind.MAIN, 2, waiting=2)
    assert [each.project_id for each in order(flood, single, slots=6)] == [1, 2, 1, 2, 1, 1]


def test_who_has_used_the_testbed_least_goes_first() -> None:
    chosen = order(group(Kind.MAIN, 1), group(Kind.MAIN, 2), slots=4, used_s={1: 900.0})
    assert [each.project_id for each in chosen] == [2, 2, 2, 1]


def test_the_use_of_a_testbed_never_turns_the_order_of_kinds_around() -> None:
    chosen = order(group(Kind.CONFIRM, 1), group(Kind.MAIN, 2), slots=1, used_s={1: 1e6})
    assert [each.kind for each in chosen] == [Kind.CONFIRM]


def test_code_that_is_not_trusted_gets_only_workers_that_isolate() -> None:
    chosen = order(group(Kind.CONFIRM, 1, trusted=False), group(Kind.MAIN, 2), slots=4, isolated=1)
    assert [each.project_id for each in chosen] == [1, 2, 2, 2]


def test_nothing_is_given_out_twice() -> None:
    assert len(order(group(Kind.MAIN, waiting=3), group(Kind.BACKFILL, waiting=2), slots=50)) == 5


def test_the_newest_of_main_goes_first_in_every_second_minute_of_a_backlog() -> None:
    backlog, fresh = group(Kind.MAIN, waited_h=1.0), group(Kind.MAIN, waited_h=0.1)
    minutes = [NOW + timedelta(minutes=number) for number in range(4)]
    assert [takes_newest(backlog, minute) for minute in minutes] == [True, False, True, False]
    assert not any(takes_newest(fresh, minute) for minute in minutes)
    assert not takes_newest(group(Kind.BACKFILL, waited_h=9.0), NOW)
    (turn,) = turns(order(backlog, slots=3), NOW)
    assert (turn.runs, turn.newest_first) == (3, True)


def test_a_worker_of_one_project_takes_its_runs_and_leaves_the_others_to_its_neighbours() -> None:
    urgent, own = group(Kind.CONFIRM, 1, waiting=5), group(Kind.BACKFILL, 2, waiting=5)

    def chosen(slots: int, reserved: dict[int, int]) -> list[int]:
        order = share_out([urgent, own], {}, slots=slots, isolated=slots, now=NOW, reserved=reserved)
        return [each.project_id for each in order]

    assert chosen(0, {2: 1}) == [2], "nobody is there for the more urgent neighbour; its worker does not wait for that"
    assert chosen(1, {2: 1}) == [1, 2]
    assert chosen(1, {1: 1}) == [1, 1], "the neighbour's turn on everyone's worker has not come"
    assert chosen(0, {3: 1}) == []
    assert chosen(9, {2: 1}) == [1] * 5 + [2] * 5
