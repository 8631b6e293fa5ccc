"""The queue in groups of project and kind, and what each group was given

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

QUEUED = sa.text("state = 'queued'")
PUBLISHED = sa.text("state = 'queued' AND published_at IS NOT NULL")


def upgrade() -> None:
    op.drop_index("ix_run_queue", table_name="run", postgresql_where=QUEUED)
    op.create_index(
        "ix_run_waiting",
        "run",
        ["testbed_id", "project_id", "kind", "requested_at", "id"],
        postgresql_where=QUEUED,
    )
    op.create_index("ix_run_published", "run", ["testbed_id", "published_at"], postgresql_where=PUBLISHED)
    op.create_table(
        "queue_share",
        sa.Column("testbed_id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("served_at", sa.TIMESTAMP(timezone=True), nullable=True),
        sa.Column("used_s", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("counted_at", sa.TIMESTAMP(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_queue_share_project_id_project"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["testbed_id"], ["testbed.id"], name=op.f("fk_queue_share_testbed_id_testbed"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("testbed_id", "project_id", "kind", name=op.f("pk_queue_share")),
    )


def downgrade() -> None:
    op.drop_table("queue_share")
    op.drop_index("ix_run_published", table_name="run", postgresql_where=PUBLISHED)
    op.drop_index("ix_run_waiting", table_name="run", postgresql_where=QUEUED)
    op.create_index(
        "ix_run_queue",
        "run",
        ["testbed_id", sa.text("priority DESC"), "requested_at"],
        postgresql_where=QUEUED,
    )
