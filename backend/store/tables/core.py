"""The tables of what is watched, run and judged, as SQLAlchemy Core; the migrations create exactly these.

The others stand beside them on the same `metadata`: `access`, `github`, `joint`, `regressions`
and `sessions`.

Two tables grow without bound, `measurement` and `judgement`; both are partitioned by month of `measured_at` (the start
of the run), and hot reads touch one covering index of the judgements that stand (`superseded_at IS NULL`).
A judgement is never overwritten: judging again sets `superseded_at` on the old row and inserts a new one.
"""

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMING)

TIMESTAMP = DateTime(timezone=True)
NOW = text("now()")
EMPTY_OBJECT = text("'{}'::jsonb")
EMPTY_ARRAY = text("'{}'")


def of_project(column: str, parent: str, ondelete: str | None = None) -> ForeignKeyConstraint:
    """A row of another table, which is always of the same project."""
    return ForeignKeyConstraint([column, "project_id"], [f"{parent}.id", f"{parent}.project_id"], ondelete=ondelete)


def in_key() -> Column[int]:
    """The project, as a part of the primary key: the tables of one project can lie on one machine (docs/scale.md)."""
    return Column("project_id", Integer, primary_key=True, autoincrement=False)


def project_in_key() -> Column[int]:
    """The same, of what belongs to the project itself."""
    reference = ForeignKey("project.id", ondelete="CASCADE")
    return Column("project_id", reference, primary_key=True, autoincrement=False)


def at(name: str, *, nullable: bool = False, default: bool = False) -> Column[object]:
    return Column(name, TIMESTAMP, nullable=nullable, server_default=NOW if default else None)


# --- what is watched -------------------------------------------------------------------------------------------------

# A watched repository, or a place for results from elsewhere.
project = Table(
    "project",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("slug", Text, nullable=False, unique=True),  # "northsea/loom"
    Column("default_branch", Text, nullable=False, server_default="main"),
    Column("repository_url", Text),
    Column("trusted", Boolean, nullable=False, server_default=text("false")),  # its commits may run without isolation
    Column("policy", JSONB, nullable=False, server_default=EMPTY_OBJECT),  # overrides of backend.regression.policy
    Column("settings", JSONB, nullable=False, server_default=EMPTY_OBJECT),
    Column("private", Boolean, nullable=False, server_default=text("false")),  # visible only to its members and tokens
    Column("webhook_secret", Text),  # signs GitHub's deliveries for this project only; never returned
    Column("sync_requested_at", TIMESTAMP),
    Column("synced_at", TIMESTAMP),
    Column("sync_error", Text),
    at("created_at", default=True),
)

# Branches and their newest commits.
branch = Table(
    "branch",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    project_in_key(),
    Column("name", Text, nullable=False),
    Column("head_sha", Text),
    at("updated_at", default=True),
    Column("deleted_at", TIMESTAMP),
    UniqueConstraint("project_id", "name"),
)

# Commits of projects, as in git.
commit = Table(
    "commit",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    project_in_key(),
    Column("sha", Text, nullable=False),
    Column("parents", ARRAY(Text), nullable=False, server_default=EMPTY_ARRAY),
    Column("message", Text, nullable=False, server_default=""),
    Column("author_name", Text, nullable=False, server_default=""),
    Column("author_email", Text, nullable=False, server_default=""),
    Column("authored_at", TIMESTAMP),
    Column("committed_at", TIMESTAMP),
    Column("changed_paths", ARRAY(Text)),  # null: not known (yet)
    Column("untouched_suites", ARRAY(Text)),  # suites whose `paths` match nothing that it changed; null: not known
    Column("pull_request", Integer),
    Column("skipped_reason", Text),  # why no run was requested, e.g. only documentation changed
    Column("manifest_error", Text),  # what is wrong with its tidemark.toml
    at("recorded_at", default=True),
    UniqueConstraint("project_id", "sha"),
    Index(
        "ix_commit_words",
        text("(message || ' ' || author_name) gin_trgm_ops"),
        postgresql_using="gin",
    ),
    Index("ix_commit_date", "project_id", text("coalesce(committed_at, recorded_at)")),
)

