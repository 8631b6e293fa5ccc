"""The tables of what Tidemark measures by its own decision: sessions, bisections, backfills and schedules.

They stand beside `backend.store.tables.core`, on the same metadata. What a session measured is kept here and nowhere
else: its arms are shown, and never become part of the history of a series.
"""

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from backend.store.tables import regressions  # noqa: F401 -- what these tables refer to
from backend.store.tables.core import EMPTY_OBJECT, NOW, TIMESTAMP, in_key, metadata, of_project, project_in_key

OPEN_SESSION = "state IN ('waiting', 'running')"

# Base and head measured alternately until the result is certain.
session = Table(
    "session",
    metadata,
    Column("id", Text, primary_key=True),  # ULID
    project_in_key(),
    Column("testbed_id", ForeignKey("testbed.id"), nullable=False),
    Column("suite", Text, nullable=False),
    Column("purpose", Text, nullable=False),  # confirm | bisect | compare | attribute
    Column("regression_id", Integer),
    Column("bisection_id", Text),
    Column("schedule", Text),  # the name of the schedule that requested it
    Column("lead_series_id", Integer),  # the series whose change it decides
    Column("base_commit_id", BigInteger, nullable=False),
    Column("head_commit_id", BigInteger, nullable=False),
    Column("base_setup", JSONB, nullable=False, server_default=EMPTY_OBJECT),  # {"pip": …, "setup": …, "env": {…}}
    Column("head_setup", JSONB, nullable=False, server_default=EMPTY_OBJECT),
    Column("spec", JSONB, nullable=False),  # the suite, reduced to what is in question
    Column("avoid_worker_id", ForeignKey("worker.id", ondelete="SET NULL")),
    Column("state", Text, nullable=False),
    Column("decision", Text),
    Column("reason", Text, nullable=False, server_default=""),
    Column("worker", Text),  # the worker of the last round
    Column("rounds_done", SmallInteger, nullable=False, server_default=text("0")),
    Column("rounds_spoiled", SmallInteger, nullable=False, server_default=text("0")),
    Column("max_rounds", SmallInteger, nullable=False),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", TIMESTAMP, nullable=False, server_default=NOW),
    Column("decided_at", TIMESTAMP),
    of_project("regression_id", "regression", "CASCADE"),
    of_project("bisection_id", "bisection", "CASCADE"),
    of_project("lead_series_id", "series", "SET NULL (lead_series_id)"),
    of_project("base_commit_id", "commit", "CASCADE"),
    of_project("head_commit_id", "commit", "CASCADE"),
    CheckConstraint("purpose IN ('confirm', 'bisect', 'compare', 'attribute')", name="purpose"),
    CheckConstraint("state IN ('waiting', 'running', 'decided', 'cancelled', 'quarantined', 'failed')", name="state"),
    CheckConstraint("decision IN ('confirmed', 'withdrawn', 'undecided')", name="decision"),
    Index("ix_session_project_id_requested_at", "project_id", text("requested_at DESC")),
    Index("ix_session_regression_id", "regression_id"),
    Index("ix_session_bisection_id", "bisection_id"),
    Index("ix_session_open", "requested_at", postgresql_where=text(OPEN_SESSION)),
    Index(
        "uq_session_confirming",
        "regression_id",
        "project_id",
        unique=True,
        postgresql_where=text(f"purpose = 'confirm' AND {OPEN_SESSION}"),
    ),
)

# One fresh process of one arm, in the order in which they ran.
session_turn = Table(
    "session_turn",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("number", SmallInteger, primary_key=True),
    in_key(),
    Column("arm", Text, nullable=False),
    Column("run_id", Text, nullable=False),  # the queue entry of its round
    Column("counted", Boolean, nullable=False),  # false: its round was invalid
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("worker", Text),
    Column("document", LargeBinary),  # zlib of its tidemark.run/1
    of_project("session_id", "session", "CASCADE"),
    CheckConstraint("arm IN ('base', 'head')", name="arm"),
)

