"""An index for the runs of a worker, newest first

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_run_worker_id_received_at", "run", ["worker_id", "received_at"])


def downgrade() -> None:
    op.drop_index("ix_run_worker_id_received_at", table_name="run")
