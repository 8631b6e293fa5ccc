"""What choosing reads: buffers, time, and whether it goes by index. The length of the queue must not tell."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from backend.store.queue import groups as queue_groups

TIMES = 7


def plan_of_choosing(c: Connection, testbed_id: int, now: datetime, *, times: int = TIMES) -> dict[str, Any]:
    """How PostgreSQL reads the groups of a testbed that wait."""
    values = {"testbed": testbed_id, "again_before": now - timedelta(seconds=10), "limit": 5}
    cursor = c.connection.driver_connection.cursor()  # type: ignore[union-attr]
    took_ms = []
    for _ in range(times):
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + queue_groups.GROUPS, values)
        plan = cursor.fetchone()[0][0]
        took_ms.append(plan["Execution Time"])
    nodes = list(_nodes(plan["Plan"]))
    return {
        "ms": round(sorted(took_ms)[len(took_ms) // 2], 2),
        "buffers": plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"],
        "scans_of_run": sorted({node["Node Type"] for node in nodes if node.get("Relation Name") == "run"}),
    }


def _nodes(plan: dict[str, Any]) -> Iterable[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
