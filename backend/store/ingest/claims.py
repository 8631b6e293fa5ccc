"""Facts about the commit whose result a workflow's token wants to deliver."""

from dataclasses import dataclass

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """`is_read`: the repository has brought it, not only a result that names it. `pull_request`: whose head it is."""

    default_branch: str
    on_default: bool
    is_read: bool
    pull_request: int | None
    was_requested: bool
    """The run is one that was queued for a worker."""


_KNOWN = text(
    """SELECT p.default_branch, bc.position IS NOT NULL AS on_default,
              coalesce(k.changed_paths IS NOT NULL, false) AS is_read,
              coalesce(k.pull_request, (SELECT q.number FROM pull_request q WHERE q.project_id = p.id
                                        AND q.head_sha = :commit ORDER BY q.number DESC LIMIT 1)) AS pull_request,
              EXISTS (SELECT FROM run r WHERE r.id = :run AND r.kind <> 'submitted') AS was_requested
       FROM project p
       LEFT JOIN commit k ON k.project_id = p.id AND k.sha = :commit
       LEFT JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       LEFT JOIN branch_commit bc ON bc.branch_id = b.id AND bc.commit_id = k.id
       WHERE p.slug = :project"""
)


def known_of(c: Connection, project: str, commit: str, run_id: str) -> Known | None:
    """None: there is no such project."""
    row = c.execute(_KNOWN, {"project": project, "commit": commit, "run": run_id}).one_or_none()
    return None if row is None else Known(**row._mapping)
