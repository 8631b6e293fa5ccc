"""Incidents and questions of the joint detector. All else it knows is read again from the stored runs."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import ARRAY

from backend.store.tables import sessions  # noqa: F401 -- what these tables refer to
from backend.store.tables.core import NOW, TIMESTAMP, metadata, of_project, project_in_key

# A change that many series of a suite show at the same moment.
incident = Table(
    "incident",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    project_in_key(),
    Column("suite", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("worker", Text),  # if it concerns one
    Column("testbeds", ARRAY(Text), nullable=False),
    Column("series", ARRAY(Integer), nullable=False),  # the affected series of these testbeds
    Column("first_bad_position", Integer, nullable=False),
    Column("range_start", Integer, nullable=False),
    Column("range_end", Integer, nullable=False),
    Column("magnitude", Double, nullable=False),  # logarithm of cost
    Column("drift", Boolean, nullable=False),
    Column("closed_position", Integer),  # the first good one after it
    Column("regression_id", Integer, index=True),
    Column("reported_at", TIMESTAMP, nullable=False, server_default=NOW),
    Column("updated_at", TIMESTAMP, nullable=False, server_default=NOW),
    of_project("regression_id", "regression", "SET NULL (regression_id)"),
    CheckConstraint("kind IN ('regression', 'improvement', 'infra', 'environment', 'method')", name="kind"),
    Index("ix_incident_project_id", "project_id", "first_bad_position"),
)

# A question that a session answers; a question without a row was answered at once, because no session was possible.
joint_question = Table(
    "joint_question",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    project_in_key(),
    Column("suite", Text, nullable=False),
    Column("testbed", Text, nullable=False),
    Column("after_run_id", Text, nullable=False),  # the run that made it necessary …
    Column("number", SmallInteger, nullable=False),  # … and the question's number after that run
    Column("base_position", Integer, nullable=False),
    Column("head_position", Integer, nullable=False),
    Column("session_id", Text, nullable=False, index=True),
    Column("answered_after", Text),  # the newest run at the time its answer was read
    of_project("session_id", "session", "CASCADE"),
    UniqueConstraint("project_id", "suite", "after_run_id", "number", name="uq_joint_question_after"),
)

# What cannot be judged jointly for a while, so that pages can show it: the judge itself keeps this in memory.
joint_pause = Table(
    "joint_pause",
    metadata,
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
    Column("suite", Text, primary_key=True),  # '': all suites of the project
    Column("since", TIMESTAMP, nullable=False),
    Column("until", TIMESTAMP, nullable=False),
    Column("why", Text, nullable=False),
)
