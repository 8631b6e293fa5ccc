"""Bound the memory of a parsed body: a few bytes of JSON (`[],`) become sixty of memory. Standard library only."""

from __future__ import annotations

from typing import Final

from backend.contract_problems import Invalid, Unquoted

MAX_VALUES: Final = 5_000_000
MAX_CONTAINERS: Final = 1_000_000


def check_weight(body: bytes | str) -> None:
    """Refuse JSON of more values, or lists and objects, than any run has, before they are made; raises Invalid. Marks
    within texts count as well."""
    text = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    containers = text.count(b"[") + text.count(b"{")
    if containers > MAX_CONTAINERS:
        raise _refused(containers, "lists and objects", MAX_CONTAINERS)
    values = text.count(b",") + containers
    if values > MAX_VALUES:
        raise _refused(values, "values", MAX_VALUES)


def _refused(found: int, of_what: str, accepted: int) -> Invalid:
    return Invalid.one("run", Unquoted(f"{found:,} {of_what}"), f"at most {accepted:,} {of_what} in one body")
