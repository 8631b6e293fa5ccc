"""Lines across the grid, at their place in time: the environment changed here, a machine misbehaved there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from backend.store.base.lookup import CommitRow, TestbedRow
from backend.store.board import board as store
from backend.store.board.board import BoardRunRow


class NoticeKind(StrEnum):
    ENVIRONMENT = "environment"
    QUARANTINE = "quarantine"
    INFRA_ALARM = "infra_alarm"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of two environments that differs; None: it was not there."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Shown above the row of the commit at which it began (rows are newest first: between it and the one before)."""

    kind: NoticeKind
    text: str
    suites: tuple[str, ...] = ()
    worker: str | None = None
    differences: tuple[Difference, ...] = ()
    regression_id: int | None = None
    run_id: str | None = None


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Differences of two environment fingerprints, by name.

    Their hash says nothing to people, and the checkout is the commit's, reported by whichever run had its hash first.
    """
    names = sorted((before.keys() | after.keys()) - {"hash", "git"})
    return tuple(
        Difference(name, _shown(before.get(name)), _shown(after.get(name)))
        for name in names
        if before.get(name) != after.get(name)
    )


def notices_by_row(
    c: Connection, project_id: int, testbed: TestbedRow, commits: Sequence[CommitRow], runs: Sequence[BoardRunRow]
) -> dict[int, tuple[Notice, ...]]:
    """The notices of a page of commits (newest first), by row."""
    row_of_commit = {commit.id: row for row, commit in enumerate(commits)}
    found: dict[int, list[Notice]] = {}
    for row, notice in (
        *_environment_changes(c, project_id, testbed, row_of_commit, runs),
        *_quarantines(row_of_commit, runs),
        *_alarms(c, project_id, testbed, commits),
    ):
        found.setdefault(row, []).append(notice)
    return {row: tuple(notices) for row, notices in found.items()}


def _environment_changes(
    c: Connection, project_id: int, testbed: TestbedRow, row_of_commit: Mapping[int, int], runs: Sequence[BoardRunRow]
) -> list[tuple[int, Notice]]:
    """Where the environment of a worker differs from the one in which it ran the suite before."""
    by_worker: dict[tuple[str, str], list[tuple[int, BoardRunRow]]] = {}
    for run in runs:
        if run.environment_id is not None and run.worker is not None and run.started_at is not None:
            by_worker.setdefault((run.suite, run.worker), []).append((row_of_commit[run.commit_id], run))
    oldest = [max(ran, key=lambda item: item[0])[1] for ran in by_worker.values()]
    before = store.environments_before(c, project_id, testbed.id, oldest)
    changes: dict[tuple[int, str, int, int], list[str]] = {}
    for (suite, worker), ran in by_worker.items():
        known = before.get((suite, worker))
        for row, run in sorted(ran, key=lambda item: -item[0]):
            if known is not None and run.environment_id not in (None, known):
                assert run.environment_id is not None
                changes.setdefault((row, worker, known, run.environment_id), []).append(suite)
            known = run.environment_id
    if not changes:
        return []
    prints = store.fingerprints(c, sorted({number for key in changes for number in key[2:]}))
    notices = []
    for (row, worker, old, new), suites in changes.items():
        moved = differences(prints[old], prints[new])
        words = ", ".join(f"{item.name} {item.before or 'none'} → {item.after or 'none'}" for item in moved[:3])
        more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
        notice = Notice(
            kind=NoticeKind.ENVIRONMENT,
            text=f"Environment of {worker}: {words or 'changed'}{more}",
            suites=tuple(sorted(suites)),
            worker=worker,
            differences=moved,
        )
        notices.append((row, notice))
    return notices


def _quarantines(row_of_commit: Mapping[int, int], runs: Sequence[BoardRunRow]) -> list[tuple[int, Notice]]:
    return [
        (
            row_of_commit[run.commit_id],
            Notice(
                kind=NoticeKind.QUARANTINE,
                text=f"Run of {run.suite} quarantined, not judged: {run.error or 'the machine was not steady'}",
                suites=(run.suite,),
                worker=run.worker,
                run_id=run.id,
            ),
        )
        for run in runs
        if run.status == "quarantined"
    ]


def _alarms(
    c: Connection, project_id: int, testbed: TestbedRow, commits: Sequence[CommitRow]
) -> list[tuple[int, Notice]]:
    """Regressions that are the machine's or its environment's doing, at their onset."""
    row_of_position = {
        item.default_position: row for row, item in enumerate(commits) if item.default_position is not None
    }
    if not row_of_position:
        return []
    alarms = store.infra_alarms(c, project_id, testbed.id, min(row_of_position), max(row_of_position))
    return [
        (
            row_of_position[alarm.position],
            Notice(
                kind=NoticeKind.INFRA_ALARM,
                text=f"Infra alarm R-{alarm.id}: slower since here because of the {alarm.cause}, not the code",
                regression_id=alarm.id,
            ),
        )
        for alarm in alarms
        if alarm.position in row_of_position
    ]


def _shown(value: object) -> str | None:
    return None if value is None else str(value)
