"""Suspect commits: those after the last good run, up to the first bad one, that touch what the suite measures."""

from __future__ import annotations


def touching(columns: str, *, of: str, first_bad: str) -> str:
    """SQL for `columns`, aggregates of the suspects (bc: their places, k: the commits) of a row `of`, whose series is
    `s`. If the first bad commit directly follows the last good one, nothing is queried.

    A commit is left out if it is known that none of the suite's `paths` matches what it changed.
    """
    return f"""SELECT {columns} FROM project q
       JOIN branch b ON b.project_id = q.id AND b.name = q.default_branch
       JOIN branch_commit bc ON bc.branch_id = b.id
         AND bc.position > {of}.last_good_position AND bc.position <= {of}.{first_bad}
       JOIN commit k ON k.id = bc.commit_id AND NOT (s.suite = ANY (coalesce(k.untouched_suites, '{{}}')))
       WHERE q.id = s.project_id AND {of}.last_good_position < {of}.{first_bad} - 1"""
