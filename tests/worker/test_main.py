"""A worker as a whole: a real process between a real Valkey and a real HTTP service, stopped, killed and left alone."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.waiting import until

RESULT = """
import json, os
with open(os.environ["TIDEMARK_RUN_JSON"], "w") as file:
    json.dump({"schema": "tidemark.run/1", "status": "ok", "results": []}, file)
"""
WAIT = "import os, time\n{first}\nopen({pid!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.fixture
def request_run(service: Any, repository: Any) -> Callable[..., str]:
    def request(program: str, **other: Any) -> str:
        commit = repository.commit({"bench.py": program})
        run_id: str = service.request(repository, commit, {"command": f"{sys.executable} bench.py"}, **other)
        return run_id

    return request


@pytest.fixture
def hanging(request_run: Callable[..., str], tmp_path: Path) -> tuple[str, Callable[[], int]]:
    """A run that never ends and does not heed SIGTERM, and the process id of its command once it runs."""
    place = tmp_path / "command.pid"
    run_id = request_run(WAIT.format(pid=str(place), first=DEAF))
    return run_id, lambda: int(until(lambda: place.exists() and place.read_text()))


def test_a_worker_takes_a_run_from_its_queue_and_delivers_it(
    start_worker: Any, service: Any, nudge: Any, request_run: Any
) -> None:
    worker = start_worker()
    first, second = request_run(RESULT), request_run("raise SystemExit(9)")
    for run_id in (first, second, first, "no-such-run", "../../workers"):
        nudge(run_id)
    until(lambda: len(service.runs) == 2 and len(service.leases) == 5)
    assert service.run(first)["status"] == "ok"
    assert "exit code 9" in service.run(second)["error"]
    hello = service.hellos[0]
    assert hello["starting"] is True
    assert not any(later["starting"] for later in service.hellos[1:])
    assert hello["capabilities"]["cpu_count"] == os.cpu_count()
    assert hello["capabilities"]["listens_where_told"] is True
    assert service.leases[0]["capabilities"]["listens_where_told"] is False, "this service has told of no queue"
    assert hello["capabilities"]["spool"] == {"waiting": 0, "waiting_bytes": 0, "set_aside": 0}
    worker.process.terminate()
    assert worker.wait() == 0


def test_a_stopped_worker_hands_its_run_back_and_leaves_no_process(
    start_worker: Any, service: Any, nudge: Any, hanging: Any
) -> None:
    worker = start_worker()
    run_id, command = hanging
    nudge(run_id)
    pid = command()
    # A terminal's Ctrl-C reaches the worker and its supervisor, which then sends SIGTERM: that is one wish.
    worker.process.send_signal(signal.SIGINT)
    worker.process.send_signal(signal.SIGTERM)
    asked_at = time.monotonic()
    until(lambda: service.releases)
    assert time.monotonic() - asked_at < 20
    assert service.releases == [(run_id, "worker host-1 was stopped")]
    assert worker.wait() == 0
    assert not psutil.pid_exists(pid)
    assert run_id not in service.runs


def test_an_idle_worker_stops_when_asked(start_worker: Any, service: Any) -> None:
    worker = start_worker()
    until(lambda: "waiting for runs" in worker.log)
    time.sleep(0.5)
    worker.process.send_signal(signal.SIGINT)
    assert worker.wait(20.0) == 0


def test_a_second_signal_ends_the_worker_at_once_and_its_run_with_it(
    start_worker: Any, service: Any, nudge: Any, hanging: Any
) -> None:
    worker = start_worker(stop_grace_s=60.0)
    run_id, command = hanging
    nudge(run_id)
    pid = command()
    worker.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait(20.0) == 1
    until(lambda: not psutil.pid_exists(pid))


def test_a_cancelled_run_is_stopped_and_given_back_without_a_result(
    start_worker: Any, service: Any, nudge: Any, hanging: Any
) -> None:
    start_worker()
    run_id, command = hanging
    nudge(run_id)
    pid = command()
    service.cancel = True
    until(lambda: service.releases == [(run_id, "cancelled")])
    assert not psutil.pid_exists(pid)
    assert service.runs == {}


def test_a_lost_lease_stops_the_run_and_discards_its_result(
    start_worker: Any, service: Any, nudge: Any, hanging: Any, request_run: Any
) -> None:
    worker = start_worker()
    run_id, command = hanging
    nudge(run_id)
    pid = command()
    service.lease_lost = True
    until(lambda: not psutil.pid_exists(pid))
    until(lambda: "its lease was lost" in worker.log)
    assert (service.runs, service.releases) == ({}, [])
    service.lease_lost = False
    nudge(another := request_run(RESULT))
    until(lambda: another in service.runs)


def test_a_result_waits_in_the_spool_while_the_api_is_away(
    start_worker: Any, service: Any, nudge: Any, request_run: Any, tmp_path: Path, config: Any
) -> None:
    worker = start_worker(delivery_wait_s=0.5)
    go_on = tmp_path / "go-on"
    run_id = request_run(f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.05)\n" + RESULT)
    nudge(run_id)
    until(lambda: "execute" in service.steps())
    service.stop()
    go_on.touch()
    until(lambda: "waits in the spool" in worker.log)
    assert len(list(config.spool_dir.glob(f"{run_id}*"))) == 1
    service.start()
    until(lambda: run_id in service.runs)
    until(lambda: not list(config.spool_dir.glob(f"{run_id}*")))
    until(lambda: (run_id, "worker.log.txt") not in service.artifacts)


def test_a_result_in_the_spool_survives_kill_9_and_is_delivered_at_the_next_start(
    start_worker: Any, service: Any, nudge: Any, request_run: Any, config: Any
) -> None:
    worker = start_worker()
    run_id = request_run(RESULT)
    service.refuse_puts = [503] * 1000
    nudge(run_id)
    until(lambda: service.puts >= 1 and list(config.spool_dir.glob(f"{run_id}*")))
    worker.process.kill()
    worker.process.wait()
    assert run_id not in service.runs
    service.refuse_puts = []
    service.hellos.clear()
    order: list[str] = []
    take, hello = service.take_run, service.hello
    service.take_run = lambda *told: (order.append("run"), take(*told))[1]
    service.hello = lambda *told: (order.append("hello"), hello(*told))[1]
    start_worker()
    until(lambda: run_id in service.runs and service.hellos)
    assert order[:2] == ["run", "hello"]


def test_a_killed_worker_leaves_no_benchmark_and_its_next_start_clears_up(
    start_worker: Any, service: Any, nudge: Any, hanging: Any, config: Any
) -> None:
    worker = start_worker()
    run_id, command = hanging
    nudge(run_id)
    pid = command()
    worker.process.kill()
    worker.process.wait()
    until(lambda: not psutil.pid_exists(pid))
    assert list(config.runs_dir.iterdir())
    again = start_worker()
    until(lambda: "waiting for runs" in again.log)
    assert not list(config.runs_dir.iterdir())
    assert "cleared 0 processes and 1 directories" in again.log


def test_a_worker_outlives_a_flushed_broker(
    start_worker: Any, service: Any, nudge: Any, request_run: Any, broker: str
) -> None:
    import redis

    start_worker()
    slow = request_run("import time; time.sleep(0.5)\n" + RESULT)
    nudge(slow)
    until(lambda: "execute" in service.steps())
    redis.Redis.from_url(broker).flushall()
    until(lambda: slow in service.runs)
    nudge(after := request_run(RESULT))
    until(lambda: after in service.runs, limit_s=180)


def test_a_worker_outlives_a_killed_broker(
    start_worker: Any, service: Any, nudge: Any, request_run: Any, own_valkey: Any
) -> None:
    worker = start_worker(redis_url=own_valkey.url)
    slow = request_run("import time; time.sleep(1)\n" + RESULT)
    nudge(slow, own_valkey.url)
    until(lambda: "execute" in service.steps())
    own_valkey.kill()
    until(lambda: slow in service.runs)
    own_valkey.start()
    nudge(after := request_run(RESULT), own_valkey.url)
    until(lambda: after in service.runs, limit_s=180)
    own_valkey.kill()
    worker.process.terminate()
    assert worker.wait() == 0


def test_two_workers_of_one_name_are_refused(start_worker: Any, service: Any) -> None:
    first = start_worker()
    until(lambda: service.hellos)
    second = start_worker()
    assert second.wait() == 78
    assert "another worker of the name 'host-1' is running" in second.log
    assert first.process.poll() is None


def test_a_wrong_token_and_a_refused_version_end_the_worker_with_a_reason(start_worker: Any, service: Any) -> None:
    wrong = start_worker(api_token="tm_wrong", name="host-2")
    service.refuse_hellos = 409
    refused = start_worker(name="host-3")
    assert (wrong.wait(), refused.wait()) == (78, 78)
    assert "401: this token is not known" in wrong.log
    assert "too new for this service" in refused.log


def test_a_data_directory_that_cannot_be_used_ends_the_worker_with_a_reason(start_worker: Any, tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    worker = start_worker(data_dir=str(tmp_path / "a-file" / "below"))
    assert worker.wait() == 78
    assert "worker host-1 cannot work: [Errno 20] Not a directory" in worker.log


def test_a_worker_waits_for_an_api_that_is_not_up_yet(start_worker: Any, service: Any) -> None:
    service.stop()
    worker = start_worker()
    until(lambda: "does not answer yet" in worker.log)
    service.start()
    until(lambda: service.hellos)


def test_a_paused_worker_takes_no_run_and_a_drained_one_leaves(
    start_worker: Any, service: Any, nudge: Any, request_run: Any
) -> None:
    service.worker_state = "pause"
    worker = start_worker()
    until(lambda: "waiting for runs" in worker.log)
    nudge(run_id := request_run(RESULT))
    time.sleep(0.5)
    assert service.leases == []
    service.worker_state = "ok"
    until(lambda: "to be: ok" in worker.log)
    nudge(run_id)
    until(lambda: run_id in service.runs)
    service.worker_state = "drain"
    assert worker.wait() == 0
