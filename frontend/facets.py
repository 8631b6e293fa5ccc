"""The facet bar: of what, and against what? The same on every page, and the address holds all of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from backend.services.base.scope import RANGES
from backend.services.reports.facets import FACETS, Catalogue, FacetValue, catalogue
from frontend.frame import Visit
from frontend.links import Here
from frontend.words import plural

SHOWN_RANGES = (("24 h", "24h"), ("7 d", "7d"), ("30 d", "30d"), ("90 d", "90d"), ("All", "all"))
GRANULARITIES = (("Commit", "commit"), ("Hour", "hour"), ("Day", "day"), ("Week", "week"))
AGES = (("24 hours ago", "24h"), ("7 days ago", "7d"), ("30 days ago", "30d"), ("90 days ago", "90d"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One property: what is chosen of it, and what could be."""

    name: str
    chosen: tuple[str, ...]
    choices: tuple[FacetValue, ...]
    without: str
    """The same page with this facet taken off."""
    unused: str = ""
    """Why this page cannot use it."""

    @property
    def shown(self) -> str:
        return ", ".join(self.chosen) or "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Base or head, with the commits one could choose."""

    name: str
    value: str
    shown: str
    sha: str | None
    unused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetBar:
    catalogue: Catalogue
    facets: tuple[Facet, ...]
    ranges: list[tuple[str, str, bool]]
    granularities: list[tuple[str, str, bool]]
    ends: tuple[Ends, ...]
    count: str
    nothing_left: bool
    clear: str | None
    pinned: str
    saved_as: str
    swapped: str | None
    any_testbed: bool = False
    """Whether the page shows all testbeds until one is chosen."""
    ages: tuple[tuple[str, str], ...] = AGES
    unused: Mapping[str, str] = field(default_factory=dict)


def chosen_facets(here: Here) -> dict[str, tuple[str, ...]]:
    """The facets of an address that are set."""
    return {name: here.all(name) for name in FACETS if here.all(name)}


def facet_bar(
    visit: Visit,
    project: str | None,
    *,
    range_shown: str | None = None,
    granularity: str | None = None,
    base: tuple[str, str | None] = ("", None),
    head: tuple[str, str | None] = ("", None),
    unused: Mapping[str, str] | None = None,
    any_testbed: bool = False,
) -> FacetBar | None:
    """The bar of this page; None without a project. `unused` says why a part does nothing here; a part keeps its place
    and its value in the address all the same. `base` and `head` are what they stand for here, with the commit."""
    if project is None:
        return None
    here, idle = visit.here, unused or {}
    chosen = chosen_facets(here)
    found = catalogue(visit.c, project, here.get("branch") or None, here.get("testbed") or None, chosen)
    facets = tuple(
        Facet(
            name=name,
            chosen=chosen.get(name, ()),
            choices=choices,
            without=here(**{name: None}),
            unused=idle.get(name, ""),
        )
        for name, choices in found.choices.items()
    )
    names = {"base": base, "head": head}
    ends = tuple(
        Ends(name=name, value=here.get(name), shown=shown, sha=sha, unused=idle.get(name, ""))
        for name, (shown, sha) in names.items()
    )
    return FacetBar(
        catalogue=found,
        facets=facets,
        ranges=[
            (label, here(range=value, since=None, until=None), range_shown == value) for label, value in SHOWN_RANGES
        ],
        granularities=[(label, here(granularity=value), granularity == value) for label, value in GRANULARITIES],
        ends=ends,
        count=f"{found.matching} of {plural(found.total, 'variant')}",
        nothing_left=bool(chosen) and not found.matching,
        clear=here(**dict.fromkeys(FACETS)) if chosen else None,
        pinned=pinned(visit, range_shown, {"base": base[1], "head": head[1]}),
        saved_as=here.path.strip("/") or "overview",
        swapped=here(base=here.get("head"), head=here.get("base")) if here.get("base") and here.get("head") else None,
        unused=idle,
        any_testbed=any_testbed,
    )


def pinned(visit: Visit, range_shown: str | None, shas: Mapping[str, str | None]) -> str:
    """The address with everything that moves with time made fast: what it shows now it shows next week."""
    here, changes = visit.here, {name: sha for name, sha in shas.items() if sha}
    length = RANGES.get(range_shown or "")
    if length is not None and not here.get("since"):
        now = visit.now.replace(microsecond=0) + timedelta(seconds=1)
        changes |= {"since": _stamp(now - length), "until": _stamp(now)}
        return here(range=None, **changes)
    return here(**changes)


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