# A session's result so far for one metric of one variant.
session_series = Table(
    "session_series",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    in_key(),
    Column("session_id", Text, nullable=False, index=True),
    Column("series_id", Integer),
    Column("benchmark", Text, nullable=False),
    Column("variant_key", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("base", ARRAY(Double), nullable=False),  # one value per process, in order
    Column("head", ARRAY(Double), nullable=False),
    Column("change", REAL),
    Column("low", REAL),
    Column("high", REAL),
    Column("decision", Text, nullable=False),
    Column("processes_a_side", SmallInteger, nullable=False),
    Column("needed_a_side", Integer, nullable=False),
    Column("spread", REAL),
    # where its outcome entered the history of the series: the change it concerns, and the newest point at that time
    Column("onset_position", Integer),
    Column("judged_position", Integer),
    of_project("session_id", "session", "CASCADE"),
    of_project("series_id", "series", "SET NULL (series_id)"),
)

# A search for the commit that caused a regression.
bisection = Table(
    "bisection",
    metadata,
    Column("id", Text, primary_key=True),  # ULID
    project_in_key(),
    Column("testbed_id", ForeignKey("testbed.id"), nullable=False),
    Column("regression_id", Integer, nullable=False, index=True),
    Column("series_id", Integer, nullable=False),
    Column("suite", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("state", Text, nullable=False),
    Column("last_good_commit_id", BigInteger, nullable=False),
    Column("first_bad_commit_id", BigInteger, nullable=False),
    # [{"sha", "commit_id", "position", "on": "trunk" | "side", "untouched", "probability"}], oldest first
    Column("candidates", JSONB, nullable=False),
    Column("shift", Double, nullable=False),  # of log cost, from good to bad
    Column("spread", Double, nullable=False),  # of one process
    Column("good_level", Double, nullable=False),  # logarithm of cost
    Column("side_of", Text),  # the merge commit whose merged side is searched
    Column("side_base_sha", Text),  # where that side began
    Column("culprit_sha", Text),
    Column("confidence", REAL, nullable=False, server_default=text("0")),
    Column("reason", Text, nullable=False, server_default=""),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", TIMESTAMP, nullable=False, server_default=NOW),
    Column("finished_at", TIMESTAMP),
    of_project("regression_id", "regression", "CASCADE"),
    of_project("series_id", "series", "CASCADE"),
    of_project("last_good_commit_id", "commit", "CASCADE"),
    of_project("first_bad_commit_id", "commit", "CASCADE"),
    CheckConstraint("state IN ('running', 'done', 'gave_up', 'cancelled')", name="state"),
    Index(
        "uq_bisection_running",
        "regression_id",
        "project_id",
        unique=True,
        postgresql_where=text("state = 'running'"),
    ),
)

# A commit that a bisection measured.
bisection_step = Table(
    "bisection_step",
    metadata,
    Column("bisection_id", Text, primary_key=True),
    Column("number", SmallInteger, primary_key=True),
    in_key(),
    Column("sha", Text, nullable=False),
    Column("position", Integer),  # on the default branch; null: on a merged side
    Column("state", Text, nullable=False),
    Column("change", REAL),  # of cost relative to the good level, as a fraction
    Column("processes", SmallInteger),
    Column("reason", Text, nullable=False, server_default=""),
    Column("run_id", Text),
    Column("session_id", Text),
    Column("requested_at", TIMESTAMP, nullable=False, server_default=NOW),
    Column("finished_at", TIMESTAMP),
    of_project("bisection_id", "bisection", "CASCADE"),
    CheckConstraint("state IN ('waiting', 'running', 'good', 'bad', 'skipped')", name="state"),
)

# Past commits that are measured afterwards.
backfill = Table(
    "backfill",
    metadata,
    Column("id", Text, primary_key=True),  # ULID
    project_in_key(),
    Column("testbed_id", ForeignKey("testbed.id"), nullable=False),
    Column("suite", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("first_position", Integer, nullable=False),
    Column("last_position", Integer, nullable=False),
    Column("runs_wanted", Integer, nullable=False),  # the most commits of the range to measure
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("requested_by", Text, nullable=False),
    Column("requested_at", TIMESTAMP, nullable=False, server_default=NOW),
    Column("finished_at", TIMESTAMP),
    CheckConstraint("state IN ('running', 'done', 'cancelled')", name="state"),
    Index("ix_backfill_project_id_requested_at", "project_id", text("requested_at DESC")),
)

# The runs of a backfill.
backfill_run = Table(
    "backfill_run",
    metadata,
    Column("backfill_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True),
    in_key(),
    Column("run_id", Text, nullable=False, index=True),
    Column("created", Boolean, nullable=False),  # false: the run already existed
    Column("why", Text, nullable=False),  # thin | refine
    of_project("backfill_id", "backfill", "CASCADE"),
)

# As declared by the newest commit of the default branch.
schedule = Table(
    "schedule",
    metadata,
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("definition", JSONB, nullable=False),
    Column("next_at", TIMESTAMP, nullable=False, index=True),
    Column("updated_at", TIMESTAMP, nullable=False, server_default=NOW),
)

# One row per served slot: its key ensures that two `beat` processes serve it only once.
schedule_slot = Table(
    "schedule_slot",
    metadata,
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("slot_at", TIMESTAMP, primary_key=True),
    Column("served_at", TIMESTAMP, nullable=False),
    Column("outcome", Text, nullable=False, server_default=""),
    Column("run_ids", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("session_ids", ARRAY(Text), nullable=False, server_default=text("'{}'")),
)
