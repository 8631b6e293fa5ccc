"""The TIDEMARK_* variables: read, checked, turned into what the service is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemark.refusal import Refusal
from tidemark.settings import Settings, read_settings, service_config


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("TIDEMARK_"):
            monkeypatch.delenv(name)


def test_nothing_set_means_loopback_and_embedded_servers() -> None:
    settings = read_settings()
    assert (settings.host, settings.port, settings.database_url, settings.redis_url) == ("127.0.0.1", 8000, None, None)
    assert settings.address == "http://127.0.0.1:8000"


def test_an_option_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PORT", "9000")
    assert read_settings().port == 9000
    assert read_settings(port=9001).port == 9001
    assert read_settings(port=None).port == 9000
    assert read_settings().changed(port=9002).port == 9002


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PORT", "eighty", "TIDEMARK_PORT is 'eighty': accepted is a whole number from 1 to 65535"),
        ("PORT", "70000", "TIDEMARK_PORT is '70000': accepted is a whole number from 1 to 65535"),
        ("MAX_BODY_MB", "0", "TIDEMARK_MAX_BODY_MB is '0'"),
        ("HEARTBEAT_S", "29", "two heartbeats must fit in a lease of 30 s"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_variable(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TIDEMARK_{name}", value)
    with pytest.raises(Refusal, match=words) as refusal:
        read_settings()
    assert "\n" not in str(refusal.value)


def test_a_wrong_option_is_called_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PORT", "9000")
    for refused in (lambda: read_settings(port=99_999), lambda: read_settings().changed(port=0)):
        with pytest.raises(Refusal, match=r"^--port is \d+: accepted is a whole number from 1 to 65535$"):
            refused()


def test_host_names_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_ALLOWED_HOSTS", "tidemark.example.org, perf.example.org")
    assert read_settings().allowed_hosts == ("tidemark.example.org", "perf.example.org")


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_GITHUB_WEBHOOK_SECRET", "")
    assert read_settings().github_webhook_secret is None


def test_the_service_is_told_everything_it_knows_of(tmp_path: Path) -> None:
    config = service_config(
        read_settings(
            database_url="postgresql://db/tidemark",
            redis_url="redis://broker",
            data_dir=tmp_path,
            public_url="https://tidemark.example.org/",
            allowed_hosts="other.example.org",
            github_webhook_secret="s",
            max_body_mb=10,
        )
    )
    assert config.public_url == "https://tidemark.example.org"
    assert {"127.0.0.1", "localhost", "other.example.org", "tidemark.example.org"} <= config.hosts
    assert config.max_body_bytes == 10 * 1024 * 1024
    assert config.github_webhook_secret == "s"
    assert config.data_dir == tmp_path


def test_no_secret_is_shown_with_the_settings_it_belongs_to(tmp_path: Path) -> None:
    names = ("github_webhook_secret", "github_token", "token")
    secret: dict[str, Any] = {name: "a-secret" for name in names}
    secret |= {"database_url": "postgresql://u:a-secret@h/d", "redis_url": "redis://:a-secret@h/0"}
    settings = Settings(data_dir=tmp_path, **secret)
    assert "a-secret" not in repr(settings) + repr(service_config(settings))


def test_a_service_without_its_servers_says_what_to_set() -> None:
    with pytest.raises(Refusal, match="TIDEMARK_DATABASE_URL is not set; `tidemark up` starts"):
        service_config(read_settings())


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    ("given", "public"),
    [
        ({}, True),
        ({"host": "::1"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"public_url": "https://tidemark.example.org"}, False),
        ({"host": "0.0.0.0", "public_read": True}, True),
        ({"public_read": False}, False),
    ],
)
def test_reading_is_public_on_loopback_alone_unless_it_is_said(given: dict[str, object], public: bool) -> None:
    assert read_settings(**given).reads_are_public is public
