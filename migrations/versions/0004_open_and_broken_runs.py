"""Indexes of the few runs that are open or broken

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_run_open",
        "run",
        ["project_id", "testbed_id", "suite"],
        postgresql_where=sa.text("state IN ('queued', 'leased', 'running')"),
    )
    op.create_index(
        "ix_run_broken",
        "run",
        ["project_id", "testbed_id", "received_at"],
        postgresql_where=sa.text("status IN ('failed', 'incomplete')"),
    )


def downgrade() -> None:
    op.drop_index("ix_run_broken", table_name="run")
    op.drop_index("ix_run_open", table_name="run")
