"""Search: a commit, a benchmark, a regression or a run, from one box. What can only mean one thing opens at once."""

from fastapi.responses import RedirectResponse, Response

from backend.routing import Router
from backend.services.base.scope import SHA
from backend.services.reports.search import Hit, HitKind, SearchHits, search
from frontend.frame import Visiting
from frontend.links import link
from frontend.words import plural

router = Router(include_in_schema=False)

PER_KIND = 20
TITLES = {
    HitKind.REGRESSION: "Regressions",
    HitKind.COMMIT: "Commits",
    HitKind.BENCHMARK: "Benchmarks",
    HitKind.SERIES: "Series",
    HitKind.RUN: "Runs",
}


@router.get("/search")
def search_page(visit: Visiting) -> Response:
    query, project = visit.here.get("q").strip(), visit.project()
    found = search(visit.c, query, project, per_kind=PER_KIND) if project else SearchHits(text=query, hits=(), more=())
    meant = the_one(found)
    if meant is not None and not visit.here.get("stay"):
        return RedirectResponse(address_of(meant), status_code=303)
    return visit.page(
        "search.html",
        page="search",
        title=f"Search: {found.text}" if found.text else "Search",
        description=f"{plural(len(found.hits), 'match', 'matches')} for {found.text}."
        if found.text
        else "Find a commit, a benchmark, a series, a regression or a run.",
        project=project,
        query=found.text,
        groups=[
            (TITLES[kind], [(hit, address_of(hit)) for hit in found.hits if hit.kind is kind], kind in found.more)
            for kind in HitKind
            if any(hit.kind is kind for hit in found.hits)
        ],
    )


def the_one(found: SearchHits) -> Hit | None:
    """The only possible target of a search: the one thing found, or the one commit whose sha it begins."""
    if len(found.hits) == 1:
        return found.hits[0]
    text = found.text.lower()
    named = [hit for hit in found.hits if hit.kind is HitKind.COMMIT and SHA.match(text) and hit.key.startswith(text)]
    return named[0] if len(named) == 1 else None


def address_of(hit: Hit) -> str:
    """The page of a hit."""
    if hit.kind is HitKind.REGRESSION:
        return f"/regressions/{hit.key}"
    if hit.kind is HitKind.COMMIT:
        return link("/compare", project=hit.project, head=hit.key)
    if hit.kind is HitKind.BENCHMARK:
        return link("/board", project=hit.project, match=hit.key)
    return f"/series/{hit.key}" if hit.kind is HitKind.SERIES else f"/runs/{hit.key}"
