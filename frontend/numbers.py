"""Numbers, changes and times as people read them: three significant figures, a unit, a real minus sign.

Fractions come in, percent goes out; nothing here rounds what is stored.
"""

import math
from datetime import UTC, datetime, timedelta

MINUS = "−"
THIN = "\u202f"  # narrow no-break space: between digits' groups and before a unit
DASH = "–"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

# (factor, unit) from large to small: the first that leaves a value of at least one is shown.
SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
    "ms": ((60_000, "min"), (1e3, "s"), (1, "ms"), (1e-3, "µs")),
    "s": ((60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "us": ((1e6, "s"), (1e3, "ms"), (1, "µs"), (1e-3, "ns")),
    "FLOP": ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1, "FLOP")),
    "1/s": ((1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1, "/s")),
}
WRITTEN_UNITS = {"ratio": "", "1": "", "us": "µs", "tflops": "TFLOP/s", "gb_per_s": "GB/s", "GB/s": "GB/s"}
UNITLESS = frozenset({"", "1", "ratio", "count"})
# A second is shown as 1,000 ms until it has been two: 1,150 ms beside 980 ms compares at a glance.
KEEP_UNIT_UP_TO = 2_000
PLAIN_FROM, PLAIN_BELOW = 1e-3, 9_999.0  # written without an exponent and without groups


def significant(value: float, figures: int = 3) -> str:
    """`value` with so many significant figures; whole numbers of more digits keep them all."""
    if PLAIN_FROM <= value < PLAIN_BELOW and figures < 5:
        text = f"{value:#.{figures}g}"
        if "e" not in text:  # of several thousand values on a page nearly all end here
            return text.removesuffix(".")
    if math.isnan(value) or math.isinf(value):
        return DASH
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, figures - 1 - magnitude) if magnitude < figures else round(value)
    if rounded != 0:
        magnitude = math.floor(math.log10(abs(rounded)))
    if magnitude < -6:
        mantissa, exponent = f"{rounded:.{figures - 1}e}".split("e")
        return f"{mantissa} × 10{str(int(exponent)).translate(RAISED)}".replace("-", MINUS)
    decimals = max(0, figures - 1 - magnitude)
    return grouped(f"{rounded:.{decimals}f}")


def grouped(digits: str) -> str:
    """Thin spaces every three digits from five digits on, and a real minus."""
    sign, digits = (MINUS, digits[1:]) if digits.startswith("-") else ("", digits)
    whole, _, fraction = digits.partition(".")
    if len(whole) > 4:
        head = len(whole) % 3
        groups = [whole[:head]] if head else []
        groups += [whole[at : at + 3] for at in range(head, len(whole), 3)]
        whole = THIN.join(groups)
    return sign + (f"{whole}.{fraction}" if fraction else whole)


def count(value: float | None) -> str:
    """A whole number: 12 345."""
    return DASH if value is None else grouped(f"{value:.0f}")


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """(factor, unit) in which `value` reads well."""
    steps = SCALES.get(unit)
    if not steps or value == 0 or not math.isfinite(value):
        return 1.0, unit
    if unit == "ms" and 1 <= abs(value) < KEEP_UNIT_UP_TO:
        return 1.0, "ms"
    for factor, name in steps:
        if abs(value) >= factor:
            return factor, name
    return steps[-1]


def quantity(value: float | None, unit: str | None, figures: int = 3) -> str:
    """A value with its unit: 25.9 ms, 24.2 GB, 3.00 M/s, 0.432."""
    if value is None:
        return DASH
    if not unit or unit in UNITLESS:
        if unit in ("1", "count") and value == int(value):
            return grouped(f"{value:.0f}")
        return significant(value, figures)
    factor, name = scale_of(value, unit)
    return f"{significant(value / factor, figures)}{THIN}{unit_text(name)}"


def unit_text(unit: str) -> str:
    """The unit as it is written: us → µs, gb_per_s → GB/s."""
    return WRITTEN_UNITS.get(unit, unit)


def before_and_after(before: float | None, after: float | None, unit: str | None) -> str:
    """24.2 → 26.0 ms, both in one unit."""
    if before is None or after is None:
        return quantity(after if before is None else before, unit)
    if not unit or unit in UNITLESS:
        return f"{quantity(before, unit)} → {quantity(after, unit)}"
    factor, name = scale_of(max(before, after, key=abs), unit)
    return f"{significant(before / factor)} → {significant(after / factor)}{THIN}{unit_text(name)}"


