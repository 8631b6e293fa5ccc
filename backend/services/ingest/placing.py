"""Positions for the commits of an imported history: by their times, in whatever order their files arrive.

If a repository is connected, its first-parent order is the order of the branch, and nothing is placed here.
Otherwise only the file is available: it says when each commit was made, by whom, and its message.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection

from backend.contract import Run
from backend.services.repository.sync import judge_in_new_order
from backend.store.base import commits as commit_store
from backend.store.base import projects as project_store
from backend.store.ingest import imports as store
from backend.store.ingest import record as ingest_store
from backend.store.joint import incidents


@dataclass(frozen=True, slots=True)
class Dated:
    """A commit and when it was made, if known."""

    sha: str
    at: datetime | None


def in_order(c: Connection, runs: Sequence[Run], now: datetime) -> list[Run]:
    """The runs, those of earlier commits first, after the commits that their files describe have been placed."""
    placed: dict[tuple[str, str], int] = {}
    for slug in dict.fromkeys(run.project for run in runs):
        positions = _place(c, slug, [run for run in runs if run.project == slug], now)
        placed |= {(slug, sha): position for sha, position in positions.items()}
    last = len(placed)
    return sorted(runs, key=lambda run: placed.get((run.project, run.commit), last))


def _place(c: Connection, slug: str, runs: Sequence[Run], now: datetime) -> Mapping[str, int]:
    """Give the commits that a history dates their places on the default branch; where each of them is then."""
    project = project_store.find(c, slug)
    dated = [run for run in runs if run.commit_info is not None and run.commit_info.at is not None]
    trunk = project.default_branch if project is not None else None
    told = {
        run.commit: run for run in dated if run.pull_request is None and run.branch in (None, trunk, runs[0].branch)
    }
    if not told or (project is not None and project.repository_url is not None):
        return {}
    if project is None:
        ingest_store.ensure_project(c, slug, runs[0].branch or "main")
        project = project_store.find(c, slug)
        assert project is not None
        told = {sha: run for sha, run in told.items() if run.branch in (None, project.default_branch)}
    branch_id = ingest_store.ensure_branch(c, project.id, project.default_branch)
    store.describe_commits(c, project.id, (_row(run) for run in told.values()))
    if _merged_line(c, branch_id, told).moves:
        incidents.lock(c, project.id)  # its judge changes questions before it locks series
        ingest_store.move_positions(c, slug)
    store.lock_branch(c, branch_id)
    line = _merged_line(c, branch_id, told)
    if line.first < len(line.shas):
        ids = commit_store.ids_of(c, project.id, line.shas[line.first :])
        commit_store.replace_line(c, branch_id, line.first, [ids[sha] for sha in line.shas[line.first :]])
        commit_store.save_branch(c, project.id, project.default_branch, line.shas[-1], now)
        if line.moves:
            judge_in_new_order(c, project.id, branch_id, line.first, now)
    return {sha: position for position, sha in enumerate(line.shas)}


@dataclass(frozen=True, slots=True)
class _Line:
    """A branch as it is to be: it differs from position `first` on, and `moves` commits that have a place."""

    shas: list[str]
    first: int
    moves: bool


def _merged_line(c: Connection, branch_id: int, told: Mapping[str, Run]) -> _Line:
    line = [Dated(sha, at) for sha, at in store.dated_line(c, branch_id)]
    known = {commit.sha for commit in line}
    whole = merged(line, [Dated(sha, _committed(run)) for sha, run in told.items() if sha not in known])
    first = next((n for n, commit in enumerate(whole) if n >= len(line) or commit != line[n]), len(whole))
    return _Line([commit.sha for commit in whole], first, first < len(line))


def merged(line: Sequence[Dated], new: Iterable[Dated]) -> list[Dated]:
    """The line with new commits in it, each after the last one that is not younger. Existing commits keep their order,
    whatever their dates say; one without a date stays with the commit before it."""
    reached: list[datetime] = []
    for commit in line:
        before = reached[-1] if reached else datetime.min.replace(tzinfo=UTC)
        reached.append(max(before, commit.at or before))
    after: dict[int, list[Dated]] = {}
    for commit in sorted(new, key=lambda commit: commit.at or datetime.max.replace(tzinfo=UTC)):
        after.setdefault(bisect_right(reached, commit.at) if commit.at else len(line), []).append(commit)
    whole = list(after.get(0, ()))
    for number, commit in enumerate(line, start=1):
        whole += [commit, *after.get(number, ())]
    return whole


def describe(c: Connection, project_id: int, run: Run) -> None:
    """Store what a run says about its commit, if it was unknown."""
    if run.commit_info is not None:
        store.describe_commits(c, project_id, [_row(run)])


def _committed(run: Run) -> datetime | None:
    at = None if run.commit_info is None else run.commit_info.at
    return None if at is None else datetime.fromisoformat(at).astimezone(UTC)


def _row(run: Run) -> dict[str, object]:
    info = run.commit_info
    assert info is not None
    return {
        "sha": run.commit,
        "parents": list(run.parents),
        "message": info.message or "",
        "author_name": info.author or "",
        "committed_at": _committed(run),
    }
