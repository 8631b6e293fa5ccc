"""The newest regressions of a project, by its own index

Revision ID: 0032
Revises: 0031

By their number alone they are found among those of every other project.
"""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_regression_project_id_id", "regression", ["project_id", "id"])


def downgrade() -> None:
    op.drop_index("ix_regression_project_id_id", "regression")
