"""Is it alive, can it work, how much does it do."""

from typing import Any

from fastapi import Request, Response
from sqlalchemy.exc import OperationalError

from backend.api.admission import STUCK_S
from backend.api.answers import ReadinessAnswer
from backend.api.dependencies import Config, Reader, Transaction
from backend.api.responses import Json
from backend.routing import Router
from backend.services.base import readiness
from backend.services.base.errors import Unavailable

router = Router(tags=["service"])


@router.get("/healthz", response_model=dict[str, str])
def healthz(request: Request, config: Config) -> Any:
    """The process answers, has a thread and a database connection for a request, and completes requests. /readyz asks
    whether the database itself is available.
    """
    if stuck := request.app.state.lanes.stuck:
        raise Unavailable(f"no request of {' and '.join(stuck)} was done for {STUCK_S:.0f} s")
    try:
        with request.app.state.engine.connect():
            pass
    except OperationalError:
        pass  # the connection was ours to open; that nobody answers is no fault of this process
    return Json({"status": "ok", "version": config.version})


@router.get(
    "/readyz",
    response_model=ReadinessAnswer,
    responses={503: {"model": ReadinessAnswer, "description": "Something that is needed is missing"}},
)
def readyz(request: Request, config: Config) -> Any:
    """Database, schema and broker answer."""
    state = readiness.check(request.app.state.reads, config)
    return Json(state, status_code=200 if state.ready else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' format"}},
)
def metrics(request: Request, c: Transaction, config: Config, _: Reader) -> Any:
    """Metrics for Prometheus, of all processes that answer at this address."""
    page = request.app.state.metrics.page(c, live_within_s=config.worker_live_s)
    return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")
