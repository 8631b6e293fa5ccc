"""ARCHITECTURE.md tells the path of one result as it is: a delivery that opens a regression calls what it names."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.backend.api.conftest import BROKEN_AT, run_document

ROOT = Path(__file__).resolve().parents[2]
STEP = re.compile(r"`(backend/[\w./]+\.py)(?::(\w+))?`")
RUNS_UNTIL_CONFIRMED = BROKEN_AT + 3


def documented_steps() -> list[tuple[str, str]]:
    """(module, function or "") of each step, from the delivery to the board."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    path = text.partition("## The path of one result")[2].partition("\n\nThen all")[0]
    return list(dict.fromkeys(STEP.findall(path)))


@pytest.fixture
def called() -> Iterator[dict[tuple[str, str], None]]:
    """(file, function) of what the threads that start from now on call, in the order of their first calls."""
    seen: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen.setdefault((frame.f_code.co_filename, frame.f_code.co_name))

    threading.setprofile(note)
    try:
        yield seen
    finally:
        threading.setprofile(None)


def test_a_delivery_and_the_board_after_it_take_the_documented_path(
    called: dict[tuple[str, str], None], request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("live_server")  # its threads start here, after `called` began to look
    with server.client("worker") as worker:
        for position in range(RUNS_UNTIL_CONFIRMED):
            document = run_document(position)
            delivered = worker.put(f"/api/v1/runs/{document['id']}", json=document)
            assert delivered.status_code == 201, delivered.text
        assert delivered.json()["regressions"]
        assert worker.get("/api/v1/board", params={"project": "demo/tinygpt"}).status_code == 200
    ours = [(str(Path(file).relative_to(ROOT)), name) for file, name in tuple(called) if file.startswith(f"{ROOT}/")]
    steps = [step for step in documented_steps() if step[1]]
    assert [step for step in ours if step in steps] == steps
    modules = {module for module, name in ours if not name.startswith("<")}
    assert [module for module, name in documented_steps() if not name and module not in modules] == []
