"""Workers: is it the code or the machine? Their canary, what runs and waits, how good the alarms are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Form
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup

from backend.routing import Router
from backend.services.base.confine import check_worker
from backend.services.base.errors import Forbidden
from backend.services.base.principal import Scope
from backend.services.board import board as boards
from backend.services.board.model import BoardQuery
from backend.services.queue import dispatch
from backend.services.queue import view as queue_view
from backend.services.reports import overview
from backend.services.reports.facets import FACETS
from backend.services.reports.overview import Canary, ListedWorker, WorkerState
from backend.store.board.summary import Summary
from frontend import numbers
from frontend.facets import facet_bar
from frontend.figures.small import sparkline
from frontend.frame import Visit, Visiting
from frontend.pages.run import canary_says, flat, percent_done
from frontend.words import plural

router = Router(include_in_schema=False)

UNUSED = "a worker measures every variant, branch and commit"

LOOKS = {
    WorkerState.BUSY: ("g", "◔"),
    WorkerState.IDLE: ("s", "○"),
    WorkerState.HELD: ("q", "◆"),
    WorkerState.GONE: ("f", "✕"),
}
WORDS = {
    WorkerState.BUSY: "running",
    WorkerState.IDLE: "idle",
    WorkerState.HELD: "held",
    WorkerState.GONE: "silent",
}
# What an administrator may tell a worker: state, word, what comes of it.
DEEDS = (
    ("ok", "Resume", "It takes runs again"),
    ("pause", "Pause", "It finishes its current run and takes no other until it is resumed"),
    ("drain", "Drain", "It finishes its current run and exits; its supervisor may start it again"),
    ("quarantine", "Quarantine", "It takes no runs until a person has checked the machine and resumed it"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLine:
    worker: ListedWorker
    look: tuple[str, str]
    words: str
    now: str
    percent: int | None
    left: str
    canary: str
    drifted: bool
    clock: str
    temperature: str
    throttle: str
    protection: str
    trouble: str


@router.get("/workers")
def workers_page(visit: Visiting) -> Response:
    if visit.principal.project_id is not None:
        raise Forbidden(f"token {visit.principal.name!r} belongs to one project, and workers work for all")
    of = visit.shown_projects
    listed = overview.load_workers(visit.c, now=visit.now, of=of)
    asked = visit.here.get("testbed")
    project = visit.project()
    queue = queue_view.queue(visit.c, testbed=asked or None, of=of, now=visit.now)
    shown = [worker for worker in listed.workers if not asked or worker.testbed == asked]
    return visit.page(
        "workers.html",
        page="workers",
        title="Workers",
        description=describe(listed),
        project=project,
        path="/workers",
        listed=listed,
        sentence=describe(listed),
        rows=[worker_row(worker) for worker in shown],
        facets=facet_bar(
            visit,
            project,
            base=("–", None),
            head=("–", None),
            unused=dict.fromkeys((*FACETS, "branch", "base", "head", "range", "granularity"), UNUSED),
            any_testbed=True,
        ),
        queue=queue,
        percent_done=percent_done,
        summary=summary_of(visit, project),
    )


@router.get("/workers/{name}")
def worker_page(visit: Visiting, name: str) -> Response:
    """One worker: its last runs and what its canary read in them."""
    check_worker(visit.c, visit.principal, name)
    detail = overview.load_worker(visit.c, name, now=visit.now, of=visit.shown_projects)
    worker = detail.worker
    return visit.page(
        "worker.html",
        page="workers",
        title=f"Worker {worker.name}",
        description=f"{worker.name} on {worker.testbed} is {WORDS[worker.state]}: {plural(worker.done, 'run')} in 7 d.",
        project=visit.project(),
        path="/workers",
        row=worker_row(worker),
        worker=worker,
        runs=detail.runs,
        canaries=by_name(worker.canary),
        flat=flat,
        deeds=[deed for deed in DEEDS if deed[0] != worker.wanted_state] if visit.may(Scope.ADMIN, None) else [],
    )


@router.post("/workers/{name}/state")
def set_worker_state(
    visit: Visiting,
    name: str,
    state: Annotated[Literal["ok", "pause", "drain", "quarantine"], Form()],
    csrf_token: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Tell a worker what it is to do from now on."""
    visit.check_action(csrf_token, Scope.ADMIN)
    dispatch.request_worker_state(visit.c, visit.principal, name, state, visit.now)
    return RedirectResponse(f"/workers/{quote(name, safe='')}", status_code=303)


