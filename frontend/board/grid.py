"""The board's grid as HTML: one bare `<td>` per cell, because a page may hold fifteen thousand of them.

Written as strings and not as a template for speed: 200 columns × 50 rows take a few tens of milliseconds. Every piece
of foreign text goes through `cell_escape`.
"""

# ruff: noqa: E501 (a line of markup or of data stays one line)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from backend.services.board.cells import CellState
from backend.services.board.model import Board, BoardRow
from backend.services.reports.columns import Column
from backend.services.reports.notices import Notice, NoticeKind
from frontend import numbers
from frontend.board.cells import CellPlace, Face, faces_of, places_of
from frontend.board.headers import ColumnHeaders, HeaderSpan, headers_of
from frontend.board.layout import CellMode, CellUnit, ColumnGroup, Layout, Sheet, codes_of, wanted_columns
from frontend.links import Here, pull_request_url, series_name
from frontend.markup import made_by_template
from frontend.render import cell_escape, when
from frontend.words import LOOKS, SLOWER_NOW, plural

LEVEL_LETTERS = 6  # of a suite's name that a phone's column holds level


def grid_html(
    board: Board, sheet: Sheet, layout: Layout, here: Here, now: datetime, repository_url: str | None
) -> Markup:
    """The whole `<table>`."""
    width, headers = layout.width, headers_of(board.columns, layout, _metrics(sheet, layout))
    figures = " figures" if layout.mode is not CellMode.VERDICT else ""
    upright = " upright" if max((len(group.name) for group in layout.groups), default=0) > LEVEL_LETTERS else ""
    css = f"grid {layout.size}{' prs' if layout.pull_requests else ''}{figures}{upright}"
    columns = "".join(
        f'<col class="w-full" style="width:var(--{name})">'
        for name in ("sha", "msg", "who", "age", *(("pr",) if layout.pull_requests else ()))
    )
    parts = [
        f'<table class="{css}" id="grid" role="grid" aria-label="Verdicts: commits by benchmark variant" '
        f'aria-rowcount="{len(board.rows) + 3 + len(headers.levels)}" aria-colcount="{width + 4}" style="--n:{width};--lv:{len(headers.levels)};--head:{headers.height}px">',
        f'<colgroup>{columns}<col class="w-full" span="{max(1, width)}" style="width:var(--cell)"></colgroup><thead>',
        _header(board, sheet, layout, headers, here),
        "</thead><tbody>",
    ]
    edges = _edges(board.columns, layout)
    places = [_place_css(place, edges) for place in places_of(board, layout)]
    rows = _Rows(layout, places, here, now, repository_url)
    previous, above = "", None
    for row, faces in zip(board.rows, faces_of(board, sheet, layout), strict=True):
        at = row.bucket or row.committed_at
        day = at.strftime("%Y-%m-%d") if at else previous
        passed = _passed_over(above, row, here)
        marks = [mark for mark, true in (("day", previous and day != previous), ("q", passed)) if true]
        parts.append(rows.html(row, faces, marks, passed))
        parts += [_notice(notice, width, layout) for notice in row.notices]
        previous, above = day, row
    parts.append("</tbody></table>")
    return made_by_template("".join(parts))


def _edges(columns: Sequence[Column], layout: Layout) -> dict[int, str]:
    """Class of a column's left edge: g1 where a suite begins, g0 where a benchmark does."""
    edges: dict[int, str] = {}
    for group in layout.groups:
        benchmark = None  # a suite that has not measured anything has a column without one
        for index in group.columns:
            if columns[index].benchmark != benchmark:
                edges[index] = " g1" if benchmark is None else " g0"
            benchmark = columns[index].benchmark
    return edges


def _header(board: Board, sheet: Sheet, layout: Layout, headers: ColumnHeaders, here: Here) -> str:
    slower, edges = slower_now(sheet), _edges(board.columns, layout)
    fixed = 5 if layout.pull_requests else 4
    above = 2 + len(headers.levels)
    first = [
        f'<tr class="h1"><th class="fz fl vc" colspan="{fixed}" rowspan="{above}">{_filter_form(here, board, layout)}</th>'
        '<th class="fz f2 only-s" scope="col">Commit</th>'
    ]
    second, last = ['<tr class="h2">'], [_fixed_headers(layout)]
    for group in layout.groups:
        bad = sum(index in slower for index in group.columns)
        name, others = cell_escape(group.name), [each for each in here.all("open") if each != group.name]
        if group.folded:
            opened = cell_escape(here(open=[*others, group.name]))
            first.append(
                f'<th class="roll wide g1" scope="col" rowspan="{above}" title="{name}"><span class="named">{name}</span></th>'
            )
            last.append(
                f'<th class="roll wide g1" scope="col" data-k="suite:{name}"><span class="vt{" hot" if bad else ""}">'
                f'<a href="{opened}" title="{name}: {len(group.columns)} columns, open">{cell_escape(headers.names[group.columns[0]])}</a></span></th>'
            )
            continue
        first.append(_suite_header(group, bad, here, others))
        first.append(f'<th class="roll" scope="col" data-k="suite:{name}"><span class="named">{name}</span></th>')
        for span in headers.benchmarks[group.name]:
            second.append(_level(span, edges.get(span.columns[0], ""), board.columns[span.columns[0]].benchmark))
            last += [
                _column_header(
                    board.columns[index],
                    edges.get(index, ""),
                    index in slower,
                    headers.names[index],
                    layout.units.get(index),
                )
                for index in span.columns
            ]
    levels = [_level_row(number, spans, layout, edges) for number, spans in enumerate(headers.levels)]
    return "".join(("".join(part) + "</tr>") for part in (first, second, *levels, last))


