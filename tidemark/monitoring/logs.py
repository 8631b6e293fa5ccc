"""What a process logs: one line per event on stdout, for people or, if TIDEMARK_LOG_FORMAT says so, as JSON.

A line of JSON has `time`, `level`, `logger` and `event`. Lines logged while a request is answered or a run is
executed also have `request_id` and `run_id`, so that one search finds everything that belongs together.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import orjson
import structlog

TALKATIVE = ("httpx", "alembic", "celery.worker.strategy", "celery.app.trace")

Format = Literal["text", "json"]


def log_to_stdout(how: Format) -> None:
    """Every logger of this process prints there, from INFO up; the supervisor or the container stores it."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(json_lines() if how == "json" else plain_lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


def plain_lines() -> logging.Formatter:
    return logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")


def json_lines() -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            _without_colours,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(serializer=_as_text),
        ],
    )


def _without_colours(logger: object, method: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """Uvicorn says some things twice, the second time for a terminal."""
    del logger, method
    line.pop("color_message", None)
    return line


def _as_text(line: object, default: object = None) -> str:
    del default
    return orjson.dumps(line, default=str).decode()
