"""The suite is part of what makes a series: two suites may name their benchmarks alike

Revision ID: 0017
Revises: 0016

Every series keeps its id, its points and its state. It goes on as a series of the suite that measured its newest point:
so a suite that was renamed keeps its history, and where two suites had been taken for one, the other begins anew.
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

NAME = "uq_series_key"
KEY = ["project_id", "testbed_id", "benchmark", "variant_key", "metric", "preset", "suite_version"]


def upgrade() -> None:
    op.execute(
        """UPDATE series AS s SET suite = r.suite FROM run r
           WHERE r.suite <> s.suite AND r.id = (
             SELECT run_id FROM judgement
             WHERE series_id = s.id AND superseded_at IS NULL AND branch_id IS NULL
             ORDER BY position DESC LIMIT 1)"""
    )
    op.drop_constraint(NAME, "series", type_="unique")
    op.create_unique_constraint(NAME, "series", [*KEY[:2], "suite", *KEY[2:]])


def downgrade() -> None:
    """Fails where two suites have series that differ by the suite alone: there is no one series to make of them."""
    op.drop_constraint(NAME, "series", type_="unique")
    op.create_unique_constraint(NAME, "series", KEY)
