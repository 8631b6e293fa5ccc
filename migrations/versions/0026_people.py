"""People, their roles, private projects, and the audit trail

Browsers that are signed in have to sign in again: until now a session had no account.

Revision ID: 0026
Revises: 0025
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

DELIVERY_PROJECT = "fk_webhook_delivery_project_id_project"
WHEN = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "account",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text()),
        sa.Column("login", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", WHEN, server_default=sa.text("now()"), nullable=False),
        sa.Column("last_signed_in_at", WHEN),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account")),
        sa.UniqueConstraint("provider", "subject", name=op.f("uq_account_provider_subject")),
        sa.UniqueConstraint("provider", "login", name=op.f("uq_account_provider_login")),
        sa.CheckConstraint("provider IN ('local', 'github', 'openid')", name=op.f("ck_account_provider")),
    )
    op.create_table(
        "member",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer()),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("added_at", WHEN, server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["account.id"], name=op.f("fk_member_account_id_account"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_member_project_id_project"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_member")),
        sa.UniqueConstraint(
            "account_id",
            "project_id",
            name=op.f("uq_member_account_id_project_id"),
            postgresql_nulls_not_distinct=True,
        ),
        sa.CheckConstraint("role IN ('viewer', 'submitter', 'triager', 'admin')", name=op.f("ck_member_role")),
    )
    op.create_index(op.f("ix_member_project_id"), "member", ["project_id"])
    op.create_table(
        "audit_event",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("at", WHEN, server_default=sa.text("now()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("project", sa.Text()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), server_default="", nullable=False),
        sa.Column("detail", JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_event")),
    )
    op.create_index("ix_audit_event_project", "audit_event", ["project", sa.text("id DESC")])
    op.execute(
        """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege'; END $$"""
    )
    op.execute(
        """CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_event
           FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"""
    )
    op.add_column("project", sa.Column("private", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column("sign_in_link", sa.Column("name", sa.Text(), server_default="", nullable=False))
    # Sessions of before have no account, and open nothing.
    op.add_column("web_session", sa.Column("account_id", sa.Integer()))
    op.add_column("web_session", sa.Column("browser", sa.Text(), server_default="", nullable=False))
    op.create_foreign_key(
        op.f("fk_web_session_account_id_account"), "web_session", "account", ["account_id"], ["id"], ondelete="CASCADE"
    )
    op.drop_constraint(op.f(DELIVERY_PROJECT), "webhook_delivery", type_="foreignkey")
    op.create_foreign_key(
        op.f(DELIVERY_PROJECT), "webhook_delivery", "project", ["project_id"], ["id"], ondelete="CASCADE"
    )


def downgrade() -> None:
    op.drop_constraint(op.f(DELIVERY_PROJECT), "webhook_delivery", type_="foreignkey")
    op.create_foreign_key(
        op.f(DELIVERY_PROJECT), "webhook_delivery", "project", ["project_id"], ["id"], ondelete="SET NULL"
    )
    op.drop_constraint(op.f("fk_web_session_account_id_account"), "web_session", type_="foreignkey")
    op.drop_column("web_session", "browser")
    op.drop_column("web_session", "account_id")
    op.drop_column("sign_in_link", "name")
    op.drop_column("project", "private")
    op.drop_table("audit_event")
    op.execute("DROP FUNCTION refuse_change()")
    op.drop_table("member")
    op.drop_table("account")
