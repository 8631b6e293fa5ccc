"""A worker whose token is limited to one project is offered the runs of that project only

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

NAME = "fk_worker_project_id_project"


def upgrade() -> None:
    op.add_column("worker", sa.Column("project_id", sa.Integer()))
    op.create_foreign_key(op.f(NAME), "worker", "project", ["project_id"], ["id"], ondelete="SET NULL")


def downgrade() -> None:
    op.drop_constraint(op.f(NAME), "worker", type_="foreignkey")
    op.drop_column("worker", "project_id")
