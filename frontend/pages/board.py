"""The board: what broke, when, and is anybody on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import numpy as np
import orjson
from fastapi.responses import Response
from markupsafe import Markup

from backend.routing import Router
from backend.services.base.errors import BadRequest
from backend.services.base.projects import DEMO
from backend.services.base.scope import in_zone
from backend.services.board import board as boards
from backend.services.board.cells import CODE_OF, STATES, CellState
from backend.services.board.model import Board, BoardQuery
from backend.services.reports.facets import FACETS
from frontend.board.cells import cell_href, patch
from frontend.board.grid import grid_html, key_html
from frontend.board.layout import CellMode, Layout, Lens, Sheet, plan_layout
from frontend.board.metric_columns import with_metric_columns
from frontend.facets import chosen_facets, facet_bar
from frontend.first_run import first_run_page, steps_html
from frontend.frame import Visit, Visiting
from frontend.links import Here
from frontend.markup import EMPTY, html, joined
from frontend.render import html_response, render, rendered
from frontend.words import LOOKS, MOVED, plural

router = Router(include_in_schema=False)

RANGES = (("24 h", "24h"), ("7 d", "7d"), ("30 d", "30d"), ("90 d", "90d"), ("All", "all"))
MODES = (("Verdict", CellMode.VERDICT), ("% change", CellMode.CHANGE), ("Value", CellMode.VALUE))
ROWS = 50
NOTHING = CODE_OF[CellState.EMPTY]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """A board with nothing to show says what was looked for, what there is instead, and how to see it."""

    sentence: str
    instead: str
    ways: tuple[tuple[str, str], ...]


def query_of(here: Here, project: str) -> BoardQuery:
    """The address as a question to the board."""
    return BoardQuery(
        project=project,
        branch=here.get("branch") or None,
        testbed=here.get("testbed") or None,
        facets=chosen_facets(here),
        text=here.get("match"),
        commit_text=here.get("q"),
        states=tuple(_state(value) for value in here.all("state")),
        only_changed=here.get("changed") not in ("", "0"),
        newest_too=True,
        range=here.get("range") or None,
        since=moment(here.get("since"), "since"),
        until=moment(here.get("until"), "until", end=True),
        limit=ROWS,
        cursor=here.get("cursor") or None,
        granularity=here.get("granularity") or "commit",
    )


def _state(value: str) -> CellState:
    try:
        return CellState(value)
    except ValueError:
        raise BadRequest.field("state", value, [state.value for state in CellState]) from None


def moment(text: str, name: str, *, end: bool = False) -> datetime | None:
    """A date (the end of it, where it ends a range) or a moment; without a zone it is UTC."""
    if not text:
        return None
    try:
        found = in_zone(datetime.fromisoformat(text))
    except ValueError:
        accepted = "a date like 2026-11-20 or a moment like 2026-11-20T10:00Z, from the year 1970 to 9000"
        raise BadRequest.field(name, text, accepted) from None
    return found + timedelta(days=1) if end and len(text) == len("2026-11-20") else found


def load(visit: Visit, project: str) -> tuple[BoardQuery, Board]:
    """The board of this address. Who does not say which commits sees those that moved something, where the newest
    alone would not tell what is open."""
    query = query_of(visit.here, project)
    if not visit.here.get("changed") and boards.opens_with_moves(visit.c, query, now=visit.now):
        query = replace(query, only_changed=True)
    return query, boards.load_board(visit.c, query, now=visit.now)


def layout_of(board: Board, sheet: Sheet, here: Here) -> Layout:
    return plan_layout(
        board, sheet, _lens(here.get("lens")), _mode(here.get("cells")), here.all("open"), here.all("pin")
    )


def _lens(value: str) -> Lens | None:
    if value and value not in set(Lens):
        raise BadRequest.field("lens", value, [lens.value for lens in Lens])
    return Lens(value) if value else None


def _mode(value: str) -> CellMode:
    if value and value not in set(CellMode):
        raise BadRequest.field("cells", value, [mode.value for mode in CellMode])
    return CellMode(value) if value else CellMode.VERDICT


@router.get("/board")
def board_page(visit: Visiting) -> Response:
    """The grid; or, until the first result is there, the steps towards it."""
    project = visit.project()
    if project is None:
        return first_run_page(visit, None, None)
    query, board = load(visit, project)
    if board.summary.last_result_at is None:
        return first_run_page(visit, project, board)
    board, sheet = with_metric_columns(visit.c, board, query)
    layout = layout_of(board, sheet, visit.here)
    quiet = quiet_state(board, layout, visit.here)
    repository = visit.repository_url(project)
    return visit.page(
        "board.html",
        page="board",
        title=f"{board.project} on {board.testbed}",
        description=description_of(board),
        project=project,
        board=board,
        facets=facet_bar(
            visit,
            project,
            range_shown=chosen_range(board),
            granularity=board.granularity,
            base=("–", None),
            head=("–", None),
            unused=dict.fromkeys(("base", "head"), "the board shows every commit of the range"),
        ),
        moves=query.only_changed,
        strip=strip_html(board, sheet, visit),
        state_words=[(state.value, LOOKS[state].key) for state in CellState if state is not CellState.EMPTY],
        lenses=lenses(board, layout, visit.here),
        modes=[(label, visit.here(cells=mode.value), layout.mode is mode) for label, mode in MODES],
        ribbon=ribbon(board, sheet),
        quiet=quiet,
        demo=board.project == DEMO and board.summary.running + board.summary.queued > 0,
        grid="" if quiet else grid_html(board, sheet, layout, visit.here, visit.now, repository),
        keys=keys_of(board, layout),
        states=orjson.dumps({look.css: look.words for look in LOOKS.values()}).decode(),
        key=key_html(),
    )


@router.get("/board/patch")
def board_patch(visit: Visiting) -> Response:
    """The cells of the same board as data, for a page that is open."""
    project = visit.project()
    query, board = load(visit, project) if project else (None, None)
    if query is None or board is None or board.summary.last_result_at is None:
        content: dict[str, Any] = {"first_run": True, "steps": str(steps_html(visit, project, board))}
    else:
        board, sheet = with_metric_columns(visit.c, board, query)
        layout = layout_of(board, sheet, visit.here)
        content = {
            "first_run": quiet_state(board, layout, visit.here) is not None,
            "strip": str(strip_html(board, sheet, visit)),
        }
        content |= patch(board, sheet, layout)
    headers = {"Cache-Control": "no-store"}
    return Response(orjson.dumps(content), media_type="application/json", headers=headers)


@router.get("/board/cell")
def board_cell(visit: Visiting) -> Response:
    """The popover of a cell."""
    from frontend.board.details import cell_details

    return html_response(visit.request, render("cell.html", cell_details(visit)))


def chosen_range(board: Board) -> str | None:
    """The name of the range; None between chosen dates."""
    chosen_dates = board.range.since is not None or board.range.until is not None
    return board.range.name or (None if chosen_dates else "all")


# --- parts -----------------------------------------------------------------------------------------------------------


def strip_html(board: Board, sheet: Sheet, visit: Visit) -> Markup:
    """The facts above the grid. A cell with ? is no suspect to be counted where its regression is confirmed already."""
    place = {"project": board.project, "testbed": board.testbed or "", "branch": visit.here.get("branch")}
    here = Here("/board", [*place.items(), ("theme", visit.here.get("theme"))])
    waiting = bool((sheet.codes == CODE_OF[CellState.SUSPECT]).any())
    said = {"summary": board.summary, "waiting": waiting, "unsteady": unsteady_now(sheet), "here": here}
    return rendered("strip.html", {**said, "now": visit.now})


NOT_MEASURED = (CellState.RUNNING, CellState.QUEUED, CellState.NOT_APPLICABLE, CellState.EMPTY)


def unsteady_now(sheet: Sheet) -> int:
    """Columns whose newest cell that says anything says that its series cannot be judged."""
    if not sheet.codes.size:
        return 0
    measured = ~np.isin(sheet.codes, [CODE_OF[state] for state in NOT_MEASURED])
    newest = np.take_along_axis(sheet.codes, measured.argmax(axis=0)[None], axis=0)[0]
    return int((measured.any(axis=0) & (newest == CODE_OF[CellState.UNSTEADY])).sum())


def keys_of(board: Board, layout: Layout) -> str:
    """Keys of the cells of a row, in order: how scripts know which column a cell is in."""
    keys: list[str] = []
    for group in layout.groups:
        keys += [] if group.folded else [board.columns[index].key for index in group.columns]
        keys.append(f"suite:{group.name}")
    return orjson.dumps(keys).decode()


def lenses(board: Board, layout: Layout, here: Here) -> list[tuple[str, str, bool]]:
    """The three ways to choose columns; a small board needs none."""
    if len(board.columns) <= 12:
        return []
    suites = len({column.suite for column in board.columns})
    shown = len(layout.moved)
    named = (
        (f"Moved and pinned · {shown}", Lens.MOVED),
        (f"All · {len(board.columns)}", Lens.ALL),
        (f"By suite · {suites}", Lens.SUITES),
    )
    return [(label, here(lens=lens.value, open=None), layout.lens is lens) for label, lens in named]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Where a line of the ribbon leads, and how that is called."""

    href: str
    name: str


