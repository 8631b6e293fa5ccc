"""Issues and answers on GitHub; a worker that only stands in a delivered result was never seen

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KIND = "ck_github_outbox_kind"


def upgrade() -> None:
    op.drop_constraint(op.f(KIND), "github_outbox", type_="check")
    op.create_check_constraint(op.f(KIND), "github_outbox", "kind IN ('check', 'comment', 'issue', 'reply')")
    op.alter_column("worker", "last_seen_at", nullable=True, existing_server_default=sa.text("now()"))
    # What a worker says of itself at its start; results from elsewhere only name one.
    never = "version = '' AND protection = 'none' AND capabilities = '{}'"
    op.execute(f"UPDATE worker SET last_seen_at = NULL WHERE {never}")


def downgrade() -> None:
    op.execute("UPDATE worker SET last_seen_at = started_at WHERE last_seen_at IS NULL")
    op.alter_column("worker", "last_seen_at", nullable=False, existing_server_default=sa.text("now()"))
    op.execute("DELETE FROM github_outbox WHERE kind IN ('issue', 'reply')")
    op.drop_constraint(op.f(KIND), "github_outbox", type_="check")
    op.create_check_constraint(op.f(KIND), "github_outbox", "kind IN ('check', 'comment')")
