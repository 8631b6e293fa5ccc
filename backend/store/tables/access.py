"""The tables of who may do what: tokens, sign-in links and the sessions of browsers."""

from sqlalchemy import (
    Column,
    ForeignKey,
    Identity,
    Integer,
    LargeBinary,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from backend.store.tables.core import TIMESTAMP, at, metadata

api_token = Table(
    "api_token",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),  # sha256; the token itself is shown once and not kept
    Column("hint", Text, nullable=False),  # its first characters, to tell tokens apart
    Column("scopes", ARRAY(Text), nullable=False),
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE")),
    at("created_at", default=True),
    Column("last_used_at", TIMESTAMP),
    Column("expires_at", TIMESTAMP),
    Column("revoked_at", TIMESTAMP),
)

sign_in_link = Table(
    "sign_in_link",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    at("created_at", default=True),
    at("expires_at"),
    Column("used_at", TIMESTAMP),
)

web_session = Table(
    "web_session",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("name", Text, nullable=False, server_default=""),
    at("created_at", default=True),
    at("last_seen_at", default=True),
    at("expires_at"),
)