def worst_cells(board: Board, sheet: Sheet, columns: Sequence[int]) -> dict[int, Lead]:
    """Of each column the newest cell in its worst state: its regression, its run, or its series at that commit."""
    leads: dict[int, Lead] = {}
    if not columns:
        return leads  # nothing moved, or no commit is shown at all
    newest = sheet.codes.argmin(axis=0)
    for number in np.unique(newest[list(columns)]).tolist():
        row, wanted = board.rows[number], (newest == number) & np.isin(np.arange(newest.size), columns)
        for column, cell in sheet.cells(number, wanted).items():
            named = f"{board.columns[column].label}, {row.short}, {LOOKS[cell.state].words}"
            leads[column] = Lead(href=cell_href(cell, row), name=named)
    return leads


def ribbon(board: Board, sheet: Sheet) -> Markup:
    """Every column as a thin line in the colour of its worst state in range, which leads to what it speaks of."""
    total = len(board.columns)
    if total <= 30:
        return EMPTY
    worst = {column: STATES[code] for column, code in enumerate(sheet.codes.min(axis=0, initial=NOTHING).tolist())}
    colours = {
        "r": "--reg",
        "t": "--reg",
        "k": "--reg-text",
        "u": "--sus-line",
        "i": "--imp-line",
        "f": "--fail-line",
        "q": "--qua-line",
    }
    marked = [(column, state) for column, state in sorted(worst.items()) if LOOKS[state].css in colours]
    leads = worst_cells(board, sheet, [column for column, _ in marked])
    marks = EMPTY
    # Neighbours of one story are one link: a tab stop each would be hundreds.
    for (href, _), of_one in groupby(marked, key=lambda each: (leads[each[0]].href, each[1])):
        columns = list(of_one)
        name = leads[columns[0][0]].name + (f" and {len(columns) - 1} more" if len(columns) > 1 else "")
        rects = joined(
            html('<rect x="{}" y="1" width="3" height="16" fill="var({})"/>', column * 3, colours[LOOKS[state].css])
            for column, state in columns
        )
        marks += html('<a href="{}" aria-label="{}">{}</a>', href, name, rects) if href else rects
    moved = sum(state in MOVED for state in worst.values())
    return html(
        '<svg class="rib" viewBox="0 0 {} 18" preserveAspectRatio="none" role="group" aria-label="{} columns, worst'
        ' state in range: {} moved, {} quiet"><rect width="{}" height="18" rx="2" fill="var(--surface-2)"/>{}</svg>',
        total * 3,
        total,
        moved,
        total - moved,
        total * 3,
        marks,
    )


