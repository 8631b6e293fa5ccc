"""Rules that say who is told of what, and the messages that follow from them

Revision ID: 0029
Revises: 0028
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

TEXTS = postgresql.ARRAY(sa.Text())
MOMENT = sa.DateTime(timezone=True)
NONE = sa.text("'{}'::text[]")


def upgrade() -> None:
    op.create_table(
        "unseen_event",
        sa.Column("event_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("event_id", name="pk_unseen_event"),
        sa.ForeignKeyConstraint(
            ["event_id"], ["regression_event.id"], name="fk_unseen_event_event_id_regression_event", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "notify_rule",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("shown_address", sa.Text(), nullable=False),
        sa.Column("suites", TEXTS, nullable=False, server_default=NONE),
        sa.Column("causes", TEXTS, nullable=False),
        sa.Column("states", TEXTS, nullable=False),
        sa.Column("owners", TEXTS, nullable=False, server_default=NONE),
        sa.Column("min_change", sa.REAL()),
        sa.Column("digest", sa.Text()),
        sa.Column("time_zone", sa.Text(), nullable=False, server_default="UTC"),
        sa.Column("quiet_from", sa.Text()),
        sa.Column("quiet_until", sa.Text()),
        sa.Column("created_at", MOMENT, nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_notify_rule"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name="fk_notify_rule_project_id_project", ondelete="CASCADE"
        ),
        sa.CheckConstraint("digest IN ('daily', 'weekly')", name=op.f("ck_notify_rule_digest")),
    )
    op.create_index("ix_notify_rule_project_id", "notify_rule", ["project_id"])
    op.create_table(
        "notify_message",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("rule_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("regression_id", sa.Integer()),
        sa.Column("event", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False, server_default="waiting"),
        sa.Column("wanted_at", MOMENT, nullable=False, server_default=sa.func.now()),
        sa.Column("send_after", MOMENT),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("error", sa.Text()),
        sa.Column("sent_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_notify_message"),
        sa.ForeignKeyConstraint(
            ["rule_id"], ["notify_rule.id"], name="fk_notify_message_rule_id_notify_rule", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"], ["regression.id"], name="fk_notify_message_regression_id_regression", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("rule_id", "key", name="uq_notify_message_key"),
        sa.CheckConstraint("kind IN ('event', 'digest', 'test')", name=op.f("ck_notify_message_kind")),
        sa.CheckConstraint(
            "state IN ('waiting', 'sending', 'sent', 'gave_up', 'unknown')", name=op.f("ck_notify_message_state")
        ),
    )
    op.create_index("ix_notify_message_regression_id", "notify_message", ["regression_id"])
    op.create_index(
        "ix_notify_message_waiting",
        "notify_message",
        ["wanted_at"],
        postgresql_where=sa.text("state IN ('waiting', 'sending')"),
    )


def downgrade() -> None:
    op.drop_table("notify_message")
    op.drop_table("notify_rule")
    op.drop_table("unseen_event")
