"""Why a project's series are not judged jointly, in sentences for people, with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection

from backend.services.base.scope import find_project
from backend.services.sessions.budget import DAY, SessionBudget, budget_of
from backend.store.joint import pauses as store
from backend.store.joint.pauses import Pause

MOST_OF_WHY = 300
EACH_BY_ITSELF = "Until then, each series is judged separately, and no result is lost."
WHO_HELPS = "If it persists, look in the log for “cannot be judged together” or “could not be read”."


def joint_status(c: Connection, slug: str, now: datetime) -> tuple[str, ...]:
    """Notes on the joint detector for a project's pages; empty where all is well."""
    project = find_project(c, slug)
    said = [sentence_of(pause, now) for pause in store.pauses(c, project.id)]
    budget = budget_of(c, project.id, now)
    return (*said, *([] if budget.left else [used_up(budget)]))


def sentence_of(pause: Pause, now: datetime) -> str:
    """One pause, for people."""
    what = f"The series of suite {pause.suite}" if pause.suite else "The series of this project"
    again = f"at {pause.until:%H:%M} UTC" if pause.until > now else "within seconds"
    return (
        f"{what} have not been judged jointly since {pause.since:%Y-%m-%d %H:%M} UTC ({pause.why}). It is "
        f"retried automatically {again}. {EACH_BY_ITSELF} {WHO_HELPS}"
    )


def used_up(budget: SessionBudget) -> str:
    """No session can be requested: when the next one can, and what happens meanwhile."""
    if budget.free_at is None:
        return "By its policy (sessions_per_day 0) no session is requested: the following commits decide."
    return (
        f"All {budget.allowed} confirming sessions of {DAY.days * 24} hours are used up (sessions_per_day of its "
        f"policy). Until {budget.free_at:%Y-%m-%d %H:%M} UTC new suspects get none: the following commits decide."
    )


def note_pauses(c: Connection, project_id: int, paused: Mapping[str, tuple[datetime, str]], now: datetime) -> None:
    """Keep for people what pauses now, until when and why, by suite ('': the whole project); all else has ended."""
    known = {pause.suite: pause for pause in store.pauses(c, project_id)}
    wanted = [
        Pause(suite, known[suite].since if suite in known else now, until, why[:MOST_OF_WHY])
        for suite, (until, why) in sorted(paused.items())
    ]
    if wanted != list(known.values()):
        store.put_pauses(c, project_id, wanted)


def why_of(error: BaseException) -> str:
    """An error in a line."""
    lines: Iterable[str] = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *list(lines)[:1]])
