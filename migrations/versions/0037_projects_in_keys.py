"""The project in every key, so that the tables of one project can lie on one machine; numbers of judgements in columns

Revision ID: 0037
Revises: 0036

What belongs to a project is numbered within it: (id, project_id) instead of (id), and so are the references, which can
therefore only lead to rows of the same project. What was known to belong to a project by its run, series or branch
gets the column. Measurements and judgements are written anew, partition by partition, with their columns in an order
that leaves no gaps, and with what almost every judgement says in columns instead of JSON: half a minute for each
million, and until the end as much space on the disk as they take.
The version before cannot write to these tables; it is 0.1.0, which is stopped for the upgrade anyway.
"""

from collections.abc import Mapping

import sqlalchemy as sa
from alembic import op

from backend.store.base.schema import SetTooLow

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

NUMBERED = (
    "branch", "commit", "run", "series", "regression", "session", "bisection", "backfill", "incident", "joint_question",
    "notify_rule",
)  # fmt: skip
# What belongs to something else: its key, then by which column, and of which table.
PARTS = {
    "branch_commit": ("branch_id, position", "branch_id", "branch"),
    "result": ("run_id, index", "run_id", "run"),
    "run_event": ("id", "run_id", "run"),
    "artifact": ("run_id, name", "run_id", "run"),
    "rollup": ("series_id, granularity, bucket", "series_id", "series"),
    "change_point": ("id", "series_id", "series"),
    "regression_event": ("id", "regression_id", "regression"),
    "unseen_event": ("event_id", "event_id", "regression_event"),
    "session_turn": ("session_id, number", "session_id", "session"),
    "session_series": ("id", "session_id", "session"),
    "bisection_step": ("bisection_id, number", "bisection_id", "bisection"),
    "backfill_run": ("backfill_id, position", "backfill_id", "backfill"),
    "notify_message": ("id", "rule_id", "notify_rule"),
}
REFERENCES = (
    ("tag", "commit_id", "commit", "CASCADE"),
    ("branch_commit", "branch_id", "branch", "CASCADE"),
    ("branch_commit", "commit_id", "commit", "CASCADE"),
    ("run", "commit_id", "commit", "CASCADE"),
    ("result", "run_id", "run", "CASCADE"),
    ("run_event", "run_id", "run", "CASCADE"),
    ("artifact", "run_id", "run", "CASCADE"),
    ("regression", "first_bad_commit_id", "commit", ""),
    ("regression", "last_good_commit_id", "commit", ""),
    ("regression", "fixed_commit_id", "commit", ""),
    ("regression", "lead_series_id", "series", "SET NULL"),
    ("change_point", "series_id", "series", "CASCADE"),
    ("change_point", "regression_id", "regression", "SET NULL"),
    ("change_point", "onset_commit_id", "commit", ""),
    ("regression_event", "regression_id", "regression", "CASCADE"),
    ("unseen_event", "event_id", "regression_event", "CASCADE"),
    ("session", "regression_id", "regression", "CASCADE"),
    ("session", "bisection_id", "bisection", "CASCADE"),
    ("session", "lead_series_id", "series", "SET NULL"),
    ("session", "base_commit_id", "commit", "CASCADE"),
    ("session", "head_commit_id", "commit", "CASCADE"),
    ("session_turn", "session_id", "session", "CASCADE"),
    ("session_series", "session_id", "session", "CASCADE"),
    ("session_series", "series_id", "series", "SET NULL"),
    ("bisection", "regression_id", "regression", "CASCADE"),
    ("bisection", "series_id", "series", "CASCADE"),
    ("bisection", "last_good_commit_id", "commit", "CASCADE"),
    ("bisection", "first_bad_commit_id", "commit", "CASCADE"),
    ("bisection_step", "bisection_id", "bisection", "CASCADE"),
    ("backfill_run", "backfill_id", "backfill", "CASCADE"),
    ("incident", "regression_id", "regression", "SET NULL"),
    ("joint_question", "session_id", "session", "CASCADE"),
    ("notify_message", "rule_id", "notify_rule", "CASCADE"),
    ("notify_message", "regression_id", "regression", "CASCADE"),
)
"""(table, column, the table it refers to, what becomes of the row when that is deleted)"""

