"""Tables of the joint detector by standard words: incidents, questions, pauses

Revision ID: 0023
Revises: 0022

Renames only, of tables, their constraints, indexes and sequences.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

TABLES = {"fleet_incident": "incident", "fleet_ask": "joint_question", "fleet_rest": "joint_pause"}
CONSTRAINTS = sa.text("SELECT conname FROM pg_constraint WHERE conrelid = CAST(:table AS regclass) ORDER BY conname")
INDEXES = sa.text("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND tablename = :table")
SEQUENCES = sa.text("SELECT pg_get_serial_sequence(:table, 'id')")


def rename(old: str, new: str) -> None:
    c = op.get_bind()
    op.rename_table(old, new)
    for name in c.scalars(CONSTRAINTS, {"table": new}).all():
        op.execute(f'ALTER TABLE {new} RENAME CONSTRAINT "{name}" TO "{name.replace(old, new)}"')
    for name in c.scalars(INDEXES, {"table": new}).all():
        if old in name:
            op.execute(f'ALTER INDEX "{name}" RENAME TO "{name.replace(old, new)}"')
    if "id" in {column["name"] for column in sa.inspect(c).get_columns(new)}:
        sequence = c.scalar(SEQUENCES, {"table": new})
        op.execute(f"ALTER SEQUENCE {sequence} RENAME TO {new}_id_seq")


def upgrade() -> None:
    for old, new in TABLES.items():
        rename(old, new)
    op.execute("ALTER TABLE joint_question RENAME CONSTRAINT uq_joint_question_question TO uq_joint_question_after")
    op.alter_column("incident", "told_at", new_column_name="reported_at")


def downgrade() -> None:
    op.alter_column("incident", "reported_at", new_column_name="told_at")
    op.execute("ALTER TABLE joint_question RENAME CONSTRAINT uq_joint_question_after TO uq_joint_question_question")
    for old, new in TABLES.items():
        rename(new, old)
