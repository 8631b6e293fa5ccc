"""Settings from the environment: the TIDEMARK_* variables, read once, at startup, and validated there."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tidemark.machine.datadir import default_data_dir
from tidemark.refusal import Refusal

if TYPE_CHECKING:
    from backend.services.base.config import ServiceConfig

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class Settings(BaseSettings):
    """One field per variable; the variable is TIDEMARK_ plus the field's name in capitals."""

    model_config = SettingsConfigDict(env_prefix="TIDEMARK_", env_ignore_empty=True, extra="ignore", frozen=True)

    database_url: str | None = Field(None, repr=False, description="PostgreSQL to use instead of the embedded one")
    read_database_url: str | None = Field(
        None, repr=False, description="a streaming replica that pages are read from while it is at most 5 s behind"
    )
    direct_database_url: str | None = Field(
        None,
        repr=False,
        description="PostgreSQL itself, where TIDEMARK_DATABASE_URL is a PgBouncer in transaction mode: for LISTEN, "
        "the lock of the housekeeping loop, and migrations",
    )
    prepared_statements: bool = Field(True, description="set to false behind a PgBouncer in transaction mode")
    redis_url: str | None = Field(None, repr=False, description="Redis or Valkey to use instead of the embedded one")
    data_dir: Path = Field(default_factory=default_data_dir, description="the data directory")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=1, le=65_535, description="port to listen on")
    public_url: str | None = Field(None, description="the address people use, if it is not http://HOST:PORT")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="further host names it answers to, besides loopback and the public address, separated by commas"
    )
    public_read: bool | None = Field(
        None, description="whether reading needs no sign-in; by default only if it listens on loopback alone"
    )
    private_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="hosts and networks (10.2.0.0/16) that repositories may be fetched from although they are not "
        "public, separated by commas",
    )
    github_webhook_secret: str | None = Field(None, repr=False, description="the secret of GitHub's webhook")
    github_app_id: str | None = Field(None, description="id of the GitHub App that writes checks and comments")
    github_app_key_file: Path | None = Field(None, description="file with that app's private key (PEM)")
    github_token: str | None = Field(
        None, repr=False, description="a token for statuses and comments, if there is no app"
    )
    github_api_url: str = Field("https://api.github.com", description="where GitHub's REST API is (GitHub Enterprise)")
    github_oidc_issuer: str | None = Field(None, description="issuer of workflows' tokens, if not GitHub itself")
    log_format: Literal["text", "json"] = Field(
        "text", description="how processes log: lines for people, or JSON with the ids of request and run"
    )
    otlp_endpoint: str | None = Field(
        None,
        description="an OTLP/HTTP collector for traces, e.g. http://127.0.0.1:4318; needs tidemark[otel]",
    )
    oidc_issuer: str | None = Field(None, description="issuer address of the OpenID provider people sign in with")
    oidc_client_id: str | None = Field(None, description="this service's client id at the OpenID provider")
    oidc_client_secret: str | None = Field(None, repr=False, description="its client secret at the OpenID provider")
    oidc_name: str = Field("single sign-on", description="label of the button that leads to the OpenID provider")
    github_client_id: str | None = Field(None, description="client id of the GitHub OAuth app people sign in with")
    github_client_secret: str | None = Field(None, repr=False, description="that app's client secret")
    sign_in: Literal["links"] | None = Field(
        None, description="links: people sign in only with the links that `tidemark sign-in` prints"
    )
    url: str | None = Field(None, description="address of the service, for commands and workers")
    token: str | None = Field(None, repr=False, description="bearer token of commands and workers")
    lease_s: int = Field(30, ge=5, le=3600, description="seconds a worker holds a run without a heartbeat")
    heartbeat_s: int = Field(5, ge=1, le=600, description="seconds between a worker's heartbeats")
    worker_isolation: Literal["auto", "none", "namespace", "user", "container"] = Field(
        "auto",
        description="how commit code is isolated: auto takes the best available, any other value is a requirement",
    )
    worker_image: str | None = Field(
        None, description="image that commit code runs in, if a worker has podman or docker; unset: no containers"
    )
    worker_runtime: str | None = Field(None, description="the program that runs containers, if not podman or docker")
    worker_network: Literal["none", "setup", "always"] = Field(
        "none", description="when a container may use the network: never, during the setup command, or always"
    )
    worker_memory_gb: float | None = Field(
        None,
        gt=0,
        description="the most memory a run may use, where it can be limited (default: 90 % of the machine's)",
    )
    worker_cache_gb: float = Field(
        20.0, ge=0, description="the most that checkouts and setups may take on a worker's disk, in GB"
    )
    worker_mirrors_gb: float = Field(
        20.0, gt=0, description="the most that mirrors of repositories may take on disk, in GB"
    )
    worker_free_gb: float = Field(1.0, ge=0, description="a worker takes no runs with less free disk than this, in GB")
    worker_run_gb: float = Field(64.0, gt=0, description="a run that takes more disk than this is stopped, in GB")
    worker_pass: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="environment variables of the worker that commit code may see, separated by commas"
    )
    max_body_mb: int = Field(50, ge=1, le=1000, description="the largest run that is accepted, in MB")

    artifact_days: int | None = Field(None, ge=1, description="days that artifacts of runs are kept; unset: forever")
    keep_months: int | None = Field(
        None,
        ge=4,
        description="months that single measurements stay in the database, older ones become Parquet files; unset: all",
    )
    requests_per_token: int = Field(
        60_000, ge=1, description="the most requests per minute with one token, for each process"
    )
    requests_per_address: int = Field(
        6_000, ge=1, description="the most requests per minute from one address without a token, for each process"
    )

    @field_validator("allowed_hosts", "private_hosts", "worker_pass", mode="before")
    @classmethod
    def _by_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("heartbeat_s")
    @classmethod
    def _several_in_a_lease(cls, value: int, info: object) -> int:
        lease_s = getattr(info, "data", {}).get("lease_s", value * 2)
        if value * 2 > lease_s:
            raise ValueError(f"two heartbeats must fit in a lease of {lease_s} s")
        return value

    @property
    def address(self) -> str:
        """The address people use."""
        if self.public_url:
            return self.public_url.rstrip("/")
        shown = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host
        return f"http://[{shown}]:{self.port}" if ":" in shown else f"http://{shown}:{self.port}"

    @property
    def reads_are_public(self) -> bool:
        """By default, only people at this machine may read without signing in."""
        if self.public_read is not None:
            return self.public_read
        return self.host in LOOPBACK and urlsplit(self.address).hostname in LOOPBACK

    def changed(self, **given: object) -> Settings:
        """These settings with the options given to a command (None: not given)."""
        stated = {name: value for name, value in given.items() if value is not None}
        return checked({**self.model_dump(exclude_unset=True), **stated}, options=stated)


