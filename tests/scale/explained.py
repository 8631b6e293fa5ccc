"""What every statement of a request did, as the server itself tells: rows, blocks touched, partitions read.

The server explains each statement after it ran (auto_explain) and sends that along with the answer, so that nothing is
run twice and no statement can be overlooked, whichever way it went to the server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg.errors import Diagnostic
from sqlalchemy import Engine, create_engine, event

OPTIONS = {
    "session_preload_libraries": "auto_explain",
    "client_min_messages": "log",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
}
PARTITION = re.compile(r"(?:judgement|measurement)_(\d{4}_\d{2})\Z")


@dataclass(frozen=True, slots=True)
class Explained:
    """One statement. `blocks` are those of tables and indexes that it touched, in memory or not."""

    sql: str
    blocks: int
    months: frozenset[str]
    """Partitions that its plan contains, such as 2026_11, whether rows were found there or not."""
    rows: int
    """That its scans returned."""


class Explaining:
    """An engine whose statements are explained; `during` collects them."""

    def __init__(self, url: str) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in OPTIONS.items())
        self.engine: Engine = create_engine(url, pool_size=1, connect_args={"options": options})
        self._heard: list[Explained] = []
        event.listen(self.engine, "connect", lambda connection, _: connection.add_notice_handler(self._hear))

    @contextmanager
    def during(self) -> Iterator[list[Explained]]:
        """What was run within the block."""
        self._heard = heard = []
        yield heard

    def _hear(self, notice: Diagnostic) -> None:
        _, found, plan = (notice.message_primary or "").partition("plan:\n")
        if found:
            self._heard.append(_read(json.loads(plan)))


def _read(said: dict[str, Any]) -> Explained:
    top = said["Plan"]
    nodes = list(_nodes(top))
    names = [PARTITION.match(node.get("Relation Name", "")) for node in nodes]
    scans = [node for node in nodes if node["Node Type"].endswith("Scan")]
    return Explained(
        sql=" ".join(said["Query Text"].split()),
        blocks=top["Shared Hit Blocks"] + top["Shared Read Blocks"],
        months=frozenset(name[1] for name in names if name is not None),
        rows=round(sum(node["Actual Rows"] * node["Actual Loops"] for node in scans)),
    )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)
