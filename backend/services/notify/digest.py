"""What a digest tells: what regressed and was fixed since the last one, what is still bad, which series are noisiest,
and which testbeds are silent."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from backend.services.notify import messages
from backend.services.notify.messages import MessageSection
from backend.services.reports.overview import load_workers
from backend.services.triage.views import RegressionFilter, list_regressions
from backend.store.notify import digest as store

MOST = 200


def sections(c: Connection, project_id: int, project: str, since: datetime, public_url: str) -> list[MessageSection]:
    """The lists of the digest of a project; an empty one has no lines."""
    known = list_regressions(c, RegressionFilter(project=project, limit=MOST)).items
    regressed = [it for it in known if it.confirmed_at is not None and it.confirmed_at >= since and it.still_bad]
    fixed = [it for it in known if it.state == "fixed" and it.closed_at is not None and it.closed_at >= since]
    new = {it.id for it in regressed}
    still = [it for it in known if it.state in ("confirmed", "acknowledged") and it.still_bad and it.id not in new]
    lists = {"Regressed": regressed, "Fixed": fixed, "Still bad": still}
    mine = store.testbeds(c, project_id)
    base = public_url.rstrip("/")
    return [
        *(
            MessageSection(title=title, lines=tuple(messages.line_of(it, public_url) for it in found))
            for title, found in lists.items()
        ),
        MessageSection(
            title="Noisiest series",
            lines=tuple(
                (f"{row.name}: {100 * row.noise:.1f} % between runs", f"{base}/series/{row.id}")
                for row in store.noisiest(c, project_id)
            ),
        ),
        MessageSection(
            title="Silent testbeds",
            lines=tuple(
                (f"{each.testbed}: {each.waiting} runs wait", f"{base}/workers")
                for each in load_workers(c).silent
                if each.testbed in mine
            ),
        ),
    ]