def read_settings(**given: object) -> Settings:
    """The environment's settings, overridden by a command's options."""
    stated = {name: value for name, value in given.items() if value is not None}
    return checked(stated, options=stated)


def checked(values: dict[str, object], *, options: Collection[str]) -> Settings:
    """The settings. An invalid value is refused under the name it was given by: an option's, or the variable's."""
    try:
        return Settings(**values)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        setting = ".".join(str(part) for part in first["loc"])
        name = "--" + setting.replace("_", "-") if setting in options else "TIDEMARK_" + setting.upper()
        said = first["msg"].removeprefix("Value error, ")
        wanted = said if first["type"] == "value_error" else _accepted(setting) or said
        raise Refusal(f"{name} is {first['input']!r}: {wanted}") from None


def _accepted(setting: str) -> str | None:
    """The whole range of a whole number; None of what is none, or has no end."""
    field = Settings.model_fields.get(setting)
    if field is None or field.annotation is not int:
        return None
    low = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
    high = next((each.le for each in field.metadata if isinstance(each, Le)), None)
    return None if low is None or high is None else f"accepted is a whole number from {low} to {high}"


def service_config(settings: Settings) -> ServiceConfig:
    """Configuration of the service. The database and the broker must be known by now."""
    from backend.services.base.config import LOOPBACK_HOSTS, MIB, ServiceConfig

    if settings.database_url is None or settings.redis_url is None:
        missing = "TIDEMARK_DATABASE_URL" if settings.database_url is None else "TIDEMARK_REDIS_URL"
        raise Refusal(f"{missing} is not set; `tidemark up` starts its own database and broker")
    return ServiceConfig(
        database_url=settings.database_url,
        redis_url=settings.redis_url,
        data_dir=settings.data_dir,
        read_database_url=settings.read_database_url,
        direct_database_url=settings.direct_database_url,
        prepared_statements=settings.prepared_statements,
        public_url=settings.address,
        allowed_hosts=(*LOOPBACK_HOSTS, *settings.allowed_hosts),
        public_read=settings.reads_are_public,
        github_webhook_secret=settings.github_webhook_secret,
        github_app_id=settings.github_app_id,
        github_app_key=app_key(settings),
        github_token=settings.github_token,
        github_api_url=settings.github_api_url,
        github_oidc_issuer=settings.github_oidc_issuer,
        openid_issuer=settings.oidc_issuer,
        openid_client_id=settings.oidc_client_id,
        openid_client_secret=settings.oidc_client_secret,
        openid_name=settings.oidc_name,
        github_client_id=settings.github_client_id,
        github_client_secret=settings.github_client_secret,
        private_hosts=settings.private_hosts,
        version=version(),
        lease_s=settings.lease_s,
        heartbeat_s=settings.heartbeat_s,
        max_body_bytes=settings.max_body_mb * MIB,
        artifact_days=settings.artifact_days,
        keep_months=settings.keep_months,
        requests_per_token=settings.requests_per_token,
        requests_per_address=settings.requests_per_address,
    )


def app_key(settings: Settings) -> str | None:
    """The app's private key, read once; an app with half of its settings is reported as a mistake."""
    if (settings.github_app_id is None) != (settings.github_app_key_file is None):
        missing = "APP_ID" if settings.github_app_id is None else "APP_KEY_FILE"
        raise Refusal(f"TIDEMARK_GITHUB_{missing} is not set; an app needs TIDEMARK_GITHUB_APP_ID and _APP_KEY_FILE")
    if settings.github_app_key_file is None:
        return None
    try:
        return settings.github_app_key_file.read_text()
    except OSError as error:
        raise Refusal(f"TIDEMARK_GITHUB_APP_KEY_FILE {settings.github_app_key_file}: {error.strerror}") from None


def version() -> str:
    from tidemark import __version__

    return __version__
