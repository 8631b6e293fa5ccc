"""Whether a regression is held back is stored by what changes it, and nobody who reads it has to find out

Revision ID: 0027
Revises: 0026

Reads the suspects and their change points once.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("regression", sa.Column("held_back", sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.execute(
        """UPDATE regression g SET held_back = true
           WHERE g.state = 'suspect'
             AND EXISTS (SELECT FROM change_point p WHERE p.regression_id = g.id AND p.state = 'confirmed')"""
    )


def downgrade() -> None:
    op.drop_column("regression", "held_back")
