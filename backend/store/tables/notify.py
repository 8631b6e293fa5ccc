"""The tables of telling people: rules of projects, messages that follow from them, and what no rule has seen yet."""

from sqlalchemy import (
    REAL,
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from backend.store.tables.core import TIMESTAMP, at, in_key, metadata, of_project, project_in_key

NO_TEXTS = text("'{}'::text[]")

# Events of regressions not yet matched with the rules. A row is written with its event, in one transaction, so
# none is missed, in whatever order transactions commit.
unseen_event = Table(
    "unseen_event",
    metadata,
    Column("event_id", BigInteger, primary_key=True, autoincrement=False),
    in_key(),
    of_project("event_id", "regression_event", "CASCADE"),
)

# Who is notified of what, and where.
notify_rule = Table(
    "notify_rule",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    project_in_key(),
    Column("name", Text, nullable=False),
    Column("address", Text, nullable=False),  # an Apprise address with its secrets; leaves the service only for sending
    Column("shown_address", Text, nullable=False),  # the same without secrets
    Column("suites", ARRAY(Text), nullable=False, server_default=NO_TEXTS),  # patterns; none: all
    Column("causes", ARRAY(Text), nullable=False),
    Column("states", ARRAY(Text), nullable=False),  # kinds of events to report
    Column("owners", ARRAY(Text), nullable=False, server_default=NO_TEXTS),  # none: any owner
    Column("min_change", REAL),  # of cost, as a fraction
    Column("digest", Text),  # daily | weekly; null: each event at once
    Column("time_zone", Text, nullable=False, server_default="UTC"),
    Column("quiet_from", Text),  # hh:mm in that time zone
    Column("quiet_until", Text),
    at("created_at", default=True),
    CheckConstraint("digest IN ('daily', 'weekly')", name="digest"),
    Index("ix_notify_rule_project_id", "project_id"),
)

# Messages that result from the rules, and their outcome.
notify_message = Table(
    "notify_message",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    in_key(),
    Column("rule_id", Integer, nullable=False),
    Column("key", Text, nullable=False),  # what it reports; a rule reports each thing once
    Column("kind", Text, nullable=False),  # event | digest | test
    Column("regression_id", Integer, index=True),
    Column("event", Text),
    # `sending` is stored before the message is sent; if it is found later, its fate is unknown
    Column("state", Text, nullable=False, server_default="waiting"),
    at("wanted_at", default=True),
    Column("send_after", TIMESTAMP),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("error", Text),
    Column("sent_at", TIMESTAMP),
    of_project("rule_id", "notify_rule", "CASCADE"),
    of_project("regression_id", "regression", "CASCADE"),
    CheckConstraint("kind IN ('event', 'digest', 'test')", name="kind"),
    CheckConstraint("state IN ('waiting', 'sending', 'sent', 'gave_up', 'unknown')", name="state"),
    UniqueConstraint("rule_id", "key", "project_id", name="uq_notify_message_key"),
    Index("ix_notify_message_waiting", "wanted_at", postgresql_where=text("state IN ('waiting', 'sending')")),
)
