"""What an unsteady series sees is a column of its own, which the index of the board covers

Revision ID: 0022
Revises: 0021

Builds the index of standing judgements anew.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

COVERED = ["measured_at", "commit_id", "run_id", "value", "verdict", "onset", "change", "regression_id", "have", "need"]


def index_standing(covered: list[str]) -> None:
    op.create_index(
        "ix_judgement_standing",
        "judgement",
        ["series_id", sa.literal_column("position DESC")],
        unique=False,
        postgresql_where=sa.text("superseded_at IS NULL AND branch_id IS NULL"),
        postgresql_include=covered,
    )


def upgrade() -> None:
    op.add_column("judgement", sa.Column("sees", sa.REAL()))
    op.execute("UPDATE judgement SET sees = CAST(detail -> 'numbers' ->> 'sees' AS float8) WHERE verdict = 'unsteady'")
    op.drop_index("ix_judgement_standing", "judgement")
    index_standing([*COVERED, "sees"])


def downgrade() -> None:
    op.drop_index("ix_judgement_standing", "judgement")
    op.drop_column("judgement", "sees")
    index_standing(COVERED)
