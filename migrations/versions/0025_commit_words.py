"""Words in messages of commits are found by an index of trigrams

Revision ID: 0025
Revises: 0024

Needs the extension pg_trgm, which comes with PostgreSQL; the owner of a database may create it.
"""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    op.execute("CREATE INDEX ix_commit_words ON commit USING gin ((message || ' ' || author_name) gin_trgm_ops)")


def downgrade() -> None:
    op.drop_index("ix_commit_words", "commit")
    op.execute("DROP EXTENSION pg_trgm")
