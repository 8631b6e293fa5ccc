"""The tables for GitHub: deliveries of its webhook, pull requests, and the outbox."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from backend.store.tables.core import EMPTY_OBJECT, TIMESTAMP, at, metadata

# Deliveries of GitHub's webhook, so that none is processed twice.
webhook_delivery = Table(
    "webhook_delivery",
    metadata,
    Column("delivery_id", Text, primary_key=True),
    Column("event", Text, nullable=False),
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE")),
    at("received_at", default=True),
    Column("outcome", Text, nullable=False, server_default=""),
)


# Pull requests, and who approved the commit of a fork.
pull_request = Table(
    "pull_request",
    metadata,
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("title", Text, nullable=False, server_default=""),
    Column("author", Text, nullable=False, server_default=""),
    Column("state", Text, nullable=False),  # open | closed | merged
    Column("is_fork", Boolean, nullable=False),
    Column("head_sha", Text, nullable=False),
    Column("base_ref", Text, nullable=False),
    Column("approved_sha", Text),  # for a fork: the only commit that a maintainer allowed onto the workers
    Column("approved_by", Text),
    Column("prepared_sha", Text),  # the last commit whose runs were requested, or found not to be needed
    Column("error", Text),  # why the runs of its commit could not be requested
    Column("try_after", TIMESTAMP),
    at("updated_at", default=True),
    CheckConstraint("state IN ('open', 'closed', 'merged')", name="state"),
)

# What to send to GitHub: one row per place (a commit's check, a pull request's comment), not per message. The text
# is generated from the store when it is sent, so ten results in a second are one update.
github_outbox = Table(
    "github_outbox",
    metadata,
    Column("project_id", ForeignKey("project.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),  # check | comment | issue | reply
    # the commit's sha | the pull request's number | the regression's number | the id of the comment with the command
    Column("key", Text, primary_key=True),
    Column("state", Text, nullable=False),  # waiting | sent | gave_up
    at("wanted_at", default=True),
    Column("send_after", TIMESTAMP),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("error", Text),  # GitHub's last answer
    Column("remote_id", Text),  # of the existing check run or comment, so that it is updated in place
    Column("memory", JSONB, nullable=False, server_default=EMPTY_OBJECT),  # digest of the text; the last red table
    Column("sent_at", TIMESTAMP),
    CheckConstraint("kind IN ('check', 'comment', 'issue', 'reply')", name="kind"),
    CheckConstraint("state IN ('waiting', 'sent', 'gave_up')", name="state"),
    Index("ix_github_outbox_waiting", "wanted_at", postgresql_where=text("state = 'waiting'")),
)
