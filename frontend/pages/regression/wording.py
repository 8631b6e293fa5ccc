"""A regression's name and status, in a few words: the same in the list and on its page."""

from markupsafe import Markup

from backend.services.base.metric_words import worse_word
from backend.services.triage.views import Regression
from frontend import numbers
from frontend.markup import EMPTY, html
from frontend.words import plural


def worsened(regression: Regression) -> str:
    """The change of the leading metric, in its own terms."""
    return worse_word(regression.unit, regression.direction)


def name_of(regression: Regression) -> str:
    """Benchmark and variant of the leading series."""
    variant = (regression.variant or "").replace(",", ", ")
    return f"{regression.benchmark or 'a series that is gone'} {variant}".strip()


def interval_of(regression: Regression, change: float | None) -> str:
    """The interval of a change; nothing where the stored one is that of another series and does not hold it."""
    low, high = regression.change_low, regression.change_high
    if change is None or low is None or high is None or not low <= change <= high:
        return ""
    return numbers.interval(low, high)


def still(regression: Regression, *, short: bool = False) -> Markup:
    """Is it still so? The first question of everybody who opens the list."""
    if regression.state == "fixed":
        by = f"by {regression.fixed_by.sha[:7]}" if regression.fixed_by and not short else ""
        return html('<span class="good">✓ recovered</span>{}', html('<div class="bd2">{}</div>', by) if by else EMPTY)
    if regression.state == "expected":
        return html('<span class="mut">new baseline</span>')
    if regression.state in ("invalid", "withdrawn"):
        return html('<span class="mut">not real</span>')
    if regression.still_bad:
        return html('<b class="bad">still</b>')
    return html('<span class="good">✓ recovered</span>')


def suspects(regression: Regression) -> str:
    """How many commits it may come from; which one fixed it, once one did."""
    if regression.fixed_by is not None:
        return f"fixed by {regression.fixed_by.sha[:7]}"
    number = regression.suspect_commits
    if number is None:
        return "from the first run on"
    return "this commit alone" if number == 1 else f"one of {plural(number, 'commit')}"
