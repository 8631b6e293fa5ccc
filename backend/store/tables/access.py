"""The tables of who may do what: people and roles, tokens, sign-in links, sessions of browsers, the audit trail."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from backend.store.tables.core import EMPTY_OBJECT, TIMESTAMP, at, metadata

# A person who signed in, or was named as a member.
account = Table(
    "account",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("provider", Text, nullable=False),  # who authenticates it; local: this machine's own sign-in links
    Column("subject", Text),  # the provider's own id; null: named as a member, and has not signed in yet
    Column("login", Text, nullable=False),  # in lower case: a GitHub login, or a verified address
    Column("name", Text, nullable=False, server_default=""),
    at("created_at", default=True),
    Column("last_signed_in_at", TIMESTAMP),
    UniqueConstraint("provider", "subject"),
    UniqueConstraint("provider", "login"),
    CheckConstraint("provider IN ('local', 'github', 'openid')", name="provider"),
)

# The role of an account in a project, or in all of them.
member = Table(
    "member",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("account_id", ForeignKey("account.id", ondelete="CASCADE"), nullable=False),
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), index=True),  # null: all projects
    Column("role", Text, nullable=False),
    at("added_at", default=True),
    UniqueConstraint("account_id", "project_id", postgresql_nulls_not_distinct=True),
    CheckConstraint("role IN ('viewer', 'submitter', 'triager', 'admin')", name="role"),
)

# Append-only: a trigger refuses every change. It refers to projects by name, and outlives them.
audit_event = Table(
    "audit_event",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    at("at", default=True),
    Column("actor", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("project", Text),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False, server_default=""),
    Column("detail", JSONB, nullable=False, server_default=EMPTY_OBJECT),
    Index("ix_audit_event_project", "project", text("id DESC")),
)

# Tokens of programs, with what they may do, and where.
api_token = Table(
    "api_token",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),  # sha256; the token itself is shown once and not stored
    Column("hint", Text, nullable=False),  # its first characters, to distinguish tokens
    Column("scopes", ARRAY(Text), nullable=False),
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE")),
    at("created_at", default=True),
    Column("last_used_at", TIMESTAMP),
    Column("expires_at", TIMESTAMP),
    Column("revoked_at", TIMESTAMP),
)

# Links of `tidemark sign-in`, each valid for one browser.
sign_in_link = Table(
    "sign_in_link",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("name", Text, nullable=False, server_default=""),  # the person it signs in
    at("created_at", default=True),
    at("expires_at"),
    Column("used_at", TIMESTAMP),
)

# The browsers that are signed in.
web_session = Table(
    "web_session",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("name", Text, nullable=False, server_default=""),  # the person's name, from before there were accounts
    Column("account_id", ForeignKey("account.id", ondelete="CASCADE")),
    Column("browser", Text, nullable=False, server_default=""),  # its own description
    at("created_at", default=True),
    at("last_seen_at", default=True),
    at("expires_at"),
)
