"""How far a replica has come: the places in the write-ahead log that the primary has written and a replica replayed."""

from __future__ import annotations

from sqlalchemy import Connection, text

# The end of what is inserted, not of what is flushed: a commit that waits for no disk is seen before it is flushed.
_WRITTEN = text("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
# A replica that was promoted follows nobody: what it has is all there is.
_REPLAYED = text(
    "SELECT CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint END AS place"
)


def written_to(c: Connection) -> int:
    """The byte of the log up to which the primary has written."""
    return int(c.execute(_WRITTEN).scalar_one())


def replayed_to(c: Connection) -> int | None:
    """The byte up to which this replica shows what was written; None: it is a primary itself."""
    place: int | None = c.execute(_REPLAYED).scalar_one()
    return place