def _suite_header(group: ColumnGroup, bad: int, here: Here, others: Sequence[str]) -> str:
    name = cell_escape(group.name)
    badge = f'<span class="ct red" title="{bad} slower now">▽{bad}</span>' if bad and len(group.columns) > 2 else ""
    closing = ""
    if group.opened:
        closing = f' <a class="t1" href="{cell_escape(here(open=others or None))}" aria-label="Fold {name}" title="Fold {name}">fold</a>'
    return (
        f'<th class="vc g1" colspan="{len(group.columns)}" scope="colgroup">'
        f'<span><a href="{cell_escape(here.page(f"/suites/{quote(group.suite)}"))}">{name}</a>{badge}{closing}</span></th>'
    )


def _level(span: HeaderSpan, edge: str, title: str) -> str:
    if not span.told or not span.name:  # a suite that has not measured anything has no benchmark yet
        return f'<td class="vc{edge}" colspan="{len(span.columns)}"></td>'
    name = cell_escape(span.name)
    return f'<th class="vc{edge}" colspan="{len(span.columns)}" scope="colgroup"><span title="{cell_escape(title)}">{name}</span></th>'


def _level_row(number: int, spans: Sequence[HeaderSpan], layout: Layout, edges: Mapping[int, str]) -> list[str]:
    """One key of the variants. A folded suite's first cell reaches down to here."""
    folded = {group.columns[0] for group in layout.groups if group.folded}
    parts = [f'<tr class="lv" style="--i:{number}">']
    for span in spans:
        if span.columns[0] not in folded:
            edge = edges.get(span.columns[0], "") or (" gl" if span.told else "")
            parts.append(_level(span, edge, span.name))
    return parts


def _metrics(sheet: Sheet, layout: Layout) -> dict[int, str]:
    """The metric that the newest cell of each shown column shows."""
    wanted, found = wanted_columns(sheet, layout), dict[int, str]()
    for row in range(len(sheet.rows)):
        for column, cell in sheet.cells(row, wanted).items():
            if cell.metric is not None:
                found[column] = cell.metric
                wanted[column] = False
        if not wanted.any():
            break
    return found


def _column_header(column: Column, edge: str, slower: bool, name: str, unit: CellUnit | None) -> str:
    whole = series_name(column.benchmark, column.variant) + (f", preset {column.preset}" if column.preset else "")
    written = "" if unit is None else numbers.unit_text(unit.name)
    label = cell_escape(f"{name}, {written}" if written else name)
    inner = f'<a href="/series/{column.series[0]}" title="{cell_escape(whole)}">{label}</a>' if column.series else label
    series = f' data-s="{column.series[0]}"' if column.series else ""
    return (
        f'<th class="vc{edge}" scope="col" data-k="{cell_escape(column.key)}" data-n="{cell_escape(f"{column.benchmark} {column.label}")}"{series}>'
        f'<span class="vt{" hot" if slower else ""}">{inner}</span></th>'
    )


def _fixed_headers(layout: Layout) -> str:
    names = [("f1", "Commit"), ("f2", "Message"), ("f3", "Author"), ("f4", "Age")]
    if layout.pull_requests:
        names.append(("f5", "PR"))
    cells = [
        f'<th class="fz {css}{" last" if css == names[-1][0] else ""}" scope="col">{name}</th>' for css, name in names
    ]
    return '<tr class="h3">' + "".join(cells)


SAID_OF_MODE = {
    CellMode.VERDICT: "",
    CellMode.CHANGE: " · cells in % of cost",
    CellMode.VALUE: " · units in the headers",
}


def _filter_form(here: Here, board: Board, layout: Layout) -> str:
    hidden = "".join(
        f'<input type="hidden" name="{cell_escape(name)}" value="{cell_escape(value)}">'
        for name, value in here.hidden("q")
    )
    return (
        f'<form action="{cell_escape(here.path)}" method="get">{hidden}<label class="vh" for="filter">Filter commits by author, text or sha</label>'
        f'<input class="in" id="filter" name="q" value="{cell_escape(here.get("q"))}" placeholder="Filter: author, text, sha" maxlength="200">'
        f'<span class="t1 mut nw">{plural(len(board.rows), "commit")}{SAID_OF_MODE[layout.mode]}</span></form>'
    )


