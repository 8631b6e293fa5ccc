"""Configuration of the service: one frozen object, created at startup (the launcher, a test), passed to every part."""

from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from backend.contract import MAX_BODY_BYTES

MIB = 1024 * 1024
MAX_ATTEMPTS = 3
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Settings of the API and of the housekeeping loop. Seconds end in `_s`; sizes in `_bytes`."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    data_dir: Path
    # A streaming replica that pages may be read from.
    read_database_url: str | None = field(default=None, repr=False)
    # The server itself, where `database_url` leads to a pool that hands out connections for a transaction each: LISTEN
    # and the lock of the housekeeping loop belong to a connection, as do prepared statements.
    direct_database_url: str | None = field(default=None, repr=False)
    prepared_statements: bool = True
    public_url: str = "http://127.0.0.1:8000"
    # Names this service answers to, without port. The host of `public_url` is always among them.
    allowed_hosts: tuple[str, ...] = LOOPBACK_HOSTS
    # Pages and API reads without signing in. Writes never are public.
    public_read: bool = True
    github_webhook_secret: str | None = field(default=None, repr=False)
    # What tells GitHub of results: an app (its id and private key, PEM), else a token; neither: nothing is told.
    github_app_id: str | None = None
    github_app_key: str | None = field(default=None, repr=False)
    github_token: str | None = field(default=None, repr=False)
    github_api_url: str = "https://api.github.com"
    github_oidc_issuer: str | None = None  # None: GitHub's own
    # By what people sign in, besides the links that the launcher prints: an OpenID provider, an OAuth app of GitHub.
    openid_issuer: str | None = None
    openid_client_id: str | None = None
    openid_client_secret: str | None = field(default=None, repr=False)
    openid_name: str = "single sign-on"
    github_client_id: str | None = None
    github_client_secret: str | None = field(default=None, repr=False)
    # Hosts and networks that repositories may be fetched from although they are not public.
    private_hosts: tuple[str, ...] = ()
    version: str = field(default_factory=lambda: metadata.version("tidemark"))

    lease_s: int = 30
    heartbeat_s: int = 5
    max_attempts: int = MAX_ATTEMPTS
    max_body_bytes: int = MAX_BODY_BYTES
    max_run_artifact_bytes: int = 512 * MIB  # of all files of one run together
    max_webhook_bytes: int = 25 * MIB  # GitHub's own limit for a payload

    # Requests at work at once in one process, each with a database connection of its own; the others wait in a line.
    reads_at_once: int = 10
    writes_at_once: int = 8
    waiting_requests: int = 256
    wait_s: float = 10.0
    # Requests a minute that one process answers: of one token or session, and of one address without any.
    requests_per_token: int = 60_000
    requests_per_address: int = 6_000
    refusals_per_address: int = 300  # wrong tokens a minute

    # Live pages that are open at once: of everybody, of one address, of one token.
    streams: int = 500
    streams_per_address: int = 100
    streams_per_token: int = 50

    tick_s: float = 2.0
    publish_again_s: int = 10
    worker_live_s: int = 45  # a worker says that it lives every 15 s
    git_timeout_s: int = 300
    poll_s: int = 300  # a repository nobody told us about for so long is fetched anyway: webhooks get lost
    sync_again_s: int = 15  # pause after a sync that failed
    # A project seen for the first time may have years of history: only so many of its newest commits are benchmarked.
    first_sync_commits: int = 50
    sse_heartbeat_s: float = 15.0
    run_event_days: int = 30
    artifact_days: int | None = None  # None: artifacts are kept
    keep_months: int | None = None  # of measurements in the database; None: all
    live_event_days: int = 2
    webhook_delivery_days: int = 30
    github_outbox_days: int = 90

    @property
    def hosts(self) -> frozenset[str]:
        """Every accepted value of the Host header, without port, in lower case."""
        of_public_url = urlsplit(self.public_url).hostname or ""
        bracketed = f"[{of_public_url}]" if ":" in of_public_url else of_public_url
        return frozenset({host.lower() for host in (*self.allowed_hosts, bracketed) if host})

    @property
    def connections(self) -> int:
        """Database connections of one API process: one for each request in progress, and a few for background work."""
        return self.reads_at_once + self.writes_at_once + 3

    @property
    def incoming_dir(self) -> Path:
        return self.data_dir / "incoming"

    @property
    def mirrors_dir(self) -> Path:
        return self.data_dir / "mirrors"

    @property
    def archive_dir(self) -> Path:
        return self.data_dir / "archive"

    @property
    def artifacts_dir(self) -> Path:
        return self.data_dir / "artifacts"
