"""Sessions, bisections, backfills and schedules in words for a terminal. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.refusal import Refusal


def setup_of(pip: str | None, setup: str | None, env: Sequence[str]) -> dict[str, Any]:
    """Parse the packages and variables of one side of a comparison."""
    found: dict[str, Any] = {}
    if pip:
        found["pip"] = pip
    if setup:
        found["setup"] = setup
    variables = [entry.partition("=") for entry in env]
    for name, equals, _ in variables:
        if not name or not equals:
            raise Refusal(f"{name!r} is no NAME=TEXT")
    if variables:
        found["env"] = {name: text for name, _, text in variables}
    return found


def bisection_line(found: Mapping[str, Any]) -> str:
    """How far a bisection is."""
    steps = found["steps"]
    now = f", measuring {steps[-1]['sha'][:12]}" if steps and steps[-1]["state"] in ("waiting", "running") else ""
    eta = "" if not found["eta_s"] else f", about {_duration(found['eta_s'])}"
    return (
        f"{found['steps_done']} steps done, {found['steps_left']} to go{eta}; {found['remaining']} commits possible, "
        f"the likeliest {found['confidence']:.0%}{now}"
    )


def describe_bisection(found: Mapping[str, Any]) -> str:
    lines = [
        f"bisection {found['id']} of regression {found['regression_id']}: {found['state']}",
        f"  {found['last_good_sha'][:12]} good … {found['first_bad_sha'][:12]} bad",
    ]
    for step in found["steps"]:
        change = "" if step["change"] is None else f" {step['change']:+.1%}"
        why = f"  {step['reason'].splitlines()[0][:80]}" if step["reason"] else ""
        lines.append(f"  {step['sha'][:12]} {step['state']}{change}{why}")
    if found["state"] == "running":
        lines.append(f"  {bisection_line(found)}")
    elif found["reason"]:
        lines.append(f"  {found['reason']}")
    return "\n".join(lines)


def session_line(found: Mapping[str, Any]) -> str:
    spoiled = f", {found['rounds_spoiled']} spoiled" if found["rounds_spoiled"] else ""
    return f"{found['state']}: {found['rounds_done']} of at most {found['max_rounds']} rounds{spoiled}"


def describe_session(found: Mapping[str, Any]) -> str:
    order = f", order {found['order']}" if found["order"] else ""
    worker = f" by {found['worker']}" if found["worker"] else ""
    lines = [
        f"session {found['id']} ({found['purpose']}): {session_line(found)}{worker}{order}",
        f"  A {_side(found, 'base')}",
        f"  B {_side(found, 'head')}",
    ]
    for series in found["series"]:
        interval = "" if series["low"] is None else f" ({series['low']:+.1%} to {_percent(series['high'])})"
        name = f"{series['benchmark']} {series['variant_key']} {series['metric']}".replace("  ", " ")
        processes = f"{series['processes_a_side']} processes a side"
        lines.append(f"  {series['decision']:<10} {_percent(series['change'])}{interval}  {name}  {processes}")
    if found["reason"]:
        lines.append(f"  {found['reason']}")
    return "\n".join(lines)


def _side(found: Mapping[str, Any], arm: str) -> str:
    setup = found[f"{arm}_setup"]
    said = [setup.get("pip") or "", setup.get("setup") or "", *(f"{k}={v}" for k, v in setup.get("env", {}).items())]
    with_what = "; ".join(text for text in said if text)
    return str(found[f"{arm}_sha"])[:12] + (f" with {with_what}" if with_what else "")


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{value:+.1%}"


def describe_backfill(found: Mapping[str, Any]) -> str:
    failed = f", {found['failed']} failed" if found["failed"] else ""
    return (
        f"{found['id']}  {found['state']:<9} {found['done']}/{found['total']} runs{failed}  {found['project']} "
        f"{found['suite']} on {found['testbed']}, commits {found['first_position']} to {found['last_position']}"
    )


def describe_schedules(found: Mapping[str, Any]) -> str:
    lines = []
    for item in found["items"]:
        schedule, last = item["schedule"], item["last"]
        suites = ", ".join(schedule["suites"]) or "all suites"
        what = f"{suites} against its other environment" if schedule["against"] else suites
        said = "not yet" if last is None else f"{last['slot_at'][:16]}: {last['outcome']}"
        lines.append(
            f"{item['project']} {schedule['name']}: {what}, at {schedule['at']} UTC; next {item['next_at'][:16]}; "
            f"last {said}"
        )
    return "\n".join(lines) or "no schedules; a tidemark.toml declares them as [[schedule]]"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