SAYS_NOTHING = (
    CellState.EMPTY,
    CellState.QUEUED,
    CellState.RUNNING,
    CellState.FAILED,
    CellState.QUARANTINED,
    CellState.NOT_APPLICABLE,
)


def slower_now(sheet: Sheet) -> frozenset[int]:
    """Columns whose newest judged cell is slower."""
    codes = sheet.codes
    if not codes.size:
        return frozenset()
    judged = ~np.isin(codes, codes_of(SAYS_NOTHING))
    newest = codes[judged.argmax(axis=0), np.arange(codes.shape[1])]
    slower = judged.any(axis=0) & np.isin(newest, codes_of(SLOWER_NOW))
    return frozenset(np.flatnonzero(slower).tolist())


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a board: what all of them have in common."""

    layout: Layout
    places: Sequence[str]
    here: Here
    now: datetime
    repository_url: str | None

    def html(self, row: BoardRow, faces: Sequence[Face], marks: Sequence[str], passed: str) -> str:
        sha, message, author = cell_escape(row.short), cell_escape(row.message), cell_escape(row.author)
        open_commit = cell_escape(self.here.page("/compare", head=row.sha))
        age = when(row.bucket or row.committed_at, "age", self.now)
        skipped = f' title="not benchmarked: {cell_escape(row.skipped_reason)}"' if row.skipped_reason else ""
        css = f' class="{" ".join(marks)}"' if marks else ""
        parts = [
            f"<tr data-c='{cell_escape(row.sha)}'{css}>"
            f'<th class="fz f1" scope="row"><a href="{open_commit}">{sha}</a></th>'
            f'<td class="fz f2"{skipped}>{passed}<a href="{open_commit}" class="m1" title="{message}"><bdi>{message}</bdi></a>'
            f'<span class="m2">{sha} · {author} · {age}</span>'
            f'<td class="fz f3" title="{author}"><bdi>{author}</bdi><td class="fz f4{"" if self.layout.pull_requests else " last"}">{age}'
        ]
        if self.layout.pull_requests:
            parts.append(f'<td class="fz f5 last">{_pull_request(row.pull_request, self.repository_url)}')
        parts += [
            _link(face, place) if face.loud and face.href else f'<td class="{face.css} c{place}">{face.html}'
            for face, place in zip(faces, self.places, strict=True)
        ]
        return "".join(parts)


def _place_css(place: CellPlace, edges: Mapping[int, str]) -> str:
    if place.column is None:
        return " roll wide g1" if place.wide else " roll"
    return " vc" + edges.get(place.column, "")


def _link(face: Face, place: str) -> str:
    label = cell_escape(face.label)
    return (
        f'<td class="{face.css} c{place}" data-a="{cell_escape(face.about)}" aria-label="{label}">'
        f'<a href="{cell_escape(face.href)}" tabindex="-1" aria-label="{label}">{face.html}</a>'
    )


def _pull_request(number: int | None, repository_url: str | None) -> str:
    if number is None:
        return ""
    url = pull_request_url(repository_url, number)
    return f'<a href="{cell_escape(url)}" rel="noreferrer">#{number}</a>' if url else f"#{number}"


def _passed_over(above: BoardRow | None, row: BoardRow, here: Here) -> str:
    """Between commits that moved something: how many did not, as the way to them."""
    passed = 0 if above is None or row.bucket is not None else above.position - row.position - 1
    if above is None or passed < 1 or here.get("q") or here.get("state") or row.position < 0:
        return ""
    shown = cell_escape(here(changed="0", cursor=above.position))
    return f'<a class="qc" href="{shown}">{plural(passed, "quiet commit")}</a>'


def _notice(notice: Notice, width: int, layout: Layout) -> str:
    """An event between two commits, as a thin line across the grid at its place in time."""
    fixed = 5 if layout.pull_requests else 4
    alarm = notice.kind is not NoticeKind.ENVIRONMENT
    title = cell_escape(notice.text)
    said = f'<a href="{cell_escape(_notice_href(notice))}">{title}</a>' if _notice_href(notice) else title
    about = ", ".join(notice.suites)
    css, colour = (" alarm", "vio") if alarm else ("", "warn")
    return (
        f'<tr class="ev{css}"><td class="fz" colspan="{fixed}" title="{title}"><b class="{colour}">◆</b> {said}'
        f'<td class="ln" colspan="{max(1, width)}">' + (f"<span>{cell_escape(about)}</span>" if about else "")
    )


def _notice_href(notice: Notice) -> str:
    if notice.regression_id is not None:
        return f"/regressions/{notice.regression_id}"
    return f"/runs/{notice.run_id}" if notice.run_id else ""


def key_html() -> Markup:
    """The legend: every state as it looks, with its words."""
    items = []
    for look in LOOKS.values():
        sample = '<i class="pie"></i>' if look.css == "g" else look.sample
        items.append(
            f'<li><span class="grid" aria-hidden="true"><table><tr><td class="{look.css} c">{sample}</table></span>{look.key}</li>'
        )
    return made_by_template("".join(items))
