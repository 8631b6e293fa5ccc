"""What the joint detector told of a project, and the sessions it asked for

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

PURPOSE = "ck_session_purpose"


def upgrade() -> None:
    op.create_table(
        "fleet_incident",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("testbeds", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("series", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("first_bad_position", sa.Integer(), nullable=False),
        sa.Column("range_start", sa.Integer(), nullable=False),
        sa.Column("range_end", sa.Integer(), nullable=False),
        sa.Column("magnitude", sa.Double(), nullable=False),
        sa.Column("drift", sa.Boolean(), nullable=False),
        sa.Column("closed_position", sa.Integer(), nullable=True),
        sa.Column("regression_id", sa.Integer(), nullable=True),
        sa.Column("told_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "kind IN ('regression', 'improvement', 'infra', 'environment', 'method')",
            name=op.f("ck_fleet_incident_kind"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_fleet_incident_project_id_project"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"],
            ["regression.id"],
            name=op.f("fk_fleet_incident_regression_id_regression"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fleet_incident")),
    )
    op.create_index("ix_fleet_incident_project_id", "fleet_incident", ["project_id", "first_bad_position"])
    op.create_index(op.f("ix_fleet_incident_regression_id"), "fleet_incident", ["regression_id"])
    op.create_table(
        "fleet_ask",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("testbed", sa.Text(), nullable=False),
        sa.Column("after_run_id", sa.Text(), nullable=False),
        sa.Column("number", sa.SmallInteger(), nullable=False),
        sa.Column("base_position", sa.Integer(), nullable=False),
        sa.Column("head_position", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("answered_after", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_fleet_ask_project_id_project"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name=op.f("fk_fleet_ask_session_id_session"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fleet_ask")),
        sa.UniqueConstraint("project_id", "suite", "after_run_id", "number", name="uq_fleet_ask_question"),
    )
    op.create_index(op.f("ix_fleet_ask_session_id"), "fleet_ask", ["session_id"])
    _purposes("'confirm', 'bisect', 'compare', 'attribute'")


def downgrade() -> None:
    op.drop_table("fleet_ask")
    op.drop_table("fleet_incident")
    op.execute("DELETE FROM run WHERE session_id IN (SELECT id FROM session WHERE purpose = 'attribute')")
    op.execute("DELETE FROM session WHERE purpose = 'attribute'")
    _purposes("'confirm', 'bisect', 'compare'")


def _purposes(allowed: str) -> None:
    op.drop_constraint(op.f(PURPOSE), "session", type_="check")
    op.create_check_constraint(op.f(PURPOSE), "session", f"purpose IN ({allowed})")
