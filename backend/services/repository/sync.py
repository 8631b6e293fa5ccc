"""Keeping the store in sync with a repository: mirror it, record commits in first-parent order, request their runs.

Reading (git, minutes at worst) happens before, and outside of, the one transaction that stores what was read.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from backend.services.base import live
from backend.services.base.config import ServiceConfig
from backend.services.base.savepoints import met_another
from backend.services.joint import questions
from backend.services.judging import policy_change as policies
from backend.services.judging import rejudging
from backend.services.policy.versions import note_version
from backend.services.queue import request as queue_request
from backend.services.queue.request import WantedRun
from backend.services.queue.scheduling import Kind
from backend.services.repository.commit_object import CommitObject
from backend.services.repository.manifest import FILE_NAME, Effort, Manifest, ManifestInvalid, Suite
from backend.services.repository.mirror import GitFailure
from backend.services.repository.reading import BranchLine, RepositoryReading, read
from backend.store.base import commits as store
from backend.store.base import projects
from backend.store.base.projects import ProjectRow
from backend.store.ingest import record as ingest
from backend.store.joint import incidents
from backend.store.judging import series
from backend.store.plans import schedules
from backend.store.queue import queue

log = logging.getLogger("tidemark.sync")

SHOWN_PATHS = 3
MAX_SHOWN_PATH = 300
REQUESTED_BY = "sync"
NEW_LINE = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The changes made by a sync."""

    project: str
    commits: int = 0
    requested: int = 0
    skipped: int = 0
    error: str | None = None
    notes: tuple[str, ...] = field(default=())


def sync_project(
    engine: Engine,
    config: ServiceConfig,
    project: ProjectRow,
    now: Callable[[], datetime],
    is_stopping: Callable[[], bool] = lambda: False,
) -> Synced:
    """Update the store from the project's repository. Errors are stored and shown, not raised."""
    try:
        reading = read(engine, config, project, is_stopping)
        with engine.begin() as c:
            synced = record(c, project, reading, config, now())
            projects.set_synced(c, project.id, asked_at=project.sync_requested_at, now=now())
            if synced.commits:
                told = {"project": project.slug, "new": synced.commits, "requested": synced.requested}
                live.publish(c, "commits", project.id, told)
        return synced
    except (psycopg.OperationalError, OperationalError):
        raise  # the database is away: nothing can be noted, and it concerns everybody
    except GitFailure as failure:
        if is_stopping():
            return Synced(project=project.slug, error="stopped")
        log.warning("sync of %s: %s", project.slug, failure)
        said = str(failure)
    except Exception as error:
        if met_another(error):
            raise  # it is read again at once
        # A full disk, or a fault of ours: whoever looks at the project must see that it stands still, and why.
        log.exception("sync of %s", project.slug)
        said = f"{type(error).__name__}: {str(error).strip().partition(NEW_LINE)[0][:500] or 'no message'}"
    with engine.begin() as c:
        projects.set_sync_failed(c, project.id, said, now())
        live.publish(c, "project", project.id, {"sync": "failed", "error": said})
    return Synced(project=project.slug, error=said)


# --- recording -------------------------------------------------------------------------------------------------------


def record(
    c: Connection, project: ProjectRow, reading: RepositoryReading, config: ServiceConfig, now: datetime
) -> Synced:
    """Store what was read: commits, branches and their order, notes, run requests."""
    if _moves_commits(c, project, reading.default):
        incidents.lock(c, project.id)  # its judge changes questions before it locks series, this does so after
        ingest.move_positions(c, project.slug)
    store.save_commits(c, project.id, (row_of(info) for info in reading.commits))
    _record_default(c, project, reading.default, now)
    for line in reading.others:
        branch_id = store.save_branch(c, project.id, line.name, line.head, now)
        store.clear_line(c, branch_id)
        _store_line(c, project.id, branch_id, line)
    store.mark_deleted(c, project.id, reading.deleted, now)
    store.save_tags(c, project.id, reading.tags)
    if reading.head_manifest is not None:
        if store.set_policy(c, project.id, reading.head_manifest.policy_table()):
            note_version(c, project.id, project.slug, by="tidemark.toml", now=now)
            policies.request_rejudging(c, project.id, now)
        schedules.save(
            c, project.id, [(s.model_dump(mode="json"), s.next_after(now)) for s in reading.head_manifest.schedule], now
        )
    requests = _Requests(c, project, reading.manifests, now)
    requests.of_line(reading.default, config.first_sync_commits, is_default=True)
    for line in reading.others:
        requests.of_line(line, config.first_sync_commits, is_default=False)
    off_branch = queue.queued_runs_off_branches(c, project.id)
    queue.cancel_queued(c, off_branch, "superseded", now, "its commit is on no branch any more (force push)")
    return Synced(
        project=project.slug,
        commits=len(reading.default.new) + sum(len(line.new) for line in reading.others),
        requested=requests.requested,
        skipped=requests.skipped,
    )


def _moves_commits(c: Connection, project: ProjectRow, line: BranchLine) -> bool:
    """Whether a position that is taken is given to another commit, or to none; usually commits only follow."""
    trunk = store.branches(c, project.id).get(line.name)
    last = None if trunk is None else store.last_of_line(c, trunk.id)
    return last is not None and line.first <= last[0]


def row_of(info: CommitObject) -> dict[str, object]:
    """A commit as stored."""
    return {
        "sha": info.sha,
        "parents": list(info.parents),
        "message": info.message,
        "author_name": info.author_name,
        "author_email": info.author_email,
        "authored_at": info.authored_at,
        "committed_at": info.committed_at,
        "changed_paths": list(info.changed_paths),
    }


