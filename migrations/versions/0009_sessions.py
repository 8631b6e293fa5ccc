"""Sessions, bisections, backfills and schedules

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "backfill",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("testbed_id", sa.Integer(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("first_position", sa.Integer(), nullable=False),
        sa.Column("last_position", sa.Integer(), nullable=False),
        sa.Column("runs_wanted", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('running', 'done', 'cancelled')", name=op.f("ck_backfill_state")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_backfill_project_id_project"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["testbed_id"], ["testbed.id"], name=op.f("fk_backfill_testbed_id_testbed")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_backfill")),
    )
    op.create_index(
        "ix_backfill_project_id_requested_at",
        "backfill",
        ["project_id", sa.literal_column("requested_at DESC")],
        unique=False,
    )
    op.create_table(
        "schedule",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("definition", postgresql.JSONB(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_schedule_project_id_project"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_schedule")),
    )
    op.create_index(op.f("ix_schedule_next_at"), "schedule", ["next_at"], unique=False)
    op.create_table(
        "schedule_slot",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("slot_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("served_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.Column("run_ids", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("session_ids", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_schedule_slot_project_id_project"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "name", "slot_at", name=op.f("pk_schedule_slot")),
    )
    op.create_table(
        "backfill_run",
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("created", sa.Boolean(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["backfill_id"], ["backfill.id"], name=op.f("fk_backfill_run_backfill_id_backfill"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("backfill_id", "position", name=op.f("pk_backfill_run")),
    )
    op.create_index(op.f("ix_backfill_run_run_id"), "backfill_run", ["run_id"], unique=False)
    op.create_table(
        "bisection",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("testbed_id", sa.Integer(), nullable=False),
        sa.Column("regression_id", sa.Integer(), nullable=False),
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("last_good_commit_id", sa.BigInteger(), nullable=False),
        sa.Column("first_bad_commit_id", sa.BigInteger(), nullable=False),
        sa.Column("candidates", postgresql.JSONB(), nullable=False),
        sa.Column("shift", sa.Double(), nullable=False),
        sa.Column("spread", sa.Double(), nullable=False),
        sa.Column("good_level", sa.Double(), nullable=False),
        sa.Column("side_of", sa.Text(), nullable=True),
        sa.Column("side_base_sha", sa.Text(), nullable=True),
        sa.Column("culprit_sha", sa.Text(), nullable=True),
        sa.Column("confidence", sa.REAL(), server_default=sa.text("0"), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('running', 'done', 'gave_up', 'cancelled')", name=op.f("ck_bisection_state")),
        sa.ForeignKeyConstraint(
            ["first_bad_commit_id"],
            ["commit.id"],
            name=op.f("fk_bisection_first_bad_commit_id_commit"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["last_good_commit_id"],
            ["commit.id"],
            name=op.f("fk_bisection_last_good_commit_id_commit"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_bisection_project_id_project"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"], ["regression.id"], name=op.f("fk_bisection_regression_id_regression"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_bisection_series_id_series"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["testbed_id"], ["testbed.id"], name=op.f("fk_bisection_testbed_id_testbed")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bisection")),
    )
    op.create_index(op.f("ix_bisection_regression_id"), "bisection", ["regression_id"], unique=False)
    op.create_index(
        "uq_bisection_running",
        "bisection",
        ["regression_id"],
        unique=True,
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_table(
        "bisection_step",
        sa.Column("bisection_id", sa.Text(), nullable=False),
        sa.Column("number", sa.SmallInteger(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("change", sa.REAL(), nullable=True),
        sa.Column("processes", sa.SmallInteger(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'good', 'bad', 'skipped')", name=op.f("ck_bisection_step_state")
        ),
        sa.ForeignKeyConstraint(
            ["bisection_id"],
            ["bisection.id"],
            name=op.f("fk_bisection_step_bisection_id_bisection"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("bisection_id", "number", name=op.f("pk_bisection_step")),
    )
    op.create_table(
        "session",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("testbed_id", sa.Integer(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("regression_id", sa.Integer(), nullable=True),
        sa.Column("bisection_id", sa.Text(), nullable=True),
        sa.Column("schedule", sa.Text(), nullable=True),
        sa.Column("lead_series_id", sa.Integer(), nullable=True),
        sa.Column("base_commit_id", sa.BigInteger(), nullable=False),
        sa.Column("head_commit_id", sa.BigInteger(), nullable=False),
        sa.Column("base_setup", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("head_setup", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        sa.Column("avoid_worker_id", sa.Integer(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("rounds_done", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("rounds_spoiled", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_rounds", sa.SmallInteger(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("decision IN ('confirmed', 'withdrawn', 'undecided')", name=op.f("ck_session_decision")),
        sa.CheckConstraint("purpose IN ('confirm', 'bisect', 'compare')", name=op.f("ck_session_purpose")),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'decided', 'cancelled', 'quarantined', 'failed')",
            name=op.f("ck_session_state"),
        ),
        sa.ForeignKeyConstraint(
            ["avoid_worker_id"], ["worker.id"], name=op.f("fk_session_avoid_worker_id_worker"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["base_commit_id"], ["commit.id"], name=op.f("fk_session_base_commit_id_commit"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisection.id"], name=op.f("fk_session_bisection_id_bisection"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["head_commit_id"], ["commit.id"], name=op.f("fk_session_head_commit_id_commit"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["lead_series_id"], ["series.id"], name=op.f("fk_session_lead_series_id_series"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_session_project_id_project"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"], ["regression.id"], name=op.f("fk_session_regression_id_regression"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["testbed_id"], ["testbed.id"], name=op.f("fk_session_testbed_id_testbed")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
    )
    op.create_index("ix_session_bisection_id", "session", ["bisection_id"], unique=False)
    op.create_index(
        "ix_session_open",
        "session",
        ["requested_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('waiting', 'running')"),
    )
    op.create_index(
        "ix_session_project_id_requested_at",
        "session",
        ["project_id", sa.literal_column("requested_at DESC")],
        unique=False,
    )
    op.create_index("ix_session_regression_id", "session", ["regression_id"], unique=False)
    op.create_index(
        "uq_session_confirming",
        "session",
        ["regression_id"],
        unique=True,
        postgresql_where=sa.text("purpose = 'confirm' AND state IN ('waiting', 'running')"),
    )
    op.create_table(
        "session_series",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("series_id", sa.Integer(), nullable=True),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("variant_key", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("base", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("head", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("change", sa.REAL(), nullable=True),
        sa.Column("low", sa.REAL(), nullable=True),
        sa.Column("high", sa.REAL(), nullable=True),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("processes_a_side", sa.SmallInteger(), nullable=False),
        sa.Column("needed_a_side", sa.Integer(), nullable=False),
        sa.Column("spread", sa.REAL(), nullable=True),
        sa.Column("onset_position", sa.Integer(), nullable=True),
        sa.Column("judged_position", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_session_series_series_id_series"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name=op.f("fk_session_series_session_id_session"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session_series")),
    )
    op.create_index(op.f("ix_session_series_session_id"), "session_series", ["session_id"], unique=False)
    op.create_table(
        "session_turn",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("number", sa.SmallInteger(), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("counted", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("document", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("arm IN ('base', 'head')", name=op.f("ck_session_turn_arm")),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name=op.f("fk_session_turn_session_id_session"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "number", name=op.f("pk_session_turn")),
    )
    op.add_column("run", sa.Column("session_id", sa.Text(), nullable=True))
    op.add_column("run", sa.Column("avoid_worker_id", sa.Integer(), nullable=True))
    op.create_foreign_key(
        op.f("fk_run_avoid_worker_id_worker"), "run", "worker", ["avoid_worker_id"], ["id"], ondelete="SET NULL"
    )
    op.create_index(
        "ix_run_session_id", "run", ["session_id"], unique=False, postgresql_where=sa.text("session_id IS NOT NULL")
    )


def downgrade() -> None:
    # Without its session a round would pass for a run of its commit: queued ones would be carried out as such.
    op.execute("DELETE FROM run WHERE session_id IS NOT NULL")
    op.drop_index("ix_run_session_id", table_name="run", postgresql_where=sa.text("session_id IS NOT NULL"))
    op.drop_constraint(op.f("fk_run_avoid_worker_id_worker"), "run", type_="foreignkey")
    op.drop_column("run", "avoid_worker_id")
    op.drop_column("run", "session_id")
    op.drop_table("session_turn")
    op.drop_index(op.f("ix_session_series_session_id"), table_name="session_series")
    op.drop_table("session_series")
    op.drop_index(
        "uq_session_confirming",
        table_name="session",
        postgresql_where=sa.text("purpose = 'confirm' AND state IN ('waiting', 'running')"),
    )
    op.drop_index("ix_session_regression_id", table_name="session")
    op.drop_index("ix_session_project_id_requested_at", table_name="session")
    op.drop_index("ix_session_open", table_name="session", postgresql_where=sa.text("state IN ('waiting', 'running')"))
    op.drop_index("ix_session_bisection_id", table_name="session")
    op.drop_table("session")
    op.drop_table("bisection_step")
    op.drop_index("uq_bisection_running", table_name="bisection", postgresql_where=sa.text("state = 'running'"))
    op.drop_index(op.f("ix_bisection_regression_id"), table_name="bisection")
    op.drop_table("bisection")
    op.drop_index(op.f("ix_backfill_run_run_id"), table_name="backfill_run")
    op.drop_table("backfill_run")
    op.drop_table("schedule_slot")
    op.drop_index(op.f("ix_schedule_next_at"), table_name="schedule")
    op.drop_table("schedule")
    op.drop_index("ix_backfill_project_id_requested_at", table_name="backfill")
    op.drop_table("backfill")
