"""Which positions a project measured in which month, so that a read opens no partition that it does not need; runs by
when they were asked for

Revision ID: 0024
Revises: 0023

A judgement of the default branch stands at the position of its commit and was measured when its run was, so that the
runs say the spans of what is there already. Writing judgements waits meanwhile: a second for 250,000 runs.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# Rounded to 16 positions, so that a project's row is written with one commit in sixteen and only read with the others.
WIDEN = """
CREATE FUNCTION widen_position_span() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO position_span AS p (project_id, month, first_position, last_position)
  SELECT n.* FROM (
    SELECT s.project_id, date_trunc('month', j.measured_at, 'UTC') AS month,
           min(j.position) & ~15 AS first_position, max(j.position) | 15 AS last_position
    FROM moved j JOIN series s ON s.id = j.series_id
    WHERE j.branch_id IS NULL AND j.superseded_at IS NULL GROUP BY 1, 2) AS n
  WHERE NOT EXISTS (
    SELECT FROM position_span k WHERE k.project_id = n.project_id AND k.month = n.month
      AND k.first_position <= n.first_position AND k.last_position >= n.last_position)
  ORDER BY 1, 2
  ON CONFLICT (project_id, month) DO UPDATE SET
    first_position = least(p.first_position, excluded.first_position),
    last_position = greatest(p.last_position, excluded.last_position);
  RETURN NULL;
END $$
"""


def upgrade() -> None:
    op.create_table(
        "position_span",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("first_position", sa.Integer(), nullable=False),
        sa.Column("last_position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name="fk_position_span_project_id_project", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "month", name="pk_position_span"),
    )
    op.create_index("ix_run_requested_at", "run", ["requested_at"])
    op.execute(WIDEN)
    for event in ("INSERT", "UPDATE"):
        op.execute(
            f"""CREATE TRIGGER widen_position_span_{event.lower()} AFTER {event} ON judgement
                REFERENCING NEW TABLE AS moved FOR EACH STATEMENT EXECUTE FUNCTION widen_position_span()"""
        )
    op.execute(
        """INSERT INTO position_span
           SELECT r.project_id, date_trunc('month', coalesce(r.started_at, r.received_at), 'UTC'),
                  min(b.position) & ~15, max(b.position) | 15
           FROM run r JOIN project p ON p.id = r.project_id
           JOIN branch m ON m.project_id = p.id AND m.name = p.default_branch
           JOIN branch_commit b ON b.branch_id = m.id AND b.commit_id = r.commit_id
           WHERE coalesce(r.started_at, r.received_at) IS NOT NULL GROUP BY 1, 2"""
    )


def downgrade() -> None:
    for event in ("update", "insert"):
        op.execute(f"DROP TRIGGER widen_position_span_{event} ON judgement")
    op.drop_index("ix_run_requested_at", "run")
    op.execute("DROP FUNCTION widen_position_span")
    op.drop_table("position_span")
