"""The way to the first result: steps that tick themselves off while one watches."""

from dataclasses import dataclass, replace

from fastapi.responses import Response
from markupsafe import Markup

from backend.services.base.principal import Scope
from backend.services.base.projects import DEMO
from backend.services.board.model import Board
from backend.services.reports import overview
from backend.services.reports.overview import FirstRun
from frontend import numbers
from frontend.frame import Visit
from frontend.links import link
from frontend.render import rendered, visible
from frontend.words import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStep:
    """One step. What it says while it waits names what it waits for; a command helps where a person must act."""

    title: str
    text: str
    done: bool
    command: str = ""
    way: tuple[str, str] | None = None
    """A button: what it says and where it leads."""
    progress: int | None = None
    progress_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A step with its turn: done, now or later."""

    step: SetupStep
    state: str


def in_turn(steps: list[SetupStep]) -> list[Shown]:
    """The first step that is not done is the one of now."""
    waiting = next((index for index, step in enumerate(steps) if not step.done), len(steps))
    return [
        Shown(step=step, state="done" if step.done else "now" if index == waiting else "later")
        for index, step in enumerate(steps)
    ]


def steps_of(visit: Visit, first: FirstRun | None) -> list[SetupStep]:
    url, connects = visit.config.public_url.rstrip("/"), visit.may(Scope.ADMIN, None)
    running = SetupStep(
        title="Tidemark is running",
        text=f"Service and database answer at {url}. Version {visit.config.version}; data is kept over restarts.",
        done=True,
    )
    if first is None:
        connect = SetupStep(
            title="Connect a project",
            text="Register a repository; its history is read at once. A push webhook keeps it up to date.",
            done=False,
            command="" if connects else "tidemark project add team/name https://…",
            way=("Connect a repository", "/connect") if connects else None,
        )
        return [running, connect, worker_step(None, url), results_step(None)]
    way = ("What was found", link("/connect", project=first.project)) if visit.may(Scope.ADMIN, first.project) else None
    return [running, replace(project_step(first), way=way), worker_step(first, url), results_step(first)]


def project_step(first: FirstRun) -> SetupStep:
    if first.sync_error:
        why = visible(first.sync_error).rstrip(".")
        text = f"Its repository could not be read: {why}. It is retried automatically."
        return SetupStep(title=f"Project: {visible(first.project)}", text=text, done=False)
    if not first.commit_seen:
        return SetupStep(title=f"Project: {visible(first.project)}", text="Its history is being read.", done=False)
    skipped = f"{plural(first.so_far.skipped, 'commit')} {'touches' if first.so_far.skipped == 1 else 'touch'}"
    newest = f", the newest {first.so_far.newest_sha[:7]}" if first.so_far.newest_sha else ""
    text = f"{plural(first.so_far.commits, 'commit')} known{newest}."
    if first.so_far.manifest_error:
        text += f" Its tidemark.toml cannot be used: {visible(first.so_far.manifest_error)}"
    elif first.run_requested:
        text += f" {plural(first.so_far.requested, 'run')} requested; {skipped} nothing that is benchmarked."
    else:
        text += " No run is requested yet: a tidemark.toml in the repository says what to run."
    return SetupStep(title=f"Project connected: {visible(first.project)}", text=text, done=first.run_requested)


def worker_step(first: FirstRun | None, url: str) -> SetupStep:
    wanted = ", ".join(first.so_far.wanted_testbeds) if first is not None else ""
    if first is not None and first.worker_connected:
        text = f"{visible(first.worker or '')} takes the waiting runs{f' of {wanted}' if wanted else ''}."
        return SetupStep(title="A worker is there", text=text, done=True)
    return SetupStep(
        title="Start a worker" + (f" for {wanted}" if wanted else ""),
        text="On the machine that measures. It registers itself and takes the waiting runs; none is lost meanwhile.",
        done=False,
        command=f"export TIDEMARK_URL={url} TIDEMARK_TOKEN=tm_… TIDEMARK_REDIS_URL=redis://…\n"
        f"tidemark worker --testbed {wanted.split(', ')[0] or 'cpu'}",
    )


def results_step(first: FirstRun | None) -> SetupStep:
    text = "Cells fill in as runs finish. Judging starts when a series has a few runs; until then cells read 1/4, 2/4 …"
    if first is None:
        return SetupStep(title="First results", text=text, done=False)
    if first.so_far.failed and not first.done:
        why = visible(first.so_far.failed_error or "no reason was given")[:300]
        text = f"{plural(first.so_far.failed, 'run')} failed, the last: {why}. {text}"
    progress = first.so_far.progress
    total, done = progress.get("total"), progress.get("done")
    share = (
        round(100 * done / total)
        if isinstance(total, int | float) and isinstance(done, int | float) and total
        else None
    )
    running = first.so_far.running_id is not None
    left = numbers.rough_duration(progress.get("eta_s")) if isinstance(progress.get("eta_s"), int | float) else ""
    parts = [
        str(progress.get("note") or progress.get("step") or "measuring") if running else "",
        f"{share} %" if share is not None else "",
        f"{left} left" if left else "",
        f"{plural(first.so_far.waiting, 'run')} waiting" if first.so_far.waiting else "",
    ]
    return SetupStep(
        title="First results",
        text=text,
        done=first.done,
        progress=(share if share is not None else 5) if running else None,
        progress_text=", ".join(visible(part) for part in parts if part),
    )


def steps_html(visit: Visit, project: str | None, board: Board | None) -> Markup:
    first = overview.first_run(visit.c, project, now=visit.now) if project else None
    return rendered("steps.html", {"steps": in_turn(steps_of(visit, first))})


def headline_of(project: str | None, first: FirstRun | None) -> str:
    if project is None:
        return "Welcome. Four steps to the first row."
    if first is not None and first.done:
        return "The first result is in. It is not part of this view: it is on another branch or testbed."
    return "Nothing measured yet. Four steps to the first row."


def first_run_page(visit: Visit, project: str | None, board: Board | None) -> Response:
    """The steps; below them what is already known of the commits."""
    rows = [] if board is None else board.rows[:12]
    first = overview.first_run(visit.c, project, now=visit.now) if project else None
    return visit.page(
        "first_run.html",
        page="board",
        title="First run",
        description="Getting to the first result, step by step.",
        project=project,
        demo=project == DEMO,
        headline=headline_of(project, first),
        steps=rendered("steps.html", {"steps": in_turn(steps_of(visit, first))}),
        rows=[(row, set(row.cells.states())) for row in rows],
    )
