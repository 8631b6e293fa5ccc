"""Indexes for reads: a branch's commits by date, and the few results that did not end well

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_commit_date", "commit", ["project_id", sa.text("coalesce(committed_at, recorded_at)")])
    op.create_index("ix_result_not_ok", "result", ["run_id"], postgresql_where=sa.text("status <> 'ok'"))


def downgrade() -> None:
    op.drop_index("ix_result_not_ok", table_name="result")
    op.drop_index("ix_commit_date", table_name="commit")