MEASUREMENT = """
  series_id integer NOT NULL, project_id integer NOT NULL, measured_at timestamptz NOT NULL, commit_id bigint NOT NULL,
  value float8 NOT NULL, result_index smallint NOT NULL, measurement_index smallint NOT NULL, run_id text NOT NULL,
  processes float8[], samples_packed bytea, sample_counts integer[], samples float8[]
"""
MEASUREMENT_BEFORE = """
  series_id integer NOT NULL, run_id text NOT NULL, measured_at timestamptz NOT NULL, commit_id bigint NOT NULL,
  result_index smallint NOT NULL, measurement_index smallint NOT NULL, value float8 NOT NULL, processes float8[],
  samples float8[], sample_counts integer[], samples_packed bytea
"""
JUDGEMENT = """
  id bigint NOT NULL, measured_at timestamptz NOT NULL, commit_id bigint NOT NULL, value float8 NOT NULL,
  baseline float8, band_low float8, band_high float8, smoothed float8, smoothed_low float8, smoothed_high float8,
  anchor float8, noise float8, minimum_detectable_effect float8, min_change float8, worker_offset float8,
  judged_at timestamptz NOT NULL DEFAULT now(), superseded_at timestamptz, project_id integer NOT NULL,
  series_id integer NOT NULL, branch_id integer, position integer NOT NULL, regression_id integer,
  since_position integer, n_baseline integer, runs_of_level integer, change real, change_low real, change_high real,
  anchor_change real, sees real, have smallint, need smallint, sustained_runs smallint,
  onset boolean NOT NULL DEFAULT false, red boolean NOT NULL DEFAULT false, verdict text NOT NULL,
  reason text NOT NULL, run_id text NOT NULL, policy_version text NOT NULL, detail jsonb NOT NULL DEFAULT '{}'::jsonb
"""
JUDGEMENT_BEFORE = """
  id bigint NOT NULL, measured_at timestamptz NOT NULL, series_id integer NOT NULL, branch_id integer,
  position integer NOT NULL, commit_id bigint NOT NULL, run_id text NOT NULL, value float8 NOT NULL,
  verdict text NOT NULL, onset boolean NOT NULL DEFAULT false, change real, change_low real, change_high real,
  baseline float8, band_low float8, band_high float8, smoothed float8, smoothed_low float8, smoothed_high float8,
  anchor float8, anchor_change real, have smallint, need smallint, regression_id integer,
  detail jsonb NOT NULL DEFAULT '{}'::jsonb, policy_version text NOT NULL,
  judged_at timestamptz NOT NULL DEFAULT now(), superseded_at timestamptz, red boolean NOT NULL DEFAULT false, sees real
"""
VERDICTS = """
  CONSTRAINT ck_judgement_verdict CHECK (
    verdict IN ('regression', 'improvement', 'unchanged', 'suspect', 'unsteady', 'insufficient'))
"""
STANDING = """
CREATE INDEX ix_judgement_standing ON judgement (series_id, position DESC)
INCLUDE (measured_at, commit_id, run_id, value, verdict, onset, change, regression_id, have, need, sees)
WHERE superseded_at IS NULL AND branch_id IS NULL
"""
OF_BRANCH = """
CREATE INDEX ix_judgement_branch ON judgement (branch_id, series_id, position)
WHERE superseded_at IS NULL AND branch_id IS NOT NULL
"""
# Rows arrive by run. While runs arrive in order, a page is full when the next begins; those out of order split it.
FULL = " WITH (fillfactor = 100)"
WIDEN = """
CREATE OR REPLACE FUNCTION widen_position_span() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO position_span AS p (project_id, month, first_position, last_position)
  SELECT n.* FROM (
    SELECT {project}, date_trunc('month', j.measured_at, 'UTC') AS month,
           min(j.position) & ~15 AS first_position, max(j.position) | 15 AS last_position
    FROM {moved}
    WHERE j.branch_id IS NULL AND j.superseded_at IS NULL GROUP BY 1, 2) AS n
  WHERE NOT EXISTS (
    SELECT FROM position_span k WHERE k.project_id = n.project_id AND k.month = n.month
      AND k.first_position <= n.first_position AND k.last_position >= n.last_position)
  ORDER BY 1, 2
  ON CONFLICT (project_id, month) DO UPDATE SET
    first_position = least(p.first_position, excluded.first_position),
    last_position = greatest(p.last_position, excluded.last_position);
  RETURN NULL;
END $$
"""
# What a column says that was a part of `detail` before, and what is left of it.
FROM_DETAIL = {
    "reason": "coalesce(o.detail ->> 'reason', 'within_band')",
    "since_position": "(o.detail ->> 'since_position')::integer",
    "noise": "(o.detail ->> 'noise')::float8",
    "minimum_detectable_effect": "(o.detail ->> 'minimum_detectable_effect')::float8",
    "n_baseline": "(o.detail ->> 'n_baseline')::integer",
    **{name: f"(o.detail #>> '{{numbers,{name}}}')::float8" for name in ("min_change", "worker_offset")},
    **{name: f"(o.detail #>> '{{numbers,{name}}}')::float8::integer" for name in ("runs_of_level", "sustained_runs")},
    "detail": """(o.detail - '{reason,since_position,noise,minimum_detectable_effect,n_baseline,numbers}'::text[])
      || jsonb_strip_nulls(jsonb_build_object('numbers', nullif(
           (o.detail -> 'numbers') - '{min_change,runs_of_level,worker_offset,sustained_runs}'::text[], '{}')))""",
}
TO_DETAIL = {
    "detail": """jsonb_strip_nulls(jsonb_build_object(
        'reason', o.reason, 'since_position', o.since_position, 'noise', o.noise,
        'minimum_detectable_effect', o.minimum_detectable_effect, 'n_baseline', o.n_baseline, 'numbers', nullif(
          coalesce(o.detail -> 'numbers', '{}') || jsonb_strip_nulls(jsonb_build_object(
            'min_change', o.min_change, 'runs_of_level', o.runs_of_level, 'worker_offset', o.worker_offset,
            'sustained_runs', o.sustained_runs)), '{}'))) || (o.detail - 'numbers')""",
}
PARTITIONS = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), quote_literal(obj_description(c.oid, 'pg_class'))
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = CAST(:parent AS regclass) ORDER BY c.relname
"""
REFERRING = """
SELECT conrelid::regclass::text, conname FROM pg_constraint
WHERE contype = 'f' AND conparentid = 0 AND confrelid = ANY (CAST(CAST(:tables AS text[]) AS regclass[]))
"""
PRIVILEGES = """
SELECT format('GRANT %s ON %I TO %s%s', a.privilege_type, c.relname,
              CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM pg_class c, aclexplode(c.relacl) a
WHERE a.grantee <> c.relowner AND c.oid IN (
  SELECT CAST(:table AS regclass) UNION ALL
  SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:table AS regclass))
