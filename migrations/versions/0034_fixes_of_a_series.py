"""The newest fixes of a series, by an index

Revision ID: 0034
Revises: 0033

The board asks which commits moved something: without it, every fix of the project's history was read.
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_change_point_fixed",
        "change_point",
        ["series_id", "fixed_position"],
        postgresql_where=sa.text("state = 'fixed'"),
    )


def downgrade() -> None:
    op.drop_index("ix_change_point_fixed", "change_point")
