"""Why a point is red, or why it is not: one paragraph for people, from the numbers of its judgement."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from backend.regression.detector.evidence import LONG_HELD, SEEN
from backend.regression.detector.power import SOON
from backend.regression.terms import ChangePoint, ChangeState, Judgement, Reason, Verdict

MOST_LEVELS: Final = 4096


def explain(judgement: Judgement, metric: str, unit: str = "", commit_names: Mapping[int, str] | None = None) -> str:
    """One paragraph: the verdict, what it rests on, and what would change it."""
    names = commit_names or {}
    parts = [_opening(judgement, metric, unit), _reason(judgement, names), _beside(judgement), _limits(judgement, unit)]
    parts += [_event(event, names) for event in judgement.events]
    return " ".join(part for part in parts if part)


def _opening(j: Judgement, metric: str, unit: str) -> str:
    value = f"{metric} is {number(j.value)}{_after(unit)} here"
    if j.change is None or j.baseline is None:
        return f"{value}: not judged."
    verdict = j.verdict.value
    if j.verdict is Verdict.IMPROVEMENT and j.change >= 0:  # its baseline is of before a regression that ends here
        verdict += " over the runs before it"
    return f"{value}, a change in cost of {percent(j.change)} {_against(j.baseline, unit)}: {verdict}."


def _reason(j: Judgement, names: Mapping[int, str]) -> str:
    if j.reason is Reason.WITHIN_BAND:  # nearly every point there is: not worth making all the other texts
        return "It lies within the band of harmless runs."
    n = j.numbers
    least = percent(n.get("min_change", n.get("exact_min_change", 0.0)), sign=False)
    since = "" if j.since_position is None else names.get(j.since_position, f"position {j.since_position}")
    step, evidence = n.get("step", 0.0), n.get("evidence", 0.0)
    # A point that is restated because of a later one was judged before the size of the step was known.
    by = f" by {percent(abs(step), sign=False)}" if "step" in n else ""
    at = f" at {since}" if since else ""
    sees = percent(n.get("sees", 0.0), sign=False)
    texts = {
        Reason.TOO_FEW_RUNS: f"Runs of this level so far: {j.n_baseline}; a baseline needs {more_runs(j.needed_runs)}.",
        Reason.TOO_UNSTEADY: f"The series is too unsteady to see {least}; it sees {sees} "
        f"within {SOON} runs. It needs more runs at one level, a quieter machine, more processes per run, or a larger "
        "smallest regression.",
        Reason.CALIBRATING_WORKER: "The worker is new to this series; its offset is learned first, "
        + (f"which needs {more_runs(j.needed_runs)}." if j.needed_runs else "which is done: its next run is judged."),
        Reason.BELOW_THRESHOLD: f"It lies outside the band, but by less than the {least} that count.",
        Reason.OUTSIDE_BAND_ONCE: f"It lies outside the band and past the {least} that count, so far in this run "
        "alone; it must be sustained before anyone is notified.",
        Reason.AWAITING_RUNS: _awaiting(j, since),
        Reason.IMPROVEMENT_PENDING: "It is clearly better; further runs must agree before the baseline moves.",
        Reason.SUSTAINED_STEP: f"The level rose by {percent(step)} at {since} and stayed there; "
        f"the evidence is {evidence:.0f} nats.",
        Reason.SUSTAINED_DRIFT: f"No single step explains it, but many small losses add up to {percent(step)}.",
        Reason.CONFIRMED_BY_SESSION: "A confirming session proved it.",
        Reason.STILL_WORSE: "The regression begins here."
        if j.onset
        else f"It is part of the regression that began at {since}.",
        Reason.RETURNING: f"It looks as it did before the regression that began at {since}; one more such run ends it.",
        Reason.RETURNED: "The level is back where it was before the regression.",
        Reason.SUSTAINED_IMPROVEMENT: f"The level fell{by} at {since} and stayed; it is the baseline from now on.",
        Reason.SMALL_CHANGE: f"The level moved by {percent(step)} at {since}: clear, but below the {least} that count.",
        Reason.KNOWN_MODE: f"The level rose{by}{at}, between two values that the series has left {SEEN} times or "
        "more: a known mode, and no longer reported. "
        f"Once the lower value has held for {LONG_HELD} runs, leaving it is reported again.",
        Reason.EXACT_SAME: "The counter has the same value as before.",
        Reason.EXACT_CHANGED: f"The counter is exact, so any change is real; it is past the {least} of its policy.",
        Reason.EXACT_BELOW_THRESHOLD: f"The counter changed, by no more than the {least} of its policy.",
        Reason.EXACT_IMPROVED: "The counter is exact, and it is better.",
    }
    return texts[j.reason]


def _beside(j: Judgement) -> str:
    """What another step beside an open regression would have to be."""
    if j.reason is Reason.TOO_UNSTEADY or "sees" not in j.numbers:
        return ""
    sees = percent(j.numbers["sees"], sign=False)
    return f"Its runs are too unsteady to see another step of less than {sees} within {SOON} runs."


def _awaiting(j: Judgement, since: str) -> str:
    """What a suspect waits for: the runs that a regression takes, or more where so many prove nothing."""
    runs, sustained = j.numbers.get("suspect_runs", 0.0), j.numbers.get("sustained_runs", 0.0)
    worse = f"{runs:.0f} runs since {since} look worse"
    if runs < sustained:
        return f"{worse}; {sustained:.0f} that agree, or a confirming session, make it a regression."
    return (
        f"{worse}, which the {j.n_baseline} runs of the baseline are too few or too noisy to prove; "
        "more runs that agree, or a confirming session, make it a regression."
    )


def _limits(j: Judgement, unit: str) -> str:
    if j.verdict is Verdict.INSUFFICIENT or j.noise is None or j.band_low is None or j.band_high is None:
        return ""
    if j.noise == 0.0:
        return f"Judged by policy {j.policy_version}."
    band = _band(j.band_low, j.band_high, unit, j.n_baseline, j.noise)
    return f"{band}; {_shown(j.numbers.get('sustained_runs', 3), j.minimum_detectable_effect or 0.0, j.policy_version)}"


# What is said of limits is the same until the next refit: the runs of a level share it.


@lru_cache(MOST_LEVELS)
def _band(low: float, high: float, unit: str, runs: int, noise: float) -> str:
    return (
        f"The band is {number(low)} to {number(high)}{_after(unit)}, "
        f"from {runs} runs with a noise of {percent(noise, sign=False)}"
    )


@lru_cache(MOST_LEVELS)
def _shown(runs: float, effect: float, policy_version: str) -> str:
    return f"{runs:.0f} runs would show a change of {percent(effect, sign=False)}. Judged by policy {policy_version}."


@lru_cache(MOST_LEVELS)
def _against(baseline: float, unit: str) -> str:
    return f"against the baseline of {number(baseline)}{_after(unit)}"


def _event(event: ChangePoint, names: Mapping[int, str]) -> str:
    onset = names.get(event.onset_position, f"position {event.onset_position}")
    if event.state is ChangeState.WITHDRAWN:
        return f"The suspect at {onset} is withdrawn: later runs do not confirm it."
    if event.state is ChangeState.FIXED:
        end = names.get(event.range_end, f"position {event.range_end}")
        return f"The regression that began at {onset} ended at {end}."
    if event.state is ChangeState.RELOCATED and event.previous_onset_position is not None:
        was = names.get(event.previous_onset_position, f"position {event.previous_onset_position}")
        return f"Its onset, first thought to be {was}, is {onset}."
    return ""


def _after(unit: str) -> str:
    """The unit as it follows a value; a plain number or ratio has none."""
    return "" if unit in ("", "1", "ratio") else f" {unit}"


def more_runs(runs: int) -> str:
    """A number of runs that are still missing."""
    return f"{runs} more run{'' if runs == 1 else 's'}"


def percent(fraction: float, sign: bool = True) -> str:
    """A fraction for people, with a minus and not a hyphen."""
    return (f"{100 * fraction:+.1f} %" if sign else f"{100 * fraction:.1f} %").replace("-", "\N{MINUS SIGN}")


def number(value: float) -> str:
    """A value with four significant digits, in full where they stand before the point; whole numbers as they are."""
    if abs(value) >= 1e15:
        return f"{value:.4g}"
    if value == int(value):
        return f"{value + 0.0:,.0f}"  # of -0.0, too
    return f"{float(f'{value:.4g}'):,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
