"""Schedules of projects, and the slots that were served: the key of a slot lets two beats serve it once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, RowMapping, delete, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from backend.store.tables.sessions import schedule, schedule_slot

_SAVE = text(
    """INSERT INTO schedule (project_id, name, definition, next_at, updated_at)
       VALUES (:project, :name, CAST(:definition AS jsonb), :next_at, :now)
       ON CONFLICT (project_id, name) DO UPDATE SET definition = excluded.definition, next_at = excluded.next_at,
         updated_at = excluded.updated_at
       WHERE schedule.definition <> excluded.definition"""
)
_DUE = text(
    """SELECT s.project_id, s.name, s.definition, s.next_at, p.slug AS project FROM schedule s
       JOIN project p ON p.id = s.project_id
       WHERE s.next_at <= :now ORDER BY s.next_at, s.name FOR UPDATE OF s SKIP LOCKED"""
)
_LIST = text(
    """SELECT s.project_id, p.slug AS project, s.name, s.definition, s.next_at, l.slot_at, l.served_at, l.outcome,
         l.run_ids, l.session_ids
       FROM schedule s JOIN project p ON p.id = s.project_id
       LEFT JOIN LATERAL (SELECT * FROM schedule_slot WHERE project_id = s.project_id AND name = s.name
                          ORDER BY slot_at DESC LIMIT 1) AS l ON true
       WHERE CAST(:project AS integer) IS NULL OR s.project_id = :project ORDER BY p.slug, s.name"""
)


def save(c: Connection, project_id: int, entries: Sequence[tuple[Mapping[str, Any], datetime]], now: datetime) -> None:
    """The schedules of a project are exactly these: (definition, next turn). One that is unchanged keeps its turn."""
    names = [entry["name"] for entry, _ in entries]
    c.execute(delete(schedule).where(schedule.c.project_id == project_id, schedule.c.name.not_in(names)))
    for entry, next_at in entries:
        values = {"project": project_id, "name": entry["name"], "definition": orjson.dumps(entry).decode()}
        c.execute(_SAVE, {**values, "next_at": next_at, "now": now})


def due(c: Connection, now: datetime) -> Sequence[RowMapping]:
    """Schedules whose turn has come, locked; those that another beat is serving are left to it."""
    return c.execute(_DUE, {"now": now}).mappings().all()


def take_slot(c: Connection, project_id: int, name: str, slot_at: datetime, now: datetime) -> bool:
    """Whether the slot is ours: it has not been served."""
    statement = upsert(schedule_slot).values(project_id=project_id, name=name, slot_at=slot_at, served_at=now)
    taken = statement.on_conflict_do_nothing().returning(schedule_slot.c.name)
    return c.execute(taken).one_or_none() is not None


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """What became of a slot, as a sentence, and the ids of what was requested for it."""

    sentence: str
    runs: Sequence[str] = ()
    sessions: Sequence[str] = ()


def end_slot(c: Connection, project_id: int, name: str, slot_at: datetime, outcome: SlotOutcome) -> None:
    where = (
        schedule_slot.c.project_id == project_id,
        schedule_slot.c.name == name,
        schedule_slot.c.slot_at == slot_at,
    )
    values = {"outcome": outcome.sentence, "run_ids": list(outcome.runs), "session_ids": list(outcome.sessions)}
    c.execute(update(schedule_slot).where(*where).values(**values))


def set_next(c: Connection, project_id: int, name: str, next_at: datetime) -> None:
    where = (schedule.c.project_id == project_id, schedule.c.name == name)
    c.execute(update(schedule).where(*where).values(next_at=next_at))


def list_schedules(c: Connection, project_id: int | None) -> Sequence[RowMapping]:
    return c.execute(_LIST, {"project": project_id}).mappings().all()
