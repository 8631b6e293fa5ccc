"""Whether a judgement is red is a column of its own, and nobody who reads it has to find out

Revision ID: 0021
Revises: 0020

It was a key of `detail`. Reads every judgement once.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("judgement", sa.Column("red", sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.execute("UPDATE judgement SET red = true, detail = detail - 'red' WHERE CAST(detail ->> 'red' AS boolean)")


def downgrade() -> None:
    op.execute("""UPDATE judgement SET detail = detail || '{"red": true}' WHERE red""")
    op.drop_column("judgement", "red")
