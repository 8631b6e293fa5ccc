"""`make scale`: several processes of each kind behind one address, a replica, PgBouncer; each is killed while results
are delivered and pages looked at, at last the primary, whose place the replica takes. What was acknowledged is counted.

    python -m tests.cluster.run --seconds 10

It listens on loopback only, at free ports, and ends by itself after two to four minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.cluster.drill import Found, drill
from tests.cluster.servers import PGBOUNCER_MISSING, Cluster
from tests.conftest import scratch_directory
from tidemark.machine.processes import adopt_orphans


def main() -> int:
    options = argparse.ArgumentParser(prog="make scale", description=__doc__.split("\n\n")[0] if __doc__ else None)
    options.add_argument("--seconds", type=float, default=5.0, help="between one fault and the next (default 5)")
    options.add_argument("--apis", type=int, default=3, help="API processes (default 3)")
    options.add_argument("--json", type=Path, help="write the figures to this file as well")
    asked = options.parse_args()
    adopt_orphans()
    began, load = time.monotonic(), os.getloadavg()[0]
    with scratch_directory() as directory:
        cluster = Cluster(directory, apis=asked.apis)
        if cluster.pgbouncer is None:
            print(PGBOUNCER_MISSING)
        try:
            cluster.start()
            found = drill(cluster, asked.seconds)
        finally:
            cluster.close()
    print(told(found))
    print(
        f"{time.monotonic() - began:.0f} s; {load:.1f} processes ran or waited on {os.cpu_count()} cores when it began"
    )
    if asked.json is not None:
        asked.json.write_text(json.dumps(asdict(found), indent=1))
    return 1 if found.wrong else 0


def told(found: Found) -> str:
    """The outcome as lines."""
    rows = [
        "| fault | results taken until the next | attempts that were repeated | pages | of them failed |",
        "|---|--:|--:|--:|--:|",
        *(f"| {it.what} | {it.acknowledged} | {it.again} | {it.pages} | {it.pages_failed} |" for it in found.struck),
        "",
        f"acknowledged {found.acknowledged}, lost {found.lost}; {found.again} attempts were repeated, "
        f"the slowest result took {found.longest_delivery_s} s",
        f"pages {found.pages}, of them failed {found.pages_failed}; "
        f"at most {found.longest_without_page_s} s without one",
        f"the lag that was shown of the replica when it was held back: {found.lag_seen_s} s",
        *(f"WRONG: {line}" for line in found.wrong),
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
