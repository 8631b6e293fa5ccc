"""What keeps all series from being judged side by side, in plain sentences for people, with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection

from backend.services.base.scope import find_project
from backend.services.sessions.budget import DAY, SessionBudget, budget_of
from backend.store.joint import rests as store
from backend.store.joint.rests import Rest

MOST_OF_WHY = 300
EACH_BY_ITSELF = "Until then every series is judged by itself, and nothing of what arrives is lost."
WHO_HELPS = "If it goes on, what is logged under “cannot be judged together” or “could not be read” says where."


def standing(c: Connection, slug: str, now: datetime) -> tuple[str, ...]:
    """What a reader of this project should know; nothing: its fleet is judged, and may ask."""
    project = find_project(c, slug)
    said = [sentence_of(rest, now) for rest in store.rests(c, project.id)]
    budget = budget_of(c, project.id, now)
    return (*said, *([] if budget.left else [used_up(budget)]))


def sentence_of(rest: Rest, now: datetime) -> str:
    """One rest, for people."""
    what = f"The series of suite {rest.suite}" if rest.suite else "The series of this project"
    again = f"at {rest.until:%H:%M} UTC" if rest.until > now else "at the next look, in seconds"
    return (
        f"{what} have not been judged side by side since {rest.since:%Y-%m-%d %H:%M} UTC ({rest.why}). It is tried "
        f"again by itself {again}. {EACH_BY_ITSELF} {WHO_HELPS}"
    )


def used_up(budget: SessionBudget) -> str:
    """No session can be asked for: since when the next can, and what happens meanwhile."""
    if budget.free_at is None:
        return "By its policy (sessions_per_day 0) no suspect is asked about: the following commits decide."
    return (
        f"All {budget.allowed} confirming sessions of {DAY.days * 24} hours are used up (sessions_per_day of its "
        f"policy). Until {budget.free_at:%Y-%m-%d %H:%M} UTC new suspects get none: the following commits decide."
    )


def note_rests(c: Connection, project_id: int, resting: Mapping[str, tuple[datetime, str]], now: datetime) -> None:
    """Keep for people what rests now, until when and why, by suite ('': the whole project); all else has ended."""
    known = {rest.suite: rest for rest in store.rests(c, project_id)}
    wanted = [
        Rest(suite, known[suite].since if suite in known else now, until, why[:MOST_OF_WHY])
        for suite, (until, why) in sorted(resting.items())
    ]
    if wanted != list(known.values()):
        store.put_rests(c, project_id, wanted)


def why_of(error: BaseException) -> str:
    """An error in a line."""
    lines: Iterable[str] = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *list(lines)[:1]])
