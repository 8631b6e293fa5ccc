"""The tables of what was found: change points, the regressions they are grouped into, and what happened to each."""

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
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from backend.store.tables.core import EMPTY_OBJECT, TIMESTAMP, at, in_key, metadata, of_project, project_in_key

# A change for the worse or the better that is reported to people, on however many series it shows.
regression = Table(
    "regression",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    project_in_key(),
    Column("testbed_id", ForeignKey("testbed.id"), nullable=False),
    Column("state", Text, nullable=False),
    Column("kind", Text, nullable=False, server_default="step"),  # step | drift
    Column("cause", Text),
    Column("evidence", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    Column("first_bad_position", Integer, nullable=False),
    Column("last_good_position", Integer),
    Column("first_bad_commit_id", BigInteger),
    Column("last_good_commit_id", BigInteger),
    Column("lead_series_id", Integer),
    Column("lead_change", REAL),
    Column("lead_change_low", REAL),
    Column("lead_change_high", REAL),
    Column("still_bad", Boolean, nullable=False, server_default=text("true")),
    Column("held_back", Boolean, nullable=False, server_default=text("false")),  # certain, but not caused by code
    Column("owner", Text),
    Column("reason", Text),  # given with `expected` and `invalid`
    Column("fixed_commit_id", BigInteger),
    at("opened_at", default=True),
    Column("confirmed_at", TIMESTAMP),
    Column("closed_at", TIMESTAMP),
    at("updated_at", default=True),
    of_project("first_bad_commit_id", "commit"),
    of_project("last_good_commit_id", "commit"),
    of_project("lead_series_id", "series", "SET NULL (lead_series_id)"),
    of_project("fixed_commit_id", "commit"),
    CheckConstraint(
        "state IN ('suspect', 'confirmed', 'acknowledged', 'fixed', 'expected', 'invalid', 'withdrawn')", name="state"
    ),
    CheckConstraint("cause IN ('code', 'environment', 'hardware', 'method', 'noise')", name="cause"),
    Index("ix_regression_project_id_state_id", "project_id", "state", text("id DESC")),
    Index("ix_regression_project_id_id", "project_id", "id"),  # the newest of one project, whatever others have
    Index("ix_regression_onset", "project_id", "testbed_id", "first_bad_position"),
)

# Where one series changed, by how much, and the regression to which that belongs.
change_point = Table(
    "change_point",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    in_key(),
    Column("series_id", Integer, nullable=False),
    Column("regression_id", Integer, index=True),
    Column("kind", Text, nullable=False),  # step | drift
    Column("direction", Text, nullable=False),  # regression | improvement
    Column("state", Text, nullable=False),  # suspect | confirmed | fixed | withdrawn
    Column("onset_position", Integer, nullable=False),
    Column("onset_commit_id", BigInteger),
    Column("last_good_position", Integer),
    Column("detected_position", Integer, nullable=False),
    Column("fixed_position", Integer),
    Column("change", REAL, nullable=False),
    Column("change_low", REAL),
    Column("change_high", REAL),
    Column("before", Double),
    Column("after", Double),
    Column("is_placed", Boolean, nullable=False, server_default=text("false")),  # assigned by a person
    at("created_at", default=True),
    at("updated_at", default=True),
    of_project("series_id", "series", "CASCADE"),
    of_project("regression_id", "regression", "SET NULL (regression_id)"),
    of_project("onset_commit_id", "commit"),
    CheckConstraint("kind IN ('step', 'drift')", name="kind"),
    CheckConstraint("direction IN ('regression', 'improvement')", name="direction"),
    CheckConstraint("state IN ('suspect', 'confirmed', 'fixed', 'withdrawn')", name="state"),
    Index("ix_change_point_series_id_onset_position", "series_id", "onset_position"),
    Index("ix_change_point_fixed", "series_id", "fixed_position", postgresql_where=text("state = 'fixed'")),
    Index(
        "ix_change_point_improvement",
        "onset_position",
        "series_id",
        postgresql_where=text("direction = 'improvement' AND state = 'confirmed'"),
    ),
)

# What was reported is never edited: a relocation, a withdrawal, a fix and a note are rows here.
regression_event = Table(
    "regression_event",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    in_key(),
    Column("regression_id", Integer, nullable=False, index=True),
    at("at", default=True),
    Column("kind", Text, nullable=False),
    Column("actor", Text, nullable=False, server_default="tidemark"),
    Column("note", Text),
    Column("detail", JSONB, nullable=False, server_default=EMPTY_OBJECT),
    of_project("regression_id", "regression", "CASCADE"),
)
