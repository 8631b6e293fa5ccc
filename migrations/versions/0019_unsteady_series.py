"""A judgement may say that its series is too unsteady to be judged

Revision ID: 0019
Revises: 0018
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

BEFORE = "'regression', 'improvement', 'unchanged', 'suspect', 'insufficient'"
NOW = "'regression', 'improvement', 'unchanged', 'suspect', 'unsteady', 'insufficient'"


def allow(verdicts: str) -> None:
    op.drop_constraint(op.f("ck_judgement_verdict"), "judgement", type_="check")
    op.create_check_constraint(op.f("ck_judgement_verdict"), "judgement", f"verdict IN ({verdicts})")


def upgrade() -> None:
    allow(NOW)


def downgrade() -> None:
    op.execute("UPDATE judgement SET verdict = 'unchanged' WHERE verdict = 'unsteady'")
    op.execute("UPDATE rollup SET worst_verdict = 'unchanged' WHERE worst_verdict = 'unsteady'")
    allow(BEFORE)
