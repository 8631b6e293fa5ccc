"""Is the deployment healthy? Checks of the running database, broker and service, from the machine of the caller.

Nothing is changed, and no check takes longer than seconds.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx
import redis
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from backend.services import housekeeping
from backend.store.base import schema
from tidemark import database
from tidemark.checkup.finding import Finding
from tidemark.machine.datadir import DataDirectory, Running
from tidemark.refusal import Refusal
from tidemark.settings import Settings, version

MOST_SKEW_S = 5.0
LEAST_POSTGRES = 15
LEAST_FREE_SHARE = 0.1
LEAST_FREE_BYTES = 2 * 2**30
LONG_STATEMENT_S = 60
LONG_TRANSACTION_S = 300
SLOW_MEAN_MS = 500
MOST_LAG_S = 60
MOST_CONNECTIONS_SHARE = 0.8
QUIET_WEBHOOK = timedelta(days=7)


def deployment(settings: Settings) -> Iterator[Finding]:
    """Every check of a deployment; none if no database is named and `tidemark up` is not running."""
    here = _running_here(settings)
    if settings.database_url is None and here is None:
        return
    # `up --port` is an option of that process alone; what runs has noted where it listens.
    address = here.url if here is not None and settings.public_url is None else settings.address
    try:
        with database.engine_of(settings) as engine, engine.connect() as c:
            c.execute(text("SET statement_timeout = '10s'"))
            if c.scalar(text("SELECT to_regclass('public.alembic_version')")) is None:
                yield _finding("schema", False, "there is none", "tidemark db upgrade")
                return
            for check in OF_DATABASE:
                yield from check(c)
            yield from _webhooks(c, settings, address)
            yield from _disk(c, settings)
    except (OperationalError, Refusal) as failure:
        yield _finding("database", False, str(failure).splitlines()[0], "correct TIDEMARK_DATABASE_URL, or start it")
    yield from _broker(settings)
    yield from _service(address)


def _running_here(settings: Settings) -> Running | None:
    """The `tidemark up` that runs here on a database of its own, if one does."""
    try:
        running = DataDirectory(settings.data_dir).running()
    except OSError:
        return None
    return running if running is not None and running.alive and "postgres" in running.ports else None


def _finding(name: str, good: bool, found: str, mend: str = "") -> Finding:
    return Finding(name=name, good=good, found=found, mend="" if good else mend)


def _skew(name: str, ahead_s: float) -> Finding:
    where = "ahead of" if ahead_s > 0 else "behind"
    return _finding(
        f"clock: {name}",
        abs(ahead_s) < MOST_SKEW_S,
        f"{abs(ahead_s):.1f} s {where} this machine's",
        "set both by NTP: leases and results carry times",
    )


def _clock(c: Connection) -> Iterator[Finding]:
    before = time.time()
    at = c.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
    yield _skew("database", float(at) - (before + time.time()) / 2)


def _versions(c: Connection) -> Iterator[Finding]:
    number = c.execute(text("SELECT current_setting('server_version_num')::int / 10000")).scalar_one()
    yield _finding(
        "postgresql",
        number >= LEAST_POSTGRES,
        f"version {number}",
        f"PostgreSQL {LEAST_POSTGRES} or newer is needed (pg_upgrade, or `tidemark db backup` and `restore`)",
    )
    at, head = schema.revisions(c)
    known = at is not None and schema.is_known(at)
    yield _finding(
        "schema",
        at == head,
        f"at {at}, this version has {head}",
        "tidemark db upgrade" if known else "this command is older than the database: bring it up to date",
    )
    rows = c.execute(
        text("SELECT name, version FROM worker WHERE last_seen_at > now() - interval '1 minute' AND version <> ''")
    )
    others = sorted(f"{name} ({theirs})" for name, theirs in rows if _series(theirs) != _series(version()))
    yield _finding(
        "worker versions",
        not others,
        f"differ from {version()}: {', '.join(others)}" if others else f"all live workers go with {version()}",
        "bring them up to date: they finish the current run and end with status 78 until then",
    )


def _series(number: str) -> tuple[str, ...]:
    return tuple(number.split(".")[:2])


def _permissions(c: Connection) -> Iterator[Finding]:
    row = c.execute(
        text(
            """SELECT current_user AS role, has_schema_privilege(current_user, 'public', 'CREATE')
                      AND has_database_privilege(current_user, current_database(), 'CREATE') AS may_create,
                      (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
                      (SELECT count(*) FROM pg_class k WHERE k.relnamespace = 'public'::regnamespace
                       AND k.relkind IN ('r', 'p') AND NOT pg_has_role(k.relowner, 'MEMBER')) AS not_ours"""
        )
    ).one()
    yield _finding(
        "database role",
        row.may_create and not row.not_ours,
        f"{row.role}{' (a superuser)' if row.superuser else ''}"
        + ("" if row.may_create else ", may not create tables and extensions here")
        + (f", {row.not_ours} tables belong to another role" if row.not_ours else ""),
        f'it makes partitions and migrates: GRANT CREATE ON SCHEMA public, and ON DATABASE, TO "{row.role}"; '
        "ALTER TABLE … OWNER TO it",
    )


def _partitions(c: Connection) -> Iterator[Finding]:
    missing = schema.missing_partitions(c, datetime.now(UTC))
    yield _finding(
        "partitions",
        not missing,
        f"missing: {', '.join(sorted(missing))}" if missing else "those of this month and the next are there",
        "tidemark beat makes them; is it running?",
    )


def _beat(c: Connection) -> Iterator[Finding]:
    held = c.execute(
        text(
            """SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
                              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                              AND ((classid::bigint << 32) | objid::bigint) = hashtext(:name)::bigint)"""
        ),
        {"name": housekeeping.LOCK},
    ).scalar_one()
    yield _finding("housekeeping", held, "running" if held else "not running", "start `tidemark beat`")


def _connections(c: Connection) -> Iterator[Finding]:
    used, most = c.execute(
        text(
            """SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity
               WHERE backend_type = 'client backend'"""
        )
    ).one()
    yield _finding(
        "connections",
        used <= most * MOST_CONNECTIONS_SHARE,
        f"{used} of {most} are taken",
        "raise max_connections, or run fewer processes: each of the API takes up to 21",
    )


def _slow(c: Connection) -> Iterator[Finding]:
    rows = c.execute(
        text(
            """SELECT pid, state, extract(epoch FROM now() - xact_start)::int AS open_s,
                      extract(epoch FROM now() - query_start)::int AS since_s, left(query, 80) AS query
               FROM pg_stat_activity
               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND datname = current_database()
               AND ((state = 'active' AND now() - query_start > make_interval(secs => :statement))
                    OR (state LIKE 'idle in transaction%' AND now() - xact_start > make_interval(secs => :transaction)))
               ORDER BY xact_start"""
        ),
        {"statement": LONG_STATEMENT_S, "transaction": LONG_TRANSACTION_S},
    ).all()
    told = [f"pid {row.pid} {row.state} for {row.since_s} s: {' '.join(row.query.split())}" for row in rows]
    yield _finding(
        "long statements",
        not rows,
        "; ".join(told) or "none",
        "somebody's transaction holds things up: SELECT pg_terminate_backend(PID) ends it",
    )
    if c.scalar(text("SELECT to_regclass('pg_stat_statements')")) is None:
        return
    slow = c.execute(
        text(
            """SELECT round(mean_exec_time) AS ms, calls, left(query, 100) AS query FROM pg_stat_statements
               WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND calls >= 20 AND mean_exec_time > :slow ORDER BY total_exec_time DESC LIMIT 3"""
        ),
        {"slow": SLOW_MEAN_MS},
    ).all()
    yield _finding(
        "slow statements",
        not slow,
        "; ".join(f"{row.ms} ms, {row.calls} times: {' '.join(row.query.split())}" for row in slow)
        or f"none takes more than {SLOW_MEAN_MS} ms in the mean",
        "VACUUM (ANALYZE), and see that PostgreSQL has memory for its indexes (shared_buffers)",
    )


def _replicas(c: Connection) -> Iterator[Finding]:
    """Nothing where there is none, or where the role may not see them."""
    for row in c.execute(
        text(
            """SELECT coalesce(nullif(application_name, ''), client_addr::text, pid::text) AS name, state,
                      pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint AS bytes,
                      extract(epoch FROM replay_lag)::float AS lag_s
               FROM pg_stat_replication WHERE state IS NOT NULL"""
        )
    ):
        behind = row.lag_s or 0.0
        yield _finding(
            f"replica {row.name}",
            row.state == "streaming" and behind < MOST_LAG_S,
            f"{row.state}, {behind:.0f} s and {(row.bytes or 0) / 2**20:.0f} MB behind",
            "is the way to it, or its disk, too slow? A restore from it would lack what it has not seen",
        )


def _webhooks(c: Connection, settings: Settings, at: str) -> Iterator[Finding]:
    """Whether deliveries would be taken at the public address, and when GitHub last sent one."""
    if settings.github_webhook_secret is None:
        return
    address = f"{at}/api/v1/webhooks/github"
    try:
        unsigned = httpx.post(address, json={}, headers={"X-GitHub-Event": "ping"}, timeout=5.0).status_code
        found, good = f"{address} answers {unsigned} to an unsigned delivery", unsigned in (400, 401, 403)
    except httpx.HTTPError as failure:
        found, good = f"{address} does not answer from here ({type(failure).__name__})", False
    yield _finding("webhook", good, found, "point TIDEMARK_PUBLIC_URL, DNS and the proxy to this service")
    last = c.scalar(text("SELECT max(received_at) FROM webhook_delivery"))
    quiet = last is None or datetime.now(UTC) - last > QUIET_WEBHOOK
    yield _finding(
        "webhook deliveries",
        not quiet,
        "GitHub has sent none yet" if last is None else f"the last came {last:%Y-%m-%d %H:%M} UTC",
        "see 'Recent deliveries' of the webhook on GitHub: it must reach the address above from outside",
    )


def _disk(c: Connection, settings: Settings) -> Iterator[Finding]:
    """Room in the data directory, where this machine has it; how large the database is."""
    size = c.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
    try:
        room = shutil.disk_usage(settings.data_dir)
    except OSError:
        yield _finding("database size", True, f"{size / 2**30:.2f} GB")
        return
    yield _finding(
        "disk",
        room.free > LEAST_FREE_BYTES and room.free > room.total * LEAST_FREE_SHARE,
        f"{room.free / 2**30:.1f} of {room.total / 2**30:.1f} GB free for {settings.data_dir}, "
        f"database of {size / 2**30:.2f} GB",
        "TIDEMARK_ARTIFACT_DAYS removes old artifacts; old partitions can be detached (docs/operations.md)",
    )


def _broker(settings: Settings) -> Iterator[Finding]:
    if settings.redis_url is None:
        return
    try:
        with redis.Redis.from_url(settings.redis_url, socket_timeout=3, socket_connect_timeout=3) as broker:
            before = time.time()
            seconds, micros = broker.time()
            yield _skew("broker", float(seconds) + micros / 1e6 - (before + time.time()) / 2)
            policy = broker.config_get("maxmemory-policy").get("maxmemory-policy", "noeviction")
    except (redis.RedisError, OSError) as failure:
        said = f"{type(failure).__name__}: {failure}"
        yield _finding("broker", False, said, "correct TIDEMARK_REDIS_URL, or start it")
        return
    yield _finding(
        "broker",
        policy == "noeviction",
        f"answers, maxmemory-policy {policy}",
        "set maxmemory-policy to noeviction: what is evicted is announced again only after a while",
    )


def _service(address: str) -> Iterator[Finding]:
    """The service at its public address: does it answer, what is its version, its clock, its certificate."""
    try:
        answer = httpx.get(f"{address}/readyz", timeout=5.0)
        alive = httpx.get(f"{address}/healthz", timeout=5.0)
    except httpx.HTTPError as failure:
        mend = "is it running, and does TIDEMARK_PUBLIC_URL lead to it?"
        yield _finding("service", False, f"{address}: {type(failure).__name__}", mend)
        return
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    checks = answer.json().get("checks", {}) if is_json else {}
    wrong = ", ".join(f"{name} {said}" for name, said in checks.items() if said != "ok")
    good = answer.status_code == 200
    yield _finding(
        "service",
        good,
        f"{address} is ready" if good else f"{address} answers {answer.status_code}: {wrong or answer.text[:80]}",
        "TIDEMARK_ALLOWED_HOSTS must have the name, and what is not ok must be fixed",
    )
    theirs = alive.json().get("version", "unknown") if alive.status_code == 200 else "unknown"
    yield _finding("service version", theirs == version(), f"{theirs}, this is {version()}", "replace the older one")
    if "date" in answer.headers:
        yield _skew("service", parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time())
    public = urlsplit(address)
    yield _finding(
        "encryption",
        public.scheme == "https" or public.hostname in ("127.0.0.1", "localhost", "::1"),
        f"{public.scheme} at {public.hostname}",
        "put a proxy with TLS in front (deploy/compose.tls.yml, deploy/Caddyfile) and set TIDEMARK_PUBLIC_URL to https",
    )


OF_DATABASE: tuple[Callable[[Connection], Iterator[Finding]], ...] = (
    _clock,
    _versions,
    _permissions,
    _partitions,
    _beat,
    _connections,
    _slow,
    _replicas,
)