def describe(listed: overview.WorkerOverview) -> str:
    ready = listed.states.get("busy", 0) + listed.states.get("idle", 0)
    parts = [f"{ready} of {plural(len(listed.workers), 'worker')} measuring or ready"]
    if listed.states.get("held"):
        parts.append(f"{listed.states['held']} held")
    if listed.states.get("gone"):
        parts.append(f"{listed.states['gone']} silent")
    return ", ".join(parts)


def worker_row(worker: ListedWorker) -> WorkerLine:
    run = worker.current
    progress: Mapping[str, Any] = run.progress if run else {}
    eta = progress.get("eta_s")
    text, drifted = canary_words(worker.canary_now)
    telemetry = worker.telemetry
    throttle = telemetry.get("throttle")
    return WorkerLine(
        worker=worker,
        look=LOOKS[worker.state],
        words=WORDS[worker.state] if worker.state is not WorkerState.HELD else worker.wanted_state,
        now=f"{run.suite} at {run.sha[:7]}" if run else "",
        percent=percent_done(progress),
        left=f"{numbers.rough_duration(eta)} left" if isinstance(eta, int | float) else "",
        canary=text,
        drifted=drifted,
        protection=str(worker.capabilities.get("protection_reason") or ""),
        trouble=trouble_words(worker.capabilities),
        clock=dig(telemetry, "sm_clock_mhz", "p50"),
        temperature=dig(telemetry, "temperature_c", "max"),
        throttle=", ".join(str(each) for each in throttle)
        if isinstance(throttle, list) and throttle
        else "none"
        if throttle == []
        else "–",
    )


def trouble_words(capabilities: Mapping[str, Any]) -> str:
    """Faults of the worker's machine, and results that it could not deliver as they are."""
    said = [str(capabilities["trouble"])] if capabilities.get("trouble") else []
    spool = capabilities.get("spool")
    if isinstance(spool, Mapping):
        for name, words in (("waiting", "waiting to be delivered"), ("set_aside", "set aside: see its log")):
            number = spool.get(name)
            if isinstance(number, int) and number > 0:
                said.append(f"{plural(number, 'result')} {words}")
    return "; ".join(said)


def dig(values: Mapping[str, Any], name: str, part: str) -> str:
    inner = values.get(name)
    number = inner.get(part) if isinstance(inner, Mapping) else None
    return numbers.count(number) if isinstance(number, int | float) else "–"


def canary_words(readings: tuple[Canary, ...]) -> tuple[str, bool]:
    """What the newest run's canary says of its machine, by the reading that moved most; the same words as on the page
    of that run."""
    told = [each for each in readings if each.drift is not None]
    if not told:
        return "not read in its last run", False
    worst = max(told, key=lambda each: abs(each.drift or 0.0))
    return canary_says(worst.drift, worst.own_noise)


def by_name(readings: tuple[Canary, ...]) -> list[tuple[str, Markup, str]]:
    """Each fixed workload over the last runs."""
    found: dict[str, list[float]] = {}
    for reading in readings:
        if reading.before is not None:
            found.setdefault(reading.name, []).append(reading.before)
    return [(name, sparkline(values, width=220, height=30), span(values)) for name, values in found.items()]


def span(values: list[float]) -> str:
    """The newest reading and the range it is in."""
    newest, low, high = (numbers.significant(value, 4) for value in (values[-1], min(values), max(values)))
    return f"{newest} now, {low} … {high}"


def summary_of(visit: Visit, project: str | None) -> Summary | None:
    """How good the alarms are, as the board counts it."""
    if project is None:
        return None
    return boards.load_board(visit.c, BoardQuery(project=project, limit=1), now=visit.now).summary
