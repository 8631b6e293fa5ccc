"""Facets: the few properties by which every page can be narrowed. Suite, dtype, mode, backend and metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from backend.services.base.scope import find_scope
from backend.store.reports import trends as store

NEWEST = 8
FACETS = ("suite", "dtype", "mode", "backend", "metric")


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a facet, and how many variants have it among those that the other facets leave."""

    value: str
    variants: int


@dataclass(frozen=True, slots=True)
class Named:
    """A commit by its sha or its tag, and the first line of its message."""

    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Facets of a testbed of a project; `matching` of `total` variants are left by what was chosen."""

    testbeds: tuple[str, ...] = ()
    testbed: str | None = None
    branches: tuple[str, ...] = ()
    branch: str | None = None
    choices: Mapping[str, tuple[FacetValue, ...]] = field(default_factory=dict)
    commits: tuple[Named, ...] = ()
    """The newest of the branch, for who looks for one to compare with."""
    tags: tuple[Named, ...] = ()
    """Those that point at the newest commits."""
    matching: int = 0
    total: int = 0


def facet_of(name: str, suite: str, metric: str, variant: Mapping[str, Any]) -> str | None:
    """The value of one facet. A variant that names no backend is known by the implementation it runs."""
    if name == "suite":
        return suite
    if name == "metric":
        return metric
    found = variant.get(name)
    if found is None and name == "backend":
        found = variant.get("impl")
    return None if found is None else str(found)


def variant_of(key: str) -> dict[str, str]:
    """The properties that a variant's key names: `dtype=bf16,seq=4096`."""
    pairs = (part.partition("=") for part in key.split(",") if part)
    return {name: value for name, _, value in pairs}


def passes(chosen: Mapping[str, Sequence[str]], suite: str, metric: str, variant: Mapping[str, Any]) -> bool:
    """Whether a series has one of the chosen values of every facet that is set."""
    return all(not values or facet_of(name, suite, metric, variant) in values for name, values in chosen.items())


def catalogue(
    c: Connection, project: str, branch: str | None, testbed: str | None, chosen: Mapping[str, Sequence[str]]
) -> Catalogue:
    """The facets of a project on a testbed; a count is of what the other facets leave."""
    scope = find_scope(c, project, branch, testbed)
    rows = [] if scope.testbed is None else store.facet_values(c, scope.project.id, scope.testbed.id)
    choices: dict[str, tuple[FacetValue, ...]] = {}
    for index, name in enumerate(FACETS):
        variants: dict[str, set[tuple[str, str]]] = {}
        for row in rows:
            if row[index] is not None:
                left = variants.setdefault(row[index], set())
                if _left(row, chosen, without=name):
                    left.add((row[0], row[-1]))
        if len(variants) > 1 or chosen.get(name):
            choices[name] = tuple(FacetValue(value, len(variants[value])) for value in sorted(variants))
    return Catalogue(
        testbeds=tuple(each.name for each in scope.testbeds),
        testbed=None if scope.testbed is None else scope.testbed.name,
        branches=tuple(each.name for each in scope.branches),
        branch=None if scope.branch is None else scope.branch.name,
        choices=choices,
        commits=() if scope.branch is None else tuple(Named(*row) for row in store.newest(c, scope.branch.id, NEWEST)),
        tags=tuple(Named(*row) for row in store.newest_tags(c, scope.project.id, NEWEST)),
        matching=len({(row[0], row[-1]) for row in rows if _left(row, chosen)}),
        total=len({(row[0], row[-1]) for row in rows}),
    )


def _left(row: Sequence[Any], chosen: Mapping[str, Sequence[str]], without: str = "") -> bool:
    return all(
        name == without or not chosen.get(name) or row[index] in chosen[name] for index, name in enumerate(FACETS)
    )