def percent(fraction: float | None) -> str:
    """The size of a change, unsigned: 7.4 %, and 18 % from ten on."""
    return DASH if fraction is None else f"{bare_percent(fraction)}{THIN}%"


def threshold(fraction: float) -> str:
    """A chosen limit: 5 %, 2.5 %."""
    return f"{fraction * 100:.4g}{THIN}%"


def bare_percent(fraction: float) -> str:
    """7.4 or 18: what fits a cell."""
    size = abs(fraction) * 100
    return f"{size:.1f}" if size < 9.95 else grouped(f"{size:.0f}")


def signed_percent(fraction: float | None) -> str:
    """+7.4 %, −0.1 %."""
    if fraction is None:
        return DASH
    size = bare_percent(fraction)
    sign = "" if float(size.replace(THIN, "")) == 0 else "+" if fraction > 0 else MINUS
    return f"{sign}{size}{THIN}%"


def cost_change(fraction: float | None) -> str:
    """A change of cost with the sign of every page: ▼ 7.4 % is worse, ▲ 6.0 % better, whichever way a metric points."""
    if fraction is None or math.isnan(fraction):
        return DASH
    size = bare_percent(fraction)
    sign = "" if float(size.replace(THIN, "")) == 0 else "▼ " if fraction > 0 else "▲ "
    return f"{sign}{size}{THIN}%"


def signed(value: float, figures: int = 3) -> str:
    """+1.37, −0.21."""
    text = significant(abs(value), figures)
    return text if value == 0 else f"{'+' if value > 0 else MINUS}{text}"


def interval(low: float | None, high: float | None) -> str:
    """The interval of a change: 6.9 … 8.0 %."""
    if low is None or high is None:
        return ""
    ends = [f"{MINUS if end < 0 else ''}{bare_percent(end)}" for end in (low, high)]
    if ends[0] == ends[1]:  # a narrow one of a large change
        ends = [f"{end * 100:.1f}".replace("-", MINUS) for end in (low, high)]
    return f"{ends[0]} … {ends[1]}{THIN}%"


def duration(seconds: float | None) -> str:
    """41 s, 3 min 20 s, 2 h 5 min, 3 d."""
    if seconds is None:
        return DASH
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    if whole < 86_400:
        minutes = whole % 3600 // 60
        return f"{whole // 3600} h" + (f" {minutes} min" if minutes else "")
    hours = whole % 86_400 // 3600
    return f"{whole // 86_400} d" + (f" {hours} h" if hours and whole < 7 * 86_400 else "")


def rough_duration(seconds: float | None) -> str:
    """Time left is a guess, and is written like one: ~14 min."""
    if seconds is None:
        return ""
    if seconds < 55:
        return f"~{max(5, round(seconds / 5) * 5)} s"
    return f"~{duration(round(seconds / 60) * 60)}"


def age(moment: datetime, now: datetime) -> str:
    """4 m, 9 h, 2 d; a date from a week on."""
    passed = now - moment
    if passed < timedelta(minutes=1):
        return f"{max(0, int(passed.total_seconds()))} s"
    if passed < timedelta(hours=1):
        return f"{int(passed.total_seconds() // 60)} m"
    if passed < timedelta(days=1):
        return f"{int(passed.total_seconds() // 3600)} h"
    if passed < timedelta(days=7):
        return f"{passed.days} d"
    return day(moment) if passed < timedelta(days=300) else f"{day(moment)} {moment.year}"


def ago(moment: datetime, now: datetime) -> str:
    """2 d ago; a date needs no such word."""
    said = age(moment, now)
    return said if now - moment >= timedelta(days=7) else f"{said} ago"


def day(moment: datetime) -> str:
    """18 Nov."""
    return f"{moment.day} {MONTHS[moment.month - 1]}"


def stamp(moment: datetime) -> str:
    """18 Nov 11:20, in UTC; the page turns it into the reader's zone."""
    utc = moment.astimezone(UTC)
    return f"{day(utc)} {clock(utc)}"


def clock(moment: datetime) -> str:
    """11:20."""
    return f"{moment.hour:02}:{moment.minute:02}"


def exact_stamp(moment: datetime) -> str:
    """The whole truth, for hovering: 18 Nov 2026 11:20:04 UTC."""
    utc = moment.astimezone(UTC)
    return f"{day(utc)} {utc:%Y %H:%M:%S} UTC"
