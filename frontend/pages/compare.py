"""Compare: did my change make it slower? A sentence, suites with their coverage, then only what changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.responses import Response
from markupsafe import Markup

from backend.routing import Router
from backend.services.base.metric_words import change_word, common_word
from backend.services.base.scope import LAST_GOOD, QueryScope, find_commit, find_scope
from backend.services.comparison import commits as service
from backend.services.comparison.commits import CommitComparison, PhaseDifference
from backend.services.comparison.redundant import with_redundant
from backend.services.comparison.rows import ComparisonRow, SuiteMean
from backend.services.reports.trends import BASES
from backend.services.runs import profiles
from backend.services.runs import view as run_view
from frontend import numbers
from frontend.evidence import KernelPanel, kernel_panel
from frontend.facets import chosen_facets, facet_bar
from frontend.figures.phases import PhaseBar, phases_svg
from frontend.figures.small import coverage, forest
from frontend.frame import Visit, Visiting
from frontend.links import diff_url
from frontend.markup import EMPTY, html, joined
from frontend.render import change_mark
from frontend.words import VERDICTS, plural

router = Router(include_in_schema=False)

PHASE_PANELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMetric:
    """A metric of both sides as a row."""

    row: ComparisonRow
    name: str
    redundant: tuple[str, ...]
    """Metrics of the variant that say the same again."""
    look: tuple[str, str]
    words: str
    change: Markup
    interval: str
    forest: Markup
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRow:
    """A suite's mean as a row: the change of cost, ▼ worse and ▲ better as everywhere."""

    name: str
    coverage: Markup
    change: Markup
    interval: str
    forest: Markup
    mean: SuiteMean


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The two sides of a comparison. `named`: the base as requested; `only`: only changes are shown."""

    project: str | None
    scope: QueryScope | None = None
    named: str = ""
    base: str = ""
    head: str = ""
    only: bool = True
    result: CommitComparison | None = None


def chosen(visit: Visit) -> Chosen:
    """Two commits side by side; without a base, against the run before."""
    here, project = visit.here, visit.project()
    if project is None:
        return Chosen(project=None)
    scope = find_scope(visit.c, project, None, here.get("testbed") or None)
    head = here.get("head") or (scope.project.default_branch if scope.branch else "")
    if scope.testbed is None or not head:
        return Chosen(project=project, scope=scope, base=here.get("base"), head=head)
    named = here.get("base") or before(visit, scope, commit_named(visit, scope, head))
    base, until = commit_named(visit, scope, named), commit_named(visit, scope, head)
    only = here.get("all") != "1"
    result = service.compare_commits(
        visit.c, project, base, until, scope.testbed.name, facets=chosen_facets(here), only_changed=only
    )
    return Chosen(project=project, scope=scope, named=named, base=base, head=head, only=only, result=result)


def told(result: CommitComparison, *, only: bool) -> list[ComparisonRow]:
    """The rows to show. With `only`, those are left out that no gate watches and too few processes measured."""
    return [row for row in result.rows if not only or row.judged or row.verdict != "insufficient"]


@router.get("/compare")
def compare_page(visit: Visiting) -> Response:
    """Two commits side by side."""
    here, found = visit.here, chosen(visit)
    project, scope, result, only = found.project, found.scope, found.result, found.only
    context: dict[str, Any] = {
        "page": "compare",
        "project": project,
        "path": "/compare",
        "scope": scope,
        "base": found.base,
        "head": found.head,
    }
    if project is None or result is None or scope is None:
        nothing = "There is nothing to compare yet."
        return visit.page("compare.html", title="Compare", description=nothing, result=None, **context)
    rows = told(result, only=only)
    shown = with_redundant(rows)
    policies = visit.policies(project)

    def gate(**names: str) -> float:
        return policies.of(**names, testbed=scope.testbed.name if scope.testbed else "").min_change

    sentence = sentence_of(result)
    means = (*result.suites, *([result.overall] if len(result.suites) > 1 else []))
    return visit.page(
        "compare.html",
        title=f"{short(result.base)} against {short(result.head)}",
        description=sentence.striptags(),
        result=result,
        sentence=sentence,
        suites=[suite_row(mean, gate(suite=mean.suite or "")) for mean in means],
        metrics=[
            metric_row(row, gate(suite=row.suite, benchmark=row.benchmark, metric=row.metric), redundant)
            for row, redundant in shown
        ],
        hidden=result.hidden + len(result.rows) - len(rows),
        facets=facet_bar(
            visit, project, base=(found.named, result.base.sha), head=(found.head, result.head.sha), unused=UNUSED
        ),
        only=only,
        phases=phase_panels(result),
        kernels=kernel_panels(visit, result),
        gate=numbers.threshold(gate()),
        diff_href=diff_url(visit.repository_url(project), result.base.sha, result.head.sha),
        swap=here(base=result.head.sha, head=result.base.sha),
        markdown=markdown(result),
        **context,
    )


UNUSED = {
    "branch": "base and head may be of any branch",
    "range": "two commits are compared, whenever they were made",
    "granularity": "two commits are compared, whenever they were made",
}


def commit_named(visit: Visit, scope: QueryScope, name: str) -> str:
    """The commit that a name of base or head refers to; an age (`7d`) is the newest commit of that time."""
    return service.commit_at(visit.c, scope, visit.now - BASES[name]) if name in BASES else name


def before(visit: Visit, scope: QueryScope, head: str) -> str:
    """The default base of a comparison: the nearest earlier run; else the parent; else the last good."""
    name = scope.testbed.name if scope.testbed else None
    side = service.compare_commits(visit.c, scope.project.slug, head, head, name).head
    for run_id in side.runs.values():
        previous = run_view.load_run(visit.c, run_id).previous
        if previous is not None:
            return previous.sha
    parents = find_commit(visit.c, scope, head).parents
    return parents[0] if parents else LAST_GOOD


def short(side: service.ComparisonSide) -> str:
    return f"#{side.pull_request}" if side.pull_request and side.name.startswith("#") else side.sha[:7]


def sentence_of(result: CommitComparison) -> Markup:
    """The answer with counts."""
    moved = [row for row in result.rows if row.moved]
    slower = [row for row in moved if row.verdict == "regression"]
    faster = [row for row in moved if row.verdict == "improvement"]
    parts = []
    if slower:
        parts.append(
            html("{} {}", counted(slower), html('<span class="bad">▼ {} {}</span>', span(slower), word_of(slower)))
        )
    if faster:
        parts.append(
            html("{} {}", counted(faster), html('<span class="good">▲ {} {}</span>', span(faster), word_of(faster)))
        )
    overall = result.overall
    rest = [f"{overall.unchanged} unchanged"] if overall.unchanged else []
    if overall.undecided:
        rest.append(f"{overall.undecided} not settled")
    if overall.left_out:
        rest.append(f"{overall.left_out} cannot be compared")
    tail = html("; {}", ", ".join(rest)) if rest else EMPTY
    if not overall.compared:
        return html(
            "{} and {} have no metric in common that ran on both sides{}.", short(result.base), short(result.head), tail
        )
    if overall.compared < overall.gates:
        # What was compared comes first: with part of it left out nobody may read "the same".
        found = joined(parts, " and ") if parts else "nothing moved among them"
        settled = ", ".join(each for each in rest if "cannot be compared" not in each)
        return html(
            "Only {} of {} were compared, {} against {}: {}{}.",
            overall.compared,
            plural(overall.gates, "gate"),
            short(result.head),
            short(result.base),
            found,
            f"; {settled}" if settled else "",
        )
    if not parts and overall.undecided:
        return html("No difference between {} and {} could be found{}.", short(result.head), short(result.base), tail)
    if not parts:
        return html("{} costs the same as {}{}.", short(result.head), short(result.base), tail)
    return html("{} against {}: {}{}.", short(result.head), short(result.base), joined(parts, " and "), tail)


def word_of(rows: list[ComparisonRow]) -> str:
    return common_word(change_word(row.unit, row.direction, row.change) for row in rows)


def counted(rows: list[ComparisonRow]) -> str:
    return plural(len(rows), "metric")


def span(rows: list[ComparisonRow]) -> str:
    sizes = sorted(abs(row.change) for row in rows)
    if len(sizes) == 1 or numbers.bare_percent(sizes[0]) == numbers.bare_percent(sizes[-1]):
        return numbers.percent(sizes[-1])
    return f"{numbers.bare_percent(sizes[0])} to {numbers.percent(sizes[-1])}"


def paid_with(key: str, row: ComparisonRow) -> str:
    """A metric that got worse meanwhile, by its name; with its variant where that is another one."""
    *_, benchmark, variant, _preset, metric = key.split("|")
    return metric if variant == row.variant_key else f"{metric} of {benchmark} {variant.replace(',', ', ')}".strip()


def metric_row(row: ComparisonRow, gate: float, redundant: Sequence[ComparisonRow] = ()) -> ShownMetric:
    word = change_word(row.unit, row.direction, row.change)
    words = word if row.verdict in ("regression", "improvement") else row.verdict
    look, kind = VERDICTS[row.verdict], row.verdict
    if words == word and not row.judged:
        words, look, kind = f"{word}, not judged", ("n", look[1]), ""
    note = ""
    if row.traded_for:
        note = f"weigh against {', '.join(paid_with(key, row) for key in row.traded_for)}"
    elif row.verdict == "insufficient" and row.needed_runs:
        note = f"needs {plural(row.needed_runs, 'more process', 'more processes')} per side"
    glyph = "▼" if row.change > 0 else "▲"
    css = {"regression": "bad b", "improvement": "good b", "suspect": "warn b"}.get(kind, "mut")
    return ShownMetric(
        row=row,
        name=f"{row.benchmark} {row.variant_key.replace(',', ', ')}".strip(),
        redundant=tuple(each.metric for each in redundant),
        look=look,
        words=words,
        change=html('<span class="{}">{} {}</span>', css, glyph, numbers.percent(row.change)),
        interval=numbers.interval(row.low, row.high),
        forest=forest(row, gate, word, kind),
        note=note,
    )


def suite_row(mean: SuiteMean, gate: float) -> SuiteRow:
    return SuiteRow(
        name=mean.suite or "all",
        coverage=coverage(mean.compared, mean.gates),
        change=change_mark(mean.change, firm=bool(mean.low and mean.high and mean.low * mean.high > 0)),
        interval=numbers.interval(mean.low, mean.high),
        forest=forest(mean, gate, "slower" if (mean.change or 0) > 0 else "faster"),
        mean=mean,
    )


def milliseconds(phases: Sequence[PhaseDifference]) -> list[PhaseDifference]:
    """The phases that add up to a step; the same relative to a yardstick are metrics of their own."""
    return [phase for phase in phases if phase.unit == "ms"]


def phase_panels(result: CommitComparison) -> list[tuple[str, Markup]]:
    """Phases of the variants that changed most: those of a gate that moved, because a slow machine lengthens all."""
    changed = [(row.benchmark, row.variant_key) for row in result.rows if row.moved]
    by_variant: dict[tuple[str, str], list[PhaseDifference]] = {}
    for each in milliseconds(result.phases):
        by_variant.setdefault((each.benchmark, each.variant_key), []).append(each)
    panels: list[tuple[str, Markup]] = []
    for key in dict.fromkeys(changed):
        if key in by_variant and len(panels) < PHASE_PANELS:
            pieces = [PhaseBar(name=each.phase, before=each.base, after=each.head) for each in by_variant[key]]
            picture = phases_svg(pieces, result.base.sha[:7], result.head.sha[:7])
            panels.append((f"{key[0]} {key[1].replace(',', ', ')}".strip(), picture))
    return panels


def kernel_panels(visit: Visit, result: CommitComparison) -> list[KernelPanel]:
    """Kernels of the variants that changed most, where both sides were profiled."""
    changed = [row for row in result.rows if row.moved]
    panels: list[KernelPanel] = []
    variants = [(row.suite, row.benchmark, row.variant_key, row.preset) for row in changed]
    for suite, *names in list(dict.fromkeys(variants))[: 2 * PHASE_PANELS]:
        variant = profiles.Variant(benchmark=names[0], variant_key=names[1], preset=names[2])
        sides = [
            profiles.load_profile(visit.c, visit.config, side.runs[suite], side.sha, variant)
            for side in (result.base, result.head)
            if suite in side.runs
        ]
        if len(sides) < 2:
            continue
        title = f"Kernels of {names[0]} {names[1].replace(',', ', ')}".strip()
        panel = kernel_panel(profiles.changed(*sides), title)
        if panel is not None and len(panels) < PHASE_PANELS:
            panels.append(panel)
    return panels


def markdown(result: CommitComparison) -> str:
    """The comparison as a table for a pull request."""
    lines = [
        f"{sentence_of(result).striptags()}",
        "",
        "| variant | metric | base | head | change of cost | verdict |",
        "|---|---|---:|---:|---:|---|",
    ]
    for row, redundant in with_redundant([row for row in told(result, only=True) if row.verdict != "unchanged"]):
        name = f"{row.benchmark} {row.variant_key}".strip().replace("|", "\\|")
        values = f"{numbers.quantity(row.base, row.unit)} | {numbers.quantity(row.head, row.unit)}"
        metrics = ", ".join([row.metric, *(each.metric for each in redundant)])
        sign = "▼" if row.change > 0 else "▲"
        verdict = row.verdict if row.judged else "not judged"
        lines.append(f"| {name} | {metrics} | {values} | {sign} {numbers.percent(row.change)} | {verdict} |")
    return "\n".join(lines)
