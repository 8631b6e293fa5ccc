"""Series of which a stretch is still to be judged again, because a point arrived very late

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

NAME = "ix_series_rejudge_from"


def upgrade() -> None:
    op.add_column("series", sa.Column("rejudge_from", sa.Integer()))
    op.create_index(NAME, "series", ["project_id", "id"], postgresql_where=sa.text("rejudge_from IS NOT NULL"))


def downgrade() -> None:
    op.drop_index(NAME, table_name="series")
    op.drop_column("series", "rejudge_from")
