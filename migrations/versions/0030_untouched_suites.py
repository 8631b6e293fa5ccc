"""Which suites a commit does not touch

Revision ID: 0030
Revises: 0029
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("commit", sa.Column("untouched_suites", postgresql.ARRAY(sa.Text())))


def downgrade() -> None:
    op.drop_column("commit", "untouched_suites")
