"""Tags of repositories

Revision ID: 0033
Revises: 0032

The next sync of each project fills them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tag",
        sa.Column("project_id", sa.Integer(), sa.ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("commit_id", sa.BigInteger(), sa.ForeignKey("commit.id", ondelete="CASCADE"), nullable=False),
    )
    op.create_index("ix_tag_commit_id", "tag", ["commit_id"])


def downgrade() -> None:
    op.drop_table("tag")