"""
# Of each partition the transaction locks the old and the new table, their indexes, and what belongs to them: 37 in all.
LOCKS = """
SELECT set_to, set_to * CAST(current_setting('max_connections') AS integer) AS there_are, 750 + 40 * (
         SELECT count(*) FROM pg_inherits
         WHERE inhparent = ANY (ARRAY['measurement'::regclass, 'judgement'::regclass])) AS needed
FROM CAST(current_setting('max_locks_per_transaction') AS integer) AS set_to
"""


def upgrade() -> None:
    _lock_all()
    _drop_references()
    for table in NUMBERED:
        _set_key(table, "id, project_id")
    for table, (key, column, parent) in PARTS.items():
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT pk_{table}, ADD COLUMN project_id integer")
        op.execute(f"UPDATE {table} t SET project_id = p.project_id FROM {parent} p WHERE p.id = t.{column}")
        op.execute(f"DELETE FROM {table} WHERE project_id IS NULL")  # of what was removed; nothing reads it
        # The conversion, to what it is already, writes the table anew, without the rows as they were before the update.
        op.execute(
            f"""ALTER TABLE {table} ALTER COLUMN project_id TYPE integer USING project_id + 0,
                ALTER COLUMN project_id SET NOT NULL,
                ADD CONSTRAINT pk_{table} PRIMARY KEY ({key}, project_id)"""
        )
    _set_other_keys(", project_id")
    for table, column, parent, then in REFERENCES:
        these = f"SET NULL ({column})" if then == "SET NULL" else then
        _refer(table, column, parent, these, f"{column}, project_id", "id, project_id")
    _write_anew("measurement", MEASUREMENT, "run_id, series_id, measured_at, project_id", {}, FULL)
    _write_anew("judgement", f"{JUDGEMENT}, {VERDICTS}", "id, measured_at, project_id", FROM_DETAIL)
    op.execute(WIDEN.format(project="j.project_id", moved="moved j"))
    _dress_judgement()
    op.execute("ANALYZE measurement, judgement")  # nothing is known of them: they are new


def downgrade() -> None:
    _lock_all()
    op.execute(WIDEN.format(project="s.project_id", moved="moved j JOIN series s ON s.id = j.series_id"))
    _write_anew("measurement", MEASUREMENT_BEFORE, "run_id, series_id, measured_at", {})
    _write_anew("judgement", f"{JUDGEMENT_BEFORE}, {VERDICTS}", "id, measured_at", TO_DETAIL)
    _dress_judgement()
    op.execute("ANALYZE measurement, judgement")
    _drop_references()
    _set_other_keys("")
    for table, (key, _, _) in PARTS.items():
        _set_key(table, key)
        op.execute(f"ALTER TABLE {table} DROP COLUMN project_id")
    for table in NUMBERED:
        _set_key(table, "id")
    for table, column, parent, then in REFERENCES:
        _refer(table, column, parent, then, column, "id")


def _lock_all() -> None:
    """Wait for whoever uses these tables before anything is done; nobody adds to them meanwhile."""
    set_to, there_are, needed = op.get_bind().execute(sa.text(LOCKS)).one()
    if there_are < needed:
        raise SetTooLow(
            f"this store has so many months that the migration needs {needed} locks, and PostgreSQL has room for "
            f"{there_are}; set max_locks_per_transaction to {-(-needed * set_to // there_are)} (it is {set_to}), "
            "restart PostgreSQL, and run it again"
        )
    op.execute(f"LOCK TABLE {', '.join(('measurement', 'judgement', *NUMBERED, *PARTS))} IN ACCESS EXCLUSIVE MODE")


def _drop_references() -> None:
    tables = [*NUMBERED, *PARTS]
    for table, name in op.get_bind().execute(sa.text(REFERRING), {"tables": tables}).all():
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def _set_key(table: str, columns: str) -> None:
    op.execute(f"ALTER TABLE {table} DROP CONSTRAINT pk_{table}")
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT pk_{table} PRIMARY KEY ({columns})")


def _set_other_keys(project: str) -> None:
    """What else is unique, within a project or (without `project`) among all."""
    op.execute("DROP INDEX uq_session_confirming, uq_bisection_running")
    op.execute(
        f"""CREATE UNIQUE INDEX uq_session_confirming ON session (regression_id{project})
            WHERE purpose = 'confirm' AND state IN ('waiting', 'running')"""
    )
    op.execute(
        f"CREATE UNIQUE INDEX uq_bisection_running ON bisection (regression_id{project}) WHERE state = 'running'"
    )
    op.execute("ALTER TABLE notify_message DROP CONSTRAINT uq_notify_message_key")
    op.execute(f"ALTER TABLE notify_message ADD CONSTRAINT uq_notify_message_key UNIQUE (rule_id, key{project})")
    named = "uq_branch_commit_branch_id_commit_id"
    old, new = (named, f"{named}_project_id") if project else (f"{named}_project_id", named)
    op.execute(f"ALTER TABLE branch_commit DROP CONSTRAINT {old}")
    op.execute(f"ALTER TABLE branch_commit ADD CONSTRAINT {new} UNIQUE (branch_id, commit_id{project})")


def _refer(table: str, column: str, parent: str, then: str, columns: str, key: str) -> None:
    op.execute(
        f"""ALTER TABLE {table} ADD CONSTRAINT fk_{table}_{column}_{parent}
            FOREIGN KEY ({columns}) REFERENCES {parent} ({key}) {f"ON DELETE {then}" if then else ""}"""
    )


def _write_anew(table: str, columns: str, key: str, derived: Mapping[str, str], storage: str = "") -> None:
    """A partitioned table with these columns, and in it what there was."""
    connection = op.get_bind()
    privileges = connection.scalars(sa.text(PRIVILEGES), {"table": table}).all()
    partitions = connection.execute(sa.text(PARTITIONS), {"parent": table}).all()
    before = {column["name"] for column in sa.inspect(connection).get_columns(table)}
    op.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
    op.execute(f"ALTER TABLE {table}_before DROP CONSTRAINT pk_{table}")
    if table == "judgement":
        op.execute("DROP INDEX ix_judgement_standing, ix_judgement_branch, ix_judgement_run_id")
        op.execute("ALTER SEQUENCE judgement_id_seq RENAME TO judgement_before_id_seq")
    op.execute(f"CREATE TABLE {table} ({columns}) PARTITION BY RANGE (measured_at)")
    after = [column["name"] for column in sa.inspect(connection).get_columns(table)]
    read = ", ".join(derived.get(name) or (f"o.{name}" if name in before else f"s.{name}") for name in after)
    project = "" if "project_id" in before else "JOIN series s ON s.id = o.series_id"
    for partition, bound, name_of_file in partitions:
        op.execute(f"ALTER TABLE {partition} RENAME TO {partition}_before")
        op.execute(f"CREATE TABLE {partition} PARTITION OF {table} {bound}")
        op.execute(f"INSERT INTO {partition} ({', '.join(after)}) SELECT {read} FROM {partition}_before o {project}")
        op.execute(f"DROP TABLE {partition}_before")
        if name_of_file is not None:  # of its month, once it is archived (backend/store/archive/months.py)
            _execute_as_it_is(f"COMMENT ON TABLE {partition} IS {name_of_file}")
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT pk_{table} PRIMARY KEY ({key}){storage}")
    if table == "judgement":
        _go_on_numbering()
    for privilege in privileges:
        _execute_as_it_is(privilege)
    op.execute(f"DROP TABLE {table}_before")


def _execute_as_it_is(statement: str) -> None:
    op.execute(statement.replace(":", "\\:"))


def _go_on_numbering() -> None:
    op.execute(
        "ALTER TABLE judgement ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME judgement_id_seq)"
    )
    op.execute("SELECT setval('judgement_id_seq', last_value, is_called) FROM judgement_before_id_seq")


def _dress_judgement() -> None:
    op.execute(STANDING)
    op.execute(OF_BRANCH)
    op.execute("CREATE INDEX ix_judgement_run_id ON judgement (run_id)")
    for event in ("INSERT", "UPDATE"):
        op.execute(
            f"""CREATE TRIGGER widen_position_span_{event.lower()} AFTER {event} ON judgement
                REFERENCING NEW TABLE AS moved FOR EACH STATEMENT EXECUTE FUNCTION widen_position_span()"""
        )
