"""What a run changes of a series' state stands in a column of its own, so that the whole is written seldom

Revision ID: 0010
Revises: 0009
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE series ADD COLUMN state_tail bytea")
    # Half a kilobyte that does not compress, written with every point: it stays in the row.
    op.execute("ALTER TABLE series ALTER COLUMN state_tail SET STORAGE MAIN")


def downgrade() -> None:
    # Without its tail a state is that of an older run: those series begin anew and are judged again from there.
    op.execute(
        "UPDATE series SET state = NULL, state_position = NULL WHERE state_tail IS NOT NULL AND state IS NOT NULL"
    )
    op.execute("ALTER TABLE series DROP COLUMN state_tail")
