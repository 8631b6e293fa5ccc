"""A filled database of version 0.1.0, and everything that a database has told anybody: what upgrades and restores keep.

`tests/migrations/0.1.0.sql.gz` was written by pg_dump from a service of that version: 25 commits on two testbeds, a
regression that is acknowledged and one that was fixed, an improvement, a failed run, runs that wait, a backfill, a
session, a policy that was just chosen.
"""

from __future__ import annotations

import gzip
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from tidemark import database as commands
from tidemark.machine.postgres import EmbeddedPostgres

DUMP = Path(__file__).with_name("migrations") / "0.1.0.sql.gz"
SAID: dict[str, str] = {
    "judgements": """SELECT id, series_id, run_id, commit_id, position, value, verdict, onset, change, change_low,
                            change_high, baseline, band_low, band_high, smoothed, anchor, anchor_change, have, need,
                            regression_id, policy_version, judged_at, superseded_at, {explained} AS detail
                     FROM judgement ORDER BY id""",
    "red": "SELECT id FROM judgement WHERE {red} ORDER BY id",
    "regressions": """SELECT id, state, kind, cause, evidence, first_bad_position, last_good_position,
                             first_bad_commit_id, last_good_commit_id, lead_series_id, lead_change, still_bad, owner,
                             reason, fixed_commit_id, opened_at, confirmed_at, closed_at
                      FROM regression ORDER BY id""",
    "history": "SELECT id, regression_id, at, kind, actor, note, detail FROM regression_event ORDER BY id",
    "runs": "SELECT id, state, status, error, attempt, document FROM run ORDER BY id",
    "measurements": "SELECT run_id, series_id, value, processes FROM measurement ORDER BY run_id, series_id",
}


AT_FIRST = {"red": "(detail ->> 'red')::boolean", "explained": "detail - 'red'"}
"""How 0.1.0 stored what has columns of its own now."""
NOW = {
    "red": "red",
    "explained": """jsonb_strip_nulls(jsonb_build_object(
        'reason', reason, 'since_position', since_position, 'noise', noise, 'minimum_detectable_effect',
        minimum_detectable_effect, 'n_baseline', n_baseline, 'numbers', nullif(coalesce(detail -> 'numbers', '{}') ||
          jsonb_strip_nulls(jsonb_build_object('min_change', min_change, 'runs_of_level', runs_of_level,
            'worker_offset', worker_offset, 'sustained_runs', sustained_runs)), '{}'))) || (detail - 'numbers')""",
}


def said(c: Connection, stored: Mapping[str, str] = NOW) -> dict[str, list[Any]]:
    """Everything that was told to anybody."""
    return {what: [tuple(row) for row in c.execute(text(sql.format(**stored)))] for what, sql in SAID.items()}


@contextmanager
def filled_database(postgres: EmbeddedPostgres, administer: Callable[[str], None], directory: Path) -> Iterator[str]:
    """The URL of a database that holds the dump, as 0.1.0 left it."""
    name = f"filled_{uuid.uuid4().hex}"
    script = directory / "dump.sql"
    script.write_bytes(gzip.decompress(DUMP.read_bytes()))
    administer(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    try:
        commands.run_tool(
            "psql", postgres.url_of(name), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={script}"
        )
        yield postgres.url_of(name)
    finally:
        administer(f"DROP DATABASE {name} WITH (FORCE)")
