"""A project may have a webhook secret of its own

Revision ID: 0020
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("project", sa.Column("webhook_secret", sa.Text()))


def downgrade() -> None:
    op.drop_column("project", "webhook_secret")
