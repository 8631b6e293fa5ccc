"""A series' state is bytes: read and written with every point, never looked into by the database

Revision ID: 0005
Revises: 0004
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE series ALTER COLUMN state TYPE bytea USING convert_to(state::text, 'UTF8')")
    # Arrays in base64 do not compress: trying costs more than the write.
    op.execute("ALTER TABLE series ALTER COLUMN state SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.execute("ALTER TABLE series ALTER COLUMN state TYPE jsonb USING convert_from(state, 'UTF8')::jsonb")
    op.execute("ALTER TABLE series ALTER COLUMN state SET STORAGE EXTENDED")
