"""Reads for digests."""

from typing import NamedTuple

from sqlalchemy import Connection, text

MOST_SERIES = 5


class NoisySeriesRow(NamedTuple):
    id: int
    name: str
    noise: float
    """Relative standard deviation between runs."""


_NOISIEST = text(
    """SELECT s.id, concat_ws(' ', s.benchmark, nullif(s.variant_key, ''), s.metric, 'on', t.name) AS name,
         CAST(s.profile ->> 'noise' AS double precision) AS noise
       FROM series s JOIN testbed t ON t.id = s.testbed_id
       WHERE s.project_id = :project AND s.role = 'gate' AND s.last_measured_at > now() - interval '30 days'
         AND CAST(s.profile ->> 'noise' AS double precision) > 0
       ORDER BY noise DESC, s.id LIMIT :limit"""
)
_TESTBEDS = text(
    "SELECT DISTINCT t.name FROM testbed t JOIN series s ON s.testbed_id = t.id WHERE s.project_id = :project"
)


def noisiest(c: Connection, project_id: int) -> list[NoisySeriesRow]:
    """Gate series with the most noise between runs, of those that are still measured."""
    return [
        NoisySeriesRow(**row._mapping) for row in c.execute(_NOISIEST, {"project": project_id, "limit": MOST_SERIES})
    ]


def testbeds(c: Connection, project_id: int) -> frozenset[str]:
    return frozenset(c.execute(_TESTBEDS, {"project": project_id}).scalars())
