"""Whether the runs of one commit agree: enough of them, each worse by itself, make a regression of a suspect.

On the default branch the following commits confirm a change; a pull request's head has none, so its own runs do.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from backend.regression.policy import PolicyBook
from backend.services.policy.resolve import policy_book
from backend.services.regressions import ledger
from backend.services.reports.commit_verdict import commit_verdict
from backend.store.base.projects import ProjectRow
from backend.store.judging import judgements


def settle(c: Connection, project: ProjectRow, sha: str, now: datetime) -> None:
    """Store what the runs of a commit off the default branch agree on, so that board, API and report say the same."""
    runs = commit_verdict(c, project.slug, sha).runs
    book = policy_book(c, project.slug)
    for place in dict.fromkeys((run.suite, run.testbed) for run in runs):
        run_ids = [run.run_id for run in runs if (run.suite, run.testbed) == place]
        restate_agreed(c, book, place, run_ids, judged_in(c, run_ids), now)


def judged_in(c: Connection, run_ids: Iterable[str]) -> list[list[Any]]:
    """The judgements of these runs, series by series."""
    by_series: dict[int, list[Any]] = {}
    for run_id in run_ids:
        for row in judgements.of_run(c, run_id):
            by_series.setdefault(row.series_id, []).append(row)
    return list(by_series.values())


def restate_agreed(
    c: Connection,
    book: PolicyBook,
    place: tuple[str, str],
    run_ids: Sequence[str],
    judged: Iterable[Sequence[Any]],
    now: datetime,
) -> list[str]:
    """Make regressions of the suspects that these runs agree on; `judged` by series. Returns the restated runs.

    `place`: the suite and the testbed of the runs.
    """
    agreed = [rows[0].series_id for rows in judged if is_sustained(rows, runs_needed(book, place, rows[:1]))]
    return ledger.restate_agreed(c, run_ids, agreed, now)


def runs_needed(book: PolicyBook, place: tuple[str, str], judged: Iterable[Any]) -> int:
    """This many runs of a suite on a testbed must agree before anything is reported as certain: the most that the
    policies of these judgements' series require, or what the suite's requires if there are none."""
    suite, testbed = place
    policies = [book.of(suite=suite, benchmark=row.benchmark, metric=row.metric, testbed=testbed) for row in judged]
    if not policies:
        return book.of(suite=suite, testbed=testbed).sustained_runs
    return max(policy.sustained_runs for policy in policies)


def is_sustained(judged: Sequence[Any], needed: int) -> bool:
    """Whether as many runs as needed are worse, and no other run says otherwise; of the judgements of one series."""
    worse = [row for row in judged if row.verdict in ("suspect", "regression")]
    return len(worse) >= needed and len(worse) == len(judged)
