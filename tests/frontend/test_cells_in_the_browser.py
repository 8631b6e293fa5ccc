"""Cells of the board as a browser draws them: every state can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from frontend_site import Site

from backend.services.board.cells import Cell, CellState
from backend.services.board.model import BoardRow
from backend.services.reports.columns import Column
from frontend.board.cells import face_of
from frontend.board.layout import CellMode

pytestmark = pytest.mark.browser

PROJECT = "northsea/loom"
Enter = Callable[..., Any]


def rows_of_every_state(mode: CellMode, largest: float | None, above: CellState = CellState.EMPTY) -> str:
    """A row of the board that has a cell in each state, as the board writes it."""
    column = Column(
        key="moe/layer", suite="moe", benchmark="layer", variant={}, label="layer", preset="cpu", series=(7,)
    )
    row = BoardRow(
        sha="9f3c2e1" + "0" * 33, short="9f3c2e1", position=4, message="m", author="a", committed_at=None,
        pull_request=None, benchmarked=True, skipped_reason=None, cells=(), runs={},  # type: ignore[arg-type]
    )  # fmt: skip
    known = {"change": 0.07, "value": 26.0, "unit": "ms", "series_id": 7, "run_id": "r1", "have": 2, "need": 5}
    faces = [face_of(Cell(0, state, **known), column, row, mode, largest, above=above) for state in CellState]  # type: ignore[arg-type]
    return "<tr>" + "".join(
        f'<td class="{face.css} c vc" aria-label="{face.label}">'
        + (f'<a href="{face.href}">{face.html}</a>' if face.loud and face.href else face.html)
        for face in faces
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cells_of_every_state_can_be_read_in_both_themes(loom: Site, visit: Enter, theme: str) -> None:
    page = visit(loom).open(f"/board?project={PROJECT}&theme={theme}")
    leads = (CellState.EMPTY, CellState.STILL_UNOWNED, CellState.STILL_OWNED)
    narrow = "".join(rows_of_every_state(CellMode.VERDICT, None, above) for above in leads)
    figures = "".join(rows_of_every_state(mode, None) for mode in CellMode if mode is not CellMode.VERDICT)
    wide = rows_of_every_state(CellMode.VERDICT, 30.0)
    page.evaluate(
        """([narrow, figures, wide]) => {
          const table = (css, rows) => `<div class="gw"><table class="grid ${css}" style="--n:14">
            <caption class="vh">${css}</caption><tbody>${rows}</table></div>`;
          const all = [table("mid", narrow), table("mid figures", figures), table("few", wide)];
          document.querySelector("main").innerHTML = all.join("");
        }""",
        [narrow, figures, wide],
    )
    assert page.locator("main td.c").count() == len(CellState) * (len(CellMode) + 3)
    checked = Axe().run(page, options={"runOnly": ["color-contrast"]}).response
    texts = [
        (node["html"][:160], node["any"][0]["message"]) for each in checked["violations"] for node in each["nodes"]
    ]
    assert texts == []
