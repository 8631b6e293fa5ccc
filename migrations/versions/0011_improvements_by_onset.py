"""A board finds where series got better

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

NAME = "ix_change_point_improvement"


def upgrade() -> None:
    better = sa.text("direction = 'improvement' AND state = 'confirmed'")
    op.create_index(NAME, "change_point", ["onset_position", "series_id"], postgresql_where=better)


def downgrade() -> None:
    op.drop_index(NAME, table_name="change_point")
