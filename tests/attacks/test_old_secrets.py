"""Secrets that should open nothing any more."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from backend.services.base import access
from backend.services.base.access import Scope
from backend.services.base.errors import Unauthenticated
from tidemark.datadir import DataDirectory
from tidemark.prepare import ADMIN_TOKEN, _keep_token

NOW = datetime.now(UTC)


def test_a_revoked_admin_secret_of_the_data_directory_stays_revoked_when_the_service_starts_again(
    committing_engine: Engine, tmp_path: Path
) -> None:
    data = DataDirectory.prepare(tmp_path / "data")

    def start() -> str:
        return _keep_token(committing_engine, data, ADMIN_TOKEN, "admin (data directory)", Scope.ADMIN)

    leaked = start()
    assert start() == leaked
    with committing_engine.begin() as c:
        (row,) = access.list_tokens(c)
        access.revoke_token(c, row.id, NOW)
    fresh = start()
    assert fresh != leaked and data.read_private(ADMIN_TOKEN) == fresh and start() == fresh
    with committing_engine.begin() as c:
        asking = {"session": None, "public_read": True, "now": NOW}
        assert access.identify(c, authorization=f"Bearer {fresh}", **asking).may(Scope.ADMIN)  # type: ignore[arg-type]
        with pytest.raises(Unauthenticated, match="was revoked"):
            access.identify(c, authorization=f"Bearer {leaked}", **asking)  # type: ignore[arg-type]
