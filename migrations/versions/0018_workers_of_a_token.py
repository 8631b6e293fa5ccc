"""A worker's name belongs to the token that it first spoke with

Revision ID: 0018
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

NAME = "fk_worker_token_id_api_token"


def upgrade() -> None:
    op.add_column("worker", sa.Column("token_id", sa.Integer()))
    op.create_foreign_key(op.f(NAME), "worker", "api_token", ["token_id"], ["id"], ondelete="SET NULL")


def downgrade() -> None:
    op.drop_constraint(op.f(NAME), "worker", type_="foreignkey")
    op.drop_column("worker", "token_id")
