"""The newest roll-ups are updated with every run: their pages keep room for it

Revision ID: 0012
Revises: 0011
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE rollup SET (fillfactor = 70)")


def downgrade() -> None:
    op.execute("ALTER TABLE rollup RESET (fillfactor)")
