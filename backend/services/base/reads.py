"""Where reads go: to a streaming replica as long as it keeps up, else to the primary.

How far the replica is behind is measured without trusting two clocks: every second the primary says up to where it has
written, and what the replica shows is as old as the newest of those places that it has not reached yet. A replica
whose link to the primary is cut is seen the same way.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from backend.store.base import pool
from backend.store.base import replica as store

log = logging.getLogger("tidemark.replica")

MAX_LAG_S = 5.0
"""A replica further behind is not read from."""
LOOK_EVERY_S = 1.0
OWN_ACTION_S = 15
"""How long a caller reads from the primary after a change: longer than a replica may lag without being noticed."""
OWN_ACTION_COOKIE = "tidemark_wrote"
REMEMBERED = 60
PRIMARY_AWAY_S = 300.0
"""How long pages go on by the rights that the replica has, when the primary does not answer."""
_READS = "tidemark_reads"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def may_lag(method: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> bool:
    """Whether this request may be answered with data some seconds old: a page viewed by a person who has
    not just changed something. Programs send a token, and read what they wrote."""
    return method in SAFE_METHODS and "authorization" not in headers and OWN_ACTION_COOKIE not in cookies


@contextmanager
def for_rights(c: Connection) -> Iterator[Connection]:
    """By which connection rights are judged: the primary, also of a page that is read from the replica. A session that
    was ended, a role that was taken away and a project that became private hold at once."""
    reads: Reads | None = c.get_execution_options().get(_READS)
    if reads is None or reads.rights_may_lag:
        yield c
    else:
        with reads.primary.begin() as primary:  # committed: after a rollback the driver forgets what is prepared
            yield primary


def is_of_replica(c: Connection) -> bool:
    """Whether what this connection shows may lag."""
    return _READS in c.get_execution_options()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    lag_s: float | None
    """None: it was not seen to keep up yet, or does not answer."""
    in_use: bool

    def __str__(self) -> str:
        if self.lag_s is None:
            return "the read replica does not answer or was not seen to keep up: pages are read from the primary"
        where = "from it" if self.in_use else "from the primary"
        return f"the read replica is {self.lag_s:.1f} s behind: pages are read {where}"


class Reads:
    """The primary, and the replica if there is one. `look` must be called every second for the replica to be used."""

    def __init__(self, primary: Engine, replica: Engine | None = None) -> None:
        self.primary = primary
        self.replica = replica
        if replica is not None:
            replica.update_execution_options(**{_READS: self})
        self._written: deque[tuple[float, int]] = deque(maxlen=REMEMBERED)
        """When the primary was asked, and up to where it had written."""
        self._current_at: float | None = None
        """When what the replica shows was all there was."""
        self._answers = False
        self._away_since: float | None = None
        """When the primary was first found not to answer; None: it does."""

    def open_early(self) -> None:
        """Open a connection before anybody needs one. Where a database does not answer, requests will say so."""
        for engine in (self.primary, self.replica):
            if engine is not None:
                with suppress(SQLAlchemyError):
                    pool.open_early(engine)

    @property
    def engine(self) -> Engine:
        """Where a read that may lag goes now."""
        return self.replica if self.replica is not None and self._is_usable() else self.primary

    @property
    def status(self) -> ReplicaStatus | None:
        """How the replica is; None: there is none."""
        if self.replica is None:
            return None
        return ReplicaStatus(lag_s=self._lag_s(), in_use=self._is_usable())

    def connect(self, *, may_lag: bool) -> Connection:
        """A connection to the replica where that will do and can be had, else to the primary."""
        engine = self.engine if may_lag else self.primary
        if engine is not self.primary:
            try:
                return engine.connect()
            except SQLAlchemyError as error:
                self._is_gone(error)
        return self.primary.connect()

    @contextmanager
    def begin(self, *, may_lag: bool) -> Iterator[Connection]:
        """The same, in a transaction that is committed at the end."""
        with ExitStack() as stack:
            c = stack.enter_context(self.connect(may_lag=may_lag))
            stack.enter_context(c.begin())
            yield c

    @property
    def rights_may_lag(self) -> bool:
        """Whether rights are checked on the replica: nobody can change one while the primary is down. Not for long: it
        may be only this process that cannot reach it."""
        return self._away_since is not None and time.monotonic() - self._away_since < PRIMARY_AWAY_S

    def look(self) -> None:
        """Ask both where they are. It may take as long as connecting may."""
        if self.replica is None:
            return
        asked_at = time.monotonic()
        try:
            with self.primary.connect() as c:
                self._written.append((asked_at, store.written_to(c)))
            self._away_since = None
        except SQLAlchemyError:
            self._away_since = asked_at if self._away_since is None else self._away_since
        try:
            with self.replica.connect() as c:
                replayed = store.replayed_to(c)
        except SQLAlchemyError as error:
            self._is_gone(error)
            return
        if replayed is None:
            self._current_at = asked_at
        else:
            reached = [at for at, place in self._written if place <= replayed]
            self._current_at = max(reached, default=self._current_at)
        self._answers = True

    def _is_usable(self) -> bool:
        """Also with a long lag while the primary is away: what is known is better than an error."""
        lag_s = self._lag_s()
        return lag_s is not None and (lag_s <= MAX_LAG_S or self._away_since is not None)

    def _lag_s(self) -> float | None:
        return time.monotonic() - self._current_at if self._answers and self._current_at is not None else None

    def _is_gone(self, error: SQLAlchemyError) -> None:
        if self._answers:
            log.warning("the read replica does not answer, reading from the primary: %s", str(error).split("\n", 1)[0])
        self._answers = False