# Tags of the repository that point to a recorded commit, as of the last sync.
tag = Table(
    "tag",
    metadata,
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("commit_id", BigInteger, nullable=False, index=True),
    of_project("commit_id", "commit", "CASCADE"),
)

# First-parent order of a branch: the root has position 0. Order is never a date.
branch_commit = Table(
    "branch_commit",
    metadata,
    Column("branch_id", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    in_key(),
    Column("commit_id", BigInteger, nullable=False, index=True),
    of_project("branch_id", "branch", "CASCADE"),
    of_project("commit_id", "commit", "CASCADE"),
    UniqueConstraint("branch_id", "commit_id", "project_id"),
)

# Classes of machines so similar that their results may form one series.
testbed = Table(
    "testbed",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text, nullable=False, server_default=""),
    at("created_at", default=True),
)

# Measuring machines and their state.
worker = Table(
    "worker",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("testbed_id", ForeignKey("testbed.id"), nullable=False, index=True),
    Column("project_id", ForeignKey("project.id", ondelete="SET NULL")),  # the only project of its token
    Column(
        "token_id", ForeignKey("api_token.id", ondelete="SET NULL")
    ),  # the token that owns its name; null: it never registered
    Column("version", Text, nullable=False, server_default=""),
    Column("capabilities", JSONB, nullable=False, server_default=EMPTY_OBJECT),
    Column("protection", Text, nullable=False, server_default="none"),  # none | user | container
    Column("wanted_state", Text, nullable=False, server_default="ok"),  # ok | pause | drain | quarantine
    at("started_at", default=True),
    at("last_seen_at", nullable=True, default=True),  # null: only results name it, it never contacted the service (CI)
    CheckConstraint("wanted_state IN ('ok', 'pause', 'drain', 'quarantine')", name="wanted_state"),
)

# Versions and settings of runs; each distinct one is stored once.
environment = Table(
    "environment",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("fingerprint", JSONB, nullable=False),
    at("first_seen_at", default=True),
)

# --- runs: the queue and what came of it -----------------------------------------------------------------------------