def _record_default(c: Connection, project: ProjectRow, line: BranchLine, now: datetime) -> None:
    branch_id = store.save_branch(c, project.id, line.name, line.head, now)
    last = store.last_of_line(c, branch_id)
    if not line.shas and (last is None or last[0] == line.first - 1):
        return
    _store_line(c, project.id, branch_id, line)
    judge_in_new_order(c, project.id, branch_id, line.first, now)


def judge_in_new_order(c: Connection, project_id: int, branch_id: int, first: int, now: datetime) -> None:
    """Judge the points from a position of the default branch on again, if their commits moved, vanished or came
    from another branch."""
    touched = store.settle_points(c, project_id, branch_id, first, now)
    incidents.forget_from(c, project_id, first)
    series.lock_by_id(c, touched)  # all of them before the first one takes the lock of the project
    for series_id in touched:
        rejudging.rejudge_series(c, series_id, first, now=now)
    questions.follow_moved_commits(c, project_id, first, now)


def _store_line(c: Connection, project_id: int, branch_id: int, line: BranchLine) -> None:
    ids = store.ids_of(c, project_id, line.shas)
    store.replace_line(c, branch_id, line.first, [ids[sha] for sha in line.shas])


class _Requests:
    """Requests the runs of new commits, or records why there are none."""

    def __init__(
        self,
        c: Connection,
        project: ProjectRow,
        manifests: Mapping[str, Manifest | ManifestInvalid | None],
        now: datetime,
    ) -> None:
        self._c = c
        self._project = project
        self._manifests = manifests
        self._now = now
        self.requested = 0
        self.skipped = 0

    def of_line(self, line: BranchLine, newest: int, *, is_default: bool) -> None:
        new = [sha for sha in line.shas if sha in line.new]
        ids = store.ids_of(self._c, self._project.id, new)
        recent = set(line.shas[-newest:])
        paths = store.changed_paths(self._c, [ids[sha] for sha in new if sha in recent])
        wanted: list[WantedRun] = []
        self._skip(
            [ids[sha] for sha in new if sha not in recent],
            f"more than {newest} commits came at once, and this is none of the newest {newest}; "
            "`tidemark backfill` measures it",
        )
        for sha in new:
            if sha in recent:
                wanted += self._of_commit(line, ids[sha], self._manifests[sha], paths[ids[sha]], is_default=is_default)
        self.requested += sum(
            1
            for answer in queue_request.request_runs(
                self._c,
                self._project.id,
                wanted,
                kind=Kind.MAIN,
                requested_by=REQUESTED_BY,
                now=self._now,
                branch=line.name,
            )
            if answer.created
        )

    def _of_commit(
        self,
        line: BranchLine,
        commit_id: int,
        found: Manifest | ManifestInvalid | None,
        paths: Sequence[str] | None,
        *,
        is_default: bool,
    ) -> list[WantedRun]:
        try:
            if isinstance(found, ManifestInvalid):
                raise found
            reason, suites = to_run(found, line.name, paths, is_default=is_default)
            self._note_untouched(commit_id, found, paths)
        except ManifestInvalid as invalid:
            store.set_note(self._c, [commit_id], skipped_reason=None, manifest_error=str(invalid)[:4000])
            self.skipped += 1
            return []
        if reason is not None or found is None:
            self._skip([commit_id], reason)
            return []
        store.set_note(self._c, [commit_id], skipped_reason=None)
        return [
            WantedRun(commit_id=commit_id, suite=suite.name, testbed=testbed, spec=suite.spec())
            for suite in suites
            for testbed in suite.testbeds
        ]

    def _note_untouched(self, commit_id: int, found: Manifest | None, paths: Sequence[str] | None) -> None:
        """A suite is not to be blamed on commits that cannot have changed it. One that changes how suites are run may
        have changed them all."""
        if found is None or paths is None or FILE_NAME in paths:
            return
        effort = Effort()
        store.set_untouched(
            self._c, commit_id, [suite.name for suite in found.suites if not suite.matters(paths, effort)]
        )

    def _skip(self, commit_ids: Sequence[int], reason: str | None) -> None:
        store.set_note(self._c, commit_ids, skipped_reason=reason)
        self.skipped += len(commit_ids)


def to_run(
    found: Manifest | None, branch: str, paths: Sequence[str] | None, *, is_default: bool
) -> tuple[str | None, list[Suite]]:
    """The suites that a commit is benchmarked with; or none, and why, as a sentence for people. Raises ManifestInvalid
    if its patterns are too expensive to compare."""
    effort = Effort()
    if found is None:
        return f"no {FILE_NAME} in this commit, so it does not say what to run", []
    if not found.suites:
        return f"{FILE_NAME} declares no [suite.NAME]", []
    if not is_default and not found.wants_branch(branch, effort):
        return f"branch {branch} is not benchmarked; `branches` in {FILE_NAME} names those that are", []
    suites = [suite for suite in found.suites if paths is None or suite.matters(paths, effort)]
    return (None if suites else _unchanged(paths or ())), suites


def _unchanged(paths: Sequence[str]) -> str:
    if not paths:
        return "it changes no file"
    more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
    shown = ", ".join(path[:MAX_SHOWN_PATH] for path in paths[:SHOWN_PATHS])
    return f"changes only {shown}{more}, which `paths` of no suite names"
