"""Pull requests, and what GitHub is to be told

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "pull_request",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("author", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("is_fork", sa.Boolean(), nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("base_ref", sa.Text(), nullable=False),
        sa.Column("approved_sha", sa.Text()),
        sa.Column("approved_by", sa.Text()),
        sa.Column("prepared_sha", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("try_after", MOMENT),
        sa.Column("updated_at", MOMENT, server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("state IN ('open', 'closed', 'merged')", name=op.f("ck_pull_request_state")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_pull_request_project_id_project"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "number", name=op.f("pk_pull_request")),
    )
    op.create_table(
        "github_outbox",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("wanted_at", MOMENT, server_default=sa.text("now()"), nullable=False),
        sa.Column("send_after", MOMENT),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("remote_id", sa.Text()),
        sa.Column("memory", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("sent_at", MOMENT),
        sa.CheckConstraint("kind IN ('check', 'comment')", name=op.f("ck_github_outbox_kind")),
        sa.CheckConstraint("state IN ('waiting', 'sent', 'gave_up')", name=op.f("ck_github_outbox_state")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_github_outbox_project_id_project"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "kind", "key", name=op.f("pk_github_outbox")),
    )
    op.create_index(
        "ix_github_outbox_waiting", "github_outbox", ["wanted_at"], postgresql_where=sa.text("state = 'waiting'")
    )


def downgrade() -> None:
    op.drop_table("github_outbox")
    op.drop_table("pull_request")