# One suite of one commit on one testbed: requested, queued, measured, delivered. The document is what was delivered.
run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),  # ULID
    project_in_key(),
    Column("commit_id", BigInteger, nullable=False, index=True),
    Column("testbed_id", ForeignKey("testbed.id"), nullable=False),
    Column("suite", Text, nullable=False),
    Column("suite_version", Text),
    Column("branch_name", Text),
    Column("pull_request", Integer),
    # the queue entry
    Column("state", Text, nullable=False),
    # confirm | pull_request | main | scheduled | backfill | submitted
    Column("kind", Text, nullable=False, server_default="main"),
    Column("priority", SmallInteger, nullable=False, server_default=text("0")),
    Column("spec", JSONB, nullable=False, server_default=EMPTY_OBJECT),  # the suite as its tidemark.toml declares it
    Column("attempt", SmallInteger, nullable=False, server_default=text("1")),
    # earlier attempts: [{attempt, worker, ended_at, reason}]
    Column("attempts", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("session_id", Text),  # the session of which it is a round: queued like a run, but not a run of its commit
    # the worker that raised the suspect: a session runs on another one, if there is one
    Column("avoid_worker_id", ForeignKey("worker.id", ondelete="SET NULL")),
    Column("requested_by", Text, nullable=False, server_default=""),
    at("requested_at", default=True),
    Column("published_at", TIMESTAMP),  # when a message for it was last sent to the broker
    Column("worker_id", ForeignKey("worker.id", ondelete="SET NULL")),
    Column("lease_hash", LargeBinary),
    Column("lease_expires_at", TIMESTAMP),
    Column("leased_at", TIMESTAMP),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("progress", JSONB),  # {"done", "total", "note", "eta_s", "step"} while it runs
    # the result
    Column("status", Text),  # ok | failed | incomplete | quarantined
    Column("error", Text),
    Column("applicable", Integer),  # cases that apply to the machine; null: the run predates this column
    Column("passed", Integer),  # how many of those are ok
    Column("log_tail", Text),
    Column("environment_id", ForeignKey("environment.id")),
    Column("started_at", TIMESTAMP),
    Column("finished_at", TIMESTAMP),
    Column("received_at", TIMESTAMP),
    Column("body_sha256", LargeBinary),
    Column("document", LargeBinary),  # zlib of the run as delivered, without the samples (those are in `measurement`)
    of_project("commit_id", "commit", "CASCADE"),
    CheckConstraint(
        "state IN ('queued', 'leased', 'running', 'done', 'failed', 'cancelled', 'superseded')", name="state"
    ),
    CheckConstraint("status IN ('ok', 'failed', 'incomplete', 'quarantined')", name="status"),
    Index("ix_run_project_id_testbed_id_received_at", "project_id", "testbed_id", "received_at"),
    Index("ix_run_requested_at", "requested_at"),
    Index("ix_run_worker_id_received_at", "worker_id", "received_at"),
    Index(
        "ix_run_open",
        "project_id",
        "testbed_id",
        "suite",
        postgresql_where=text("state IN ('queued', 'leased', 'running')"),
    ),
    Index(
        "ix_run_broken",
        "project_id",
        "testbed_id",
        "received_at",
        postgresql_where=text("status IN ('failed', 'incomplete')"),
    ),
    # The queue is read in groups of one project and kind, each in the order in which its runs are to go.
    Index(
        "ix_run_waiting",
        "testbed_id",
        "project_id",
        "kind",
        "requested_at",
        "id",
        postgresql_where=text("state = 'queued'"),
    ),
    Index("ix_run_session_id", "session_id", postgresql_where=text("session_id IS NOT NULL")),
    Index(
        "ix_run_published",
        "testbed_id",
        "published_at",
        postgresql_where=text("state = 'queued' AND published_at IS NOT NULL"),
    ),
    Index("ix_run_leases", "lease_expires_at", postgresql_where=text("state IN ('leased', 'running')")),
)

# What a group of the queue (a project's runs of one kind on a testbed) has received: whoever had the least goes first.
queue_share = Table(
    "queue_share",
    metadata,
    Column("testbed_id", ForeignKey("testbed.id", ondelete="CASCADE"), primary_key=True),
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("served_at", TIMESTAMP),  # when one of its runs was last offered to a worker
    Column("used_s", Double, nullable=False, server_default=text("0")),  # worker seconds, halved every hour
    Column("counted_at", TIMESTAMP),
)

# A run's result for one benchmark and variant.
result = Table(
    "result",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("index", SmallInteger, primary_key=True),
    in_key(),
    Column("benchmark", Text, nullable=False),
    Column("variant", JSONB, nullable=False),
    Column("variant_key", Text, nullable=False),
    Column("preset", Text, nullable=False, server_default=""),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("correctness_state", Text),
    of_project("run_id", "run", "CASCADE"),
    Index("ix_result_not_ok", "run_id", postgresql_where=text("status <> 'ok'")),
)

# Steps, progress and log lines of a run, as reported by its worker.
run_event = Table(
    "run_event",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    in_key(),
    Column("run_id", Text, nullable=False),
    Column("attempt", SmallInteger, nullable=False, server_default=text("1")),
    at("at", default=True),
    Column("kind", Text, nullable=False),  # state | progress | log
    Column("detail", JSONB, nullable=False),
    of_project("run_id", "run", "CASCADE"),
    Index("ix_run_event_run_id_id", "run_id", "id"),
)

