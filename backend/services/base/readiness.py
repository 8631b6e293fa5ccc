"""Whether the service can do its work: the database answers, its schema is ours, the broker answers."""

from collections.abc import Mapping
from dataclasses import dataclass

import redis
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from backend.services.base.config import ServiceConfig
from backend.services.base.reads import Reads
from backend.store.base.schema import is_known, revisions
from backend.store.joint.pauses import paused_by_project

OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    ready: bool
    checks: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """Warnings to the operator of a service that can do its work."""


def check(reads: Reads, config: ServiceConfig) -> Readiness:
    """Ask everything that is needed; each answer is `ok` or says what is wrong."""
    checks = {**_database(reads.primary), "broker": _broker(config)}
    ready = all(answer == OK for answer in checks.values())
    return Readiness(ready=ready, checks=checks, notes=_notes(reads) if ready else ())


def _notes(reads: Reads) -> tuple[str, ...]:
    return (*([] if reads.status is None else [str(reads.status)]), *_pauses(reads.primary))


def _pauses(engine: Engine) -> tuple[str, ...]:
    with engine.connect() as c:
        projects = len(paused_by_project(c))
    if not projects:
        return ()
    where = "1 project" if projects == 1 else f"{projects} projects"
    return (
        f"in {where}, series cannot be judged jointly for a while; this is retried automatically: "
        "tidemark_paused_joint_detectors in /metrics shows where, the Overview of the project why",
    )


def _database(engine: Engine) -> dict[str, str]:
    try:
        with engine.connect() as c:
            c.execute(text("SELECT 1"))
            at, expected = revisions(c)
    except SQLAlchemyError as error:
        return {"database": f"does not answer ({type(error).__name__})", "schema": "unknown"}
    # A later version may have migrated already, while this process is still to be replaced: its migrations keep what
    # the version before them needs.
    if at == expected or (at is not None and not is_known(at)):
        return {"database": OK, "schema": OK}
    return {"database": OK, "schema": f"is at {at or 'nothing'}, this version needs {expected}: tidemark db upgrade"}


def _broker(config: ServiceConfig) -> str:
    try:
        with redis.Redis.from_url(config.redis_url, socket_timeout=1, socket_connect_timeout=1) as broker:
            broker.ping()
    except (redis.RedisError, OSError) as error:
        return f"does not answer ({type(error).__name__})"
    return OK
