"""The service as others reach it: behind a proxy that ends TLS and says whose request it is. Callers say so, too."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import Engine

from backend.api import create_api
from backend.services.base.config import ServiceConfig
from tests.attacks.limits import kept_to
from tests.conftest import LiveServer, ServeApp

NAME = "tidemark.example"


def certificate(directory: Path) -> tuple[Path, Path]:
    """One for NAME, signed by itself: the certificate and its key."""
    key, today = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(today - timedelta(days=1)).not_valid_after(today + timedelta(days=1))
    signed = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False).sign(
        key, hashes.SHA256()
    )
    places = directory / "certificate.pem", directory / "key.pem"
    places[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    places[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return places


class Proxy:
    """Ends TLS, passes each request on over HTTP, and says where it came from as proxies do: behind what was said."""

    def __init__(self, to: tuple[str, int], own: tuple[Path, Path]) -> None:
        self.to, self.comes_from = to, "192.0.43.8"
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*own)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        said = [line.partition(":")[2].strip() for line in head if line.lower().startswith("x-forwarded-for:")]
        kept = [line for line in head if not line.lower().startswith(("x-forwarded-", "connection:"))]
        through = ", ".join([*said, self.comes_from])
        kept += [f"X-Forwarded-For: {through}", "X-Forwarded-Proto: https", "Connection: close"]
        inner_reader, inner = await asyncio.open_connection(*self.to)
        inner.write("\r\n".join([*kept, "", ""]).encode())
        writer.write(await inner_reader.read())
        await writer.drain()
        writer.close()
        inner.close()

    @contextmanager
    def running(self) -> Iterator[int]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        starting = asyncio.start_server(self.pass_on, "127.0.0.1", 0, ssl=self.context)
        server = asyncio.run_coroutine_threadsafe(starting, loop).result(10)
        yield server.sockets[0].getsockname()[1]
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture
def config(service_config: ServiceConfig) -> ServiceConfig:
    return replace(service_config, public_url=f"https://{NAME}", requests_per_address=10, requests_per_token=10)


@pytest.fixture
def server(config: ServiceConfig, committing_engine: Engine, serve_app: ServeApp) -> Iterator[LiveServer]:
    with serve_app(create_api(config, committing_engine), committing_engine, config) as made:
        yield made


@pytest.fixture
def proxy(server: LiveServer, tmp_path: Path) -> Proxy:
    host, port = server.url.removeprefix("http://").split(":")
    return Proxy((host, int(port)), certificate(tmp_path))


@pytest.fixture
def caller(proxy: Proxy, tmp_path: Path) -> Iterator[httpx.Client]:
    """Who trusts the proxy's certificate, and calls the service by its name."""
    trusting = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    with proxy.running() as port:
        hello = {"sni_hostname": NAME}
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusting, trust_env=False) as client:
            client.headers["Host"] = NAME
            client.event_hooks = {"request": [lambda request: request.extensions.update(hello)]}
            yield client


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/queue", "/api/v1/no-such-thing", "/api/v1/schema/run.json"])
def test_every_answer_over_tls_says_that_only_tls_is_to_be_used(caller: httpx.Client, path: str) -> None:
    assert caller.get(path).headers["strict-transport-security"] == "max-age=31536000"


def test_without_tls_it_is_not_said(live_server: LiveServer) -> None:
    """A browser that believed it would not reach the service any more."""
    said = httpx.get(f"{live_server.url}/healthz", headers={"X-Forwarded-Proto": "https"}, trust_env=False)
    assert "strict-transport-security" not in said.headers


def test_another_name_is_refused_through_the_proxy_too(caller: httpx.Client) -> None:
    assert caller.get("/healthz", headers={"Host": "evil.example"}).status_code == 421


def test_who_asks_too_often_is_counted_by_the_address_that_the_proxy_saw(proxy: Proxy, caller: httpx.Client) -> None:
    """Whatever addresses a caller makes up: the proxy's word comes last, and is the one that counts."""
    made_up = [caller.get("/api/v1/queue", headers={"X-Forwarded-For": f"198.51.100.{n}"}) for n in range(12)]
    assert 1 <= int(kept_to(10, made_up).headers["retry-after"]) <= 60
    proxy.comes_from = "192.0.43.9"
    assert caller.get("/api/v1/queue").status_code == 200, "another caller is not kept from it"


def test_who_asks_too_often_is_counted_by_token_as_well(server: LiveServer, proxy: Proxy, caller: httpx.Client) -> None:
    def ask(token: str) -> httpx.Response:
        return caller.get("/api/v1/queue", headers={"Authorization": f"Bearer {token}"})

    first, second = server.token("read"), server.token("write")
    answers = [ask(first) for _ in range(12)]
    assert 1 <= int(kept_to(10, answers).headers["retry-after"]) <= 60
    assert ask(second).status_code == 200, "another token of the same office is not kept from it"