# Files of a run: logs, traces, tables of kernels. The files are in the data directory.
artifact = Table(
    "artifact",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    in_key(),
    Column("content_type", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    at("received_at", default=True),
    of_project("run_id", "run", "CASCADE"),
)

# --- series, measurements, judgements --------------------------------------------------------------------------------

# One metric of one variant of a benchmark on one testbed: what is judged.
series = Table(
    "series",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    project_in_key(),
    Column("testbed_id", ForeignKey("testbed.id"), nullable=False),
    Column("suite", Text, nullable=False),
    Column("suite_version", Text, nullable=False),
    Column("benchmark", Text, nullable=False),
    Column("variant", JSONB, nullable=False),
    Column("variant_key", Text, nullable=False),  # canonical text of `variant`: "dtype=bf16,experts=64"
    Column("preset", Text, nullable=False, server_default=""),
    Column("metric", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("exact", Boolean, nullable=False, server_default=text("false")),
    # the judge's state (backend/regression/series/tail.py): a whole of a few kB, and a tail that
    # every point rewrites; stored as bytes, because the database never looks into them
    Column("state", LargeBinary),
    Column("state_tail", LargeBinary),
    Column("state_position", Integer),  # position of the last point in the state
    Column("profile", JSONB),  # noise, minimum detectable effect, autocorrelation, bimodality
    Column("alarms_confirmed", Integer, nullable=False, server_default=text("0")),
    Column("alarms_withdrawn", Integer, nullable=False, server_default=text("0")),
    Column("last_measured_at", TIMESTAMP),
    Column("rejudge_from", Integer),  # to be judged again from this position on, as a point arrived late
    at("created_at", default=True),
    Index("ix_series_rejudge_from", "project_id", "id", postgresql_where=text("rejudge_from IS NOT NULL")),
    CheckConstraint("direction IN ('lower', 'higher')", name="direction"),
    CheckConstraint("role IN ('gate', 'watch', 'derived', 'phase')", name="role"),
    UniqueConstraint(
        "project_id",
        "testbed_id",
        "suite",
        "benchmark",
        "variant_key",
        "metric",
        "preset",
        "suite_version",
        name="uq_series_key",
    ),
    postgresql_with={"fillfactor": "70"},  # the state is updated in place (HOT)
)

# The value that a run gave a series, with the values of its processes. In this order its columns leave no gaps.
measurement = Table(
    "measurement",
    metadata,
    Column("series_id", Integer, nullable=False),
    Column("project_id", Integer, nullable=False),
    at("measured_at"),
    Column("commit_id", BigInteger, nullable=False),
    Column("value", Double, nullable=False),
    Column("result_index", SmallInteger, nullable=False),
    Column("measurement_index", SmallInteger, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("processes", ARRAY(Double)),
    Column("samples_packed", LargeBinary),  # of all processes, as backend/store/ingest/packed.py writes them
    Column("sample_counts", ARRAY(Integer)),  # how many of them belong to each process
    Column("samples", ARRAY(Double)),  # the samples, in rows from before 0.2
    # The run first: rows arrive by run, so that the index grows near its end.
    PrimaryKeyConstraint("run_id", "series_id", "measured_at", "project_id"),
    postgresql_partition_by="RANGE (measured_at)",
)

# The verdict on a measurement when it arrived, with the numbers behind it. If a measurement is judged again, its row is
# superseded, not changed. Long columns come first, so that a row has no gaps.
judgement = Table(
    "judgement",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("measured_at", TIMESTAMP, primary_key=True),
    Column("commit_id", BigInteger, nullable=False),
    Column("value", Double, nullable=False),
    Column("baseline", Double),
    Column("band_low", Double),
    Column("band_high", Double),
    Column("smoothed", Double),
    Column("smoothed_low", Double),
    Column("smoothed_high", Double),
    Column("anchor", Double),
    Column("noise", Double),  # of one run, as a fraction of the level
    Column("minimum_detectable_effect", Double),  # as a fraction of cost
    Column("min_change", Double),  # of the policy: the smallest change that counts
    Column("worker_offset", Double),  # what is known of the worker that measured it, as a fraction
    at("judged_at", default=True),
    Column("superseded_at", TIMESTAMP),
    in_key(),
    Column("series_id", Integer, nullable=False),
    # null: the project's default branch; others are judged against their merge base and do not change the state
    Column("branch_id", Integer),
    Column("position", Integer, nullable=False),
    Column("regression_id", Integer),  # the regression this point is part of
    Column("since_position", Integer),  # where the change began of which it is a part
    Column("n_baseline", Integer),  # runs of the baseline
    Column("runs_of_level", Integer),  # runs since the last change
    Column("change", REAL),  # of cost, as a fraction, relative to the baseline
    Column("change_low", REAL),
    Column("change_high", REAL),
    Column("anchor_change", REAL),
    Column("sees", REAL),  # the smallest visible change, as a fraction, if the verdict is `unsteady`
    Column("have", SmallInteger),  # baseline runs available …
    Column("need", SmallInteger),  # … and needed, if the verdict is `insufficient`
    Column("sustained_runs", SmallInteger),  # of the policy: after how many bad runs a change is told
    Column("onset", Boolean, nullable=False, server_default=text("false")),
    Column("red", Boolean, nullable=False, server_default=text("false")),  # a gate metric got worse, and code caused it
    Column("verdict", Text, nullable=False),
    Column("reason", Text, nullable=False),  # a code (backend/regression/terms.py)
    Column("run_id", Text, nullable=False),
    Column("policy_version", Text, nullable=False),
    Column("detail", JSONB, nullable=False, server_default=EMPTY_OBJECT),  # what only some judgements have
    CheckConstraint(
        "verdict IN ('regression', 'improvement', 'unchanged', 'suspect', 'unsteady', 'insufficient')", name="verdict"
    ),
    Index(
        "ix_judgement_standing",
        "series_id",
        text("position DESC"),
        postgresql_where=text("superseded_at IS NULL AND branch_id IS NULL"),
        postgresql_include=[
            "measured_at",
            "commit_id",
            "run_id",
            "value",
            "verdict",
            "onset",
            "change",
            "regression_id",
            "have",
            "need",
            "sees",
        ],
    ),
    Index("ix_judgement_run_id", "run_id"),
    Index(
        "ix_judgement_branch",
        "branch_id",
        "series_id",
        "position",
        postgresql_where=text("superseded_at IS NULL AND branch_id IS NOT NULL"),
    ),
    postgresql_partition_by="RANGE (measured_at)",
)

# The positions of its default branch that a project measured in a month, and so the partitions that contain them.
# Maintained by triggers on `judgement` (migration 0024). A span only grows, in steps of 16 positions: it may be too
# wide, never too narrow.
position_span = Table(
    "position_span",
    metadata,
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
    Column("month", TIMESTAMP, primary_key=True),  # its first moment, UTC
    Column("first_position", Integer, nullable=False),
    Column("last_position", Integer, nullable=False),
)

# Updated as results arrive, so that a year of a series at granularity `week` reads 52 rows.
rollup = Table(
    "rollup",
    metadata,
    Column("series_id", Integer, primary_key=True),  # no foreign key: its check cost more than the rest of a new bucket
    Column("granularity", Text, primary_key=True),  # hour | day | week
    Column("bucket", TIMESTAMP, primary_key=True),
    in_key(),
    Column("runs", Integer, nullable=False),
    Column("value_sum", Double, nullable=False),
    Column("value_min", Double, nullable=False),
    Column("value_max", Double, nullable=False),
    Column("last_value", Double, nullable=False),
    Column("last_position", Integer, nullable=False),
    Column("worst_verdict", Text, nullable=False),
    Column("worst_change", REAL),
    CheckConstraint("granularity IN ('hour', 'day', 'week')", name="granularity"),
    postgresql_with={"fillfactor": "70"},  # the newest buckets are updated in place with every run
)

# --- live ------------------------------------------------------------------------------------------------------------

# Outbox of the event stream: NOTIFY carries the id, and a reconnecting page requests what it missed.
live_event = Table(
    "live_event",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    at("at", default=True),
    Column("kind", Text, nullable=False),
    Column("project_id", Integer),
    Column("payload", JSONB, nullable=False),
    Index("ix_live_event_at", "at"),
)