def quiet_state(board: Board, layout: Layout, here: Here) -> Quiet | None:
    """Why there is nothing to see, or None when there is."""
    if board.rows and layout.width:
        return None
    filters = [name for name in ("q", "match", "state", "changed", *FACETS) if here.get(name)]
    named = board.range.name or ("the chosen dates" if board.range.since or board.range.until else "all history")
    place = f"{board.branch} on {board.testbed}"
    clear = ("Clear filters", here(q=None, match=None, state=None, changed=None, lens=None, **dict.fromkeys(FACETS)))
    names = [value for _, value in RANGES]
    chosen = names.index(board.range.name) if board.range.name in names else -1
    # The widest first: who has seen one empty range wants no second one.
    wider = tuple(
        (f"Widen to {label.lower()}", here(range=value, since=None, until=None))
        for label, value in reversed(RANGES[max(chosen + 1, 2) :])
    )
    if layout.lens is Lens.MOVED and board.rows:
        return Quiet(
            sentence=f"No column moved in {named} for {place}.",
            instead=f"{plural(len(board.columns), 'column')}, {plural(len(board.rows), 'commit')}, all unchanged.",
            ways=((f"Show all {len(board.columns)} columns", here(lens=Lens.ALL.value)), *wider[:1]),
        )
    if filters:
        return Quiet(
            sentence=f"No commit of {place} matches these filters in {named}.",
            instead=f"{plural(board.commits_in_range, 'commit')} without them.",
            ways=(clear, *wider[:1]),
        )
    if not (board.range.since or board.range.until):
        known = plural(board.commits_in_range, "commit")
        return Quiet(sentence=f"Nothing of {place} has a result to show yet.", instead=f"{known} known.", ways=())
    return Quiet(sentence=f"No commit of {place} in {named}.", instead="Older ones may be there.", ways=wider)


def description_of(board: Board) -> str:
    """One sentence: what a chat shows under a pasted link."""
    summary = board.summary
    said = plural(summary.open_regressions, "open regression") if summary.open_regressions else "no open regression"
    more = f", {plural(summary.suspects, 'suspect')}" if summary.suspects else ""
    size = f"{plural(len(board.rows), 'commit')} × {plural(len(board.columns), 'variant')}"
    return f"{board.project} on {board.testbed}: {said}{more}; {size}."
