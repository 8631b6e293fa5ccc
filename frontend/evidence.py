"""Evidence on the page of a regression: confirming sessions, phases, kernels and the roofline before and after."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from backend.services.base.metric_words import worse_word
from backend.services.runs.kernels import KernelDifference
from backend.services.runs.profiles import ProfileChange, VariantProfile
from backend.services.sessions.views import SessionSeries, SessionView
from backend.services.triage.detail import AffectedSeries, RegressionDetail
from frontend import numbers
from frontend.figures.confirming import MeasuredSession, sessions_svg
from frontend.figures.phases import PhaseBar, growth, in_order, milliseconds, phases_svg
from frontend.figures.roofline import Dot, ceiling_words, roofline_figure, said
from frontend.figures.small import share_bar
from frontend.markup import EMPTY
from frontend.render import script_json
from frontend.words import OVER_YARDSTICK, plural

SMALLEST_SHOWN = 0.0005  # a smaller change of memory is none


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    label: str
    colour: str
    before: str
    after: str
    change: str
    css: str
    bar: Markup
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePanel:
    title: str
    note: str
    verdict: str
    unit: str
    picture: Markup
    rows: list[PhaseRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPanel:
    """Of a regression that no time shows: that time did not move, and what is allocated."""

    time: str
    rows: list[tuple[str, str, str, str, str]]  # metric, before, after, change, css


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    name: str
    phase: str
    before: str
    after: str
    change: str
    css: str
    bar: Markup
    calls: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPanel:
    title: str
    note: str
    rows: list[KernelRow]
    rest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePanel:
    figure: Markup
    label: str
    ceilings: str
    lines: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPanel:
    """Sessions that measured, as one picture, and a line for each in words."""

    title: str
    note: str
    picture: Markup
    lines: list[tuple[SessionView, str, str]]  # session, what came of it, when
    key: str


# --- phases ----------------------------------------------------------------------------------------------------------


def moved_in_time(detail: RegressionDetail) -> bool:
    """Whether a speed is among what changed: else phases, kernels and roofline show noise."""
    return any(each.state != "withdrawn" and not each.exact and each.unit != "B" for each in detail.affected)


def memory_panel(detail: RegressionDetail) -> MemoryPanel | None:
    """The allocated memory before and after, where memory changed and time did not."""
    rows = []
    for each in detail.allocated:
        if each.before is None or each.after is None:
            continue
        change = (each.after - each.before) / each.before if each.before else 0.0
        said = f"{change * 100:+.1f} %".replace("-", "−") if abs(change) >= SMALLEST_SHOWN else "same"
        css = "dim" if abs(change) < SMALLEST_SHOWN else "bad b" if change > 0 else "good b"
        rows.append((each.metric, numbers.quantity(each.before, "B"), numbers.quantity(each.after, "B"), said, css))
    if not rows:
        return None
    times = [each for each in detail.phases if each.unit == "ms" and None not in (each.before, each.after)]
    before, after = (sum(getattr(each, side) or 0.0 for each in times) for side in ("before", "after"))
    step = f": a step takes {numbers.before_and_after(before, after, 'ms')}, within its noise" if times else ""
    return MemoryPanel(time=f"Time did not move{step}.", rows=rows)


def phase_panel(detail: RegressionDetail, face: AffectedSeries | None) -> PhasePanel | None:
    """Where the time went: bars, and the same as a table. Nothing where it is less than the noise of the series.

    A series that is judged as a ratio to a yardstick, because its machine is noisy, has its phases as ratios too: their
    milliseconds moved with the machine and would add up to another story.
    """
    it = detail.regression
    ratios = face is not None and face.unit == "ratio"
    chosen = [each for each in detail.phases if each.after is not None and each.unit == ("ratio" if ratios else "ms")]
    if ratios and not chosen:
        ratios, chosen = False, [each for each in detail.phases if each.after is not None and each.unit == "ms"]
    phases = [
        PhaseBar(
            name=each.metric.removesuffix(OVER_YARDSTICK if ratios else "_ms"),
            before=each.before,
            after=each.after or 0.0,
        )
        for each in chosen
    ]
    if not phases:
        return None
    unit = "" if ratios else "ms"
    ordered = in_order(phases)
    lost = sum(phase.change for phase in ordered if phase.before is not None)
    shares = dict((phase.name, share) for phase, share in growth(phases))
    total = max(sum(phase.after for phase in ordered), sum(phase.before or 0.0 for phase in ordered))
    compared = any(phase.before is not None for phase in ordered)
    if compared and abs(lost) <= total * (face.noise or 0.0 if face is not None else 0.0):
        return None
    worst = max(ordered, key=lambda phase: shares[phase.name])
    went = f"Where the {milliseconds(lost, total)}{f' {unit}' if unit else ' yardsticks'} went"
    note = "one step of the leading series, median before and after"
    return PhasePanel(
        title=went if lost > 0 else "Where a step goes",
        note=f"{note}; in units of the yardstick timed with it" if ratios else note,
        verdict=f"{worst.label} carries {shares[worst.name] * 100:.0f} %" if lost > 0 else "",
        unit=unit or "change",
        picture=phases_svg(
            phases,
            it.last_good.sha[:7] if it.last_good else "before",
            it.first_bad.sha[:7] if it.first_bad else "after",
            unit=unit,
        ),
        rows=[phase_row(phase, shares[phase.name], total) for phase in ordered],
    )


def phase_row(phase: PhaseBar, share: float, total: float) -> PhaseRow:
    """A phase as a row: milliseconds as precise as `total` requires, and its share of what was lost."""
    return PhaseRow(
        label=phase.label,
        colour=phase.colour,
        before=numbers.DASH if phase.before is None else milliseconds(phase.before, total),
        after=milliseconds(phase.after, total),
        change=numbers.DASH if phase.before is None else plus(phase.change, total),
        css="bad b" if share > 0.1 else "dim",
        bar=share_bar(share) if share > 0.02 else EMPTY,
        share=f"{share * 100:.0f} %" if share > 0.02 else "",
    )


def plus(change: float, total: float) -> str:
    """+0.424, −0.002, 0.000."""
    text = milliseconds(change, total)
    return f"+{text}" if change > 0 and text.strip("0.") else text


# --- kernels and roofline --------------------------------------------------------------------------------------------


def kernel_panel(change: ProfileChange, name: str = "") -> KernelPanel | None:
    """The kernels that carry a change."""
    found, before, after = change.kernels, change.before, change.after
    if found is None or before is None or after is None:
        return None
    largest = max((abs(each.change_us) for each in found.changes), default=0.0)
    rows = [
        KernelRow(
            name=each.name,
            phase=each.phase.replace("_", " "),
            before=micro(each.before_us),
            after=micro(each.after_us),
            change=f"{'+' if each.change_us > 0 else ''}{micro(each.change_us)}",
            css="bad b" if each.change_us > 0 else "good b",
            bar=share_bar(abs(each.change_us) / largest, colour="--reg" if each.change_us > 0 else "--imp-line"),
            calls=f"{numbers.significant(each.before_calls)} → {numbers.significant(each.after_calls)}",
            words=each.words,
        )
        for each in found.changes
    ]
    return KernelPanel(
        title=name or "Kernels that changed",
        note=f"µs per step, profiled separately from the timed runs; {before.sha[:7]} against {after.sha[:7]}, "
        f"{micro(found.before_us)} → {micro(found.after_us)} in all",
        rows=rows,
        rest=rest_of(found),
    )


def micro(value: float) -> str:
    """Microseconds with the decimals that kernels deserve."""
    return numbers.grouped(f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}")


def rest_of(found: KernelDifference) -> str:
    if not found.rest:
        return ""
    sign = "+" if found.rest_us > 0 else ""
    return f"{plural(found.rest, 'further kernel')} changed by {sign}{micro(found.rest_us)} µs together."


def roofline_panel(change: ProfileChange) -> RooflinePanel | None:
    """Where the step was under the ceilings before, and where it is now."""
    sides = [("before", change.before, True), ("after", change.after, False)]
    dots = [dot_of(name, side, hollow) for name, side, hollow in sides if side is not None and side.roofline]
    if len(dots) < 2:
        return None
    newest = change.after or change.before
    ceilings = newest.ceilings if newest is not None else None
    lines = [said(dot) for dot in dots]
    return RooflinePanel(
        figure=script_json(roofline_figure(dots, ceilings, 280)),
        label=f"Roofline: {'; '.join(lines)}",
        ceilings=ceiling_words(ceilings) if ceilings else "",
        lines=lines,
    )


def dot_of(name: str, side: VariantProfile, hollow: bool) -> Dot:
    assert side.roofline is not None  # asked for by the caller
    return Dot(
        group=name, label=f"{name}, {side.sha[:7]}", point=side.roofline, link=f"/runs/{side.run_id}", hollow=hollow
    )


# --- confirming sessions ---------------------------------------------------------------------------------------------

STATES = {
    "waiting": "waits for a worker",
    "running": "is measuring",
    "cancelled": "cancelled",
    "quarantined": "not judged",
    "failed": "failed",
}


def session_panel(sessions: Sequence[SessionView], face: AffectedSeries | None) -> SessionPanel | None:
    """Measured again, base against head: of each session the series that the page is about, process by process."""
    if not sessions:
        return None
    pictured = []
    for number, session in enumerate(reversed(sessions), 1):
        series = leading(session, face)
        if series is not None and (series.base or series.head):
            pictured.append(measured(f"C{number}", session, series))
    unit = next((s.unit for session in sessions if (s := leading(session, face))), "ms")
    agree = sum(session.decision == "confirmed" for session in sessions)
    decided = sum(session.decision in ("confirmed", "withdrawn") for session in sessions)
    first = sessions[-1]
    word = next((worse_word(s.unit, s.direction) for session in sessions if (s := leading(session, face))), "worse")
    return SessionPanel(
        title="Measured again, base against head",
        note=f"{agree} of {decided} say that it is {word}" if decided else "not decided yet",
        picture=sessions_svg(pictured, unit),
        lines=[
            (session, outcome(session, word), "" if session.decided_at is None else "decided") for session in sessions
        ],
        key=f"A {first.base_sha[:7]}, B {first.head_sha[:7]}, interleaved in fresh processes on one worker"
        + (f", {first.order}" if first.order else ""),
    )


def leading(session: SessionView, face: AffectedSeries | None) -> SessionSeries | None:
    """The series of a session that the page shows; else its first gate."""
    mine = [each for each in session.series if face is not None and each.series_id == face.series_id]
    gates = [each for each in session.series if each.role == "gate"]
    return next(iter(mine or gates or session.series), None)


def measured(name: str, session: SessionView, series: SessionSeries) -> MeasuredSession:
    judged = session.state in ("decided", "running", "waiting")
    verdict = outcome(session, worse_word(series.unit, series.direction))
    if judged and series.change is not None:
        verdict = f"{'▼' if series.change > 0 else '▲'} {numbers.percent(series.change)}"
    ends = series.low is not None and series.high is not None
    return MeasuredSession(
        title=f"{name} {session.worker or session.testbed}"[:20],
        sub=numbers.stamp(when_of(session)),
        base=series.base,
        head=series.head,
        verdict=verdict,
        interval=numbers.interval(series.low, series.high) if ends and judged else "",
        counts=judged,
        worse=(series.change or 0.0) > 0,
    )


def when_of(session: SessionView) -> datetime:
    return session.decided_at or session.requested_at


def outcome(session: SessionView, word: str) -> str:
    """Outcome of a session, or its progress. `word`: the word for more cost of its metric."""
    if session.state == "decided":
        words = {"confirmed": word, "withdrawn": f"not {word}", "undecided": "not decided"}
        return words.get(session.decision or "", session.decision or "decided")
    if session.state == "running":
        return f"round {session.rounds_done + 1} of at most {session.max_rounds}"
    return STATES.get(session.state, session.state)
