"""How many cases of a run applied, and how many passed, in its own row

Revision ID: 0035
Revises: 0034

The Overview draws the pass rate of months. Of runs from before, the results are counted when somebody asks.
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("applicable", sa.Integer))
    op.add_column("run", sa.Column("passed", sa.Integer))


def downgrade() -> None:
    op.drop_column("run", "passed")
    op.drop_column("run", "applicable")
