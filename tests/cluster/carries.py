"""What one small machine carries, in two minutes: start of the command line and of all processes, their memory, results
while live pages are open, 500 idle pages, 200 webhooks at once.

    python -m tests.cluster.carries [--minutes N]

`--minutes 30` lets results come in for half an hour while live pages are open, and tells memory along the way. One API
process and PostgreSQL without a pool in between, on loopback. CPU seconds and memory hold on a busy machine as well;
what is said by the clock does not, and the load is printed beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from tests.cluster.drill import Deliveries
from tests.cluster.servers import COMMAND, PASSWORD, Cluster
from tests.conftest import scratch_directory
from tidemark.machine import ports
from tidemark.machine.datadir import DataDirectory
from tidemark.machine.processes import adopt_orphans

IDLE, LIVE, PUSHES = 500, 50, 200
PAGES_OF_AN_ADDRESS = 100
DELIVER_S, REST_S = 15.0, 15.0
MOMENTS = 6
"""At which memory is told while results come in for minutes."""
PATIENCE_S, SETTLES_S = 60, 5
STREAM = "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.carries", description=__doc__)
    parser.add_argument("--minutes", type=float, metavar="N", help="of results with live pages open")
    minutes: float | None = parser.parse_args().minutes
    adopt_orphans()
    say("`tidemark --help`", f"{min(help_cpu_s() for _ in range(3)):.2f} s of CPU")
    with scratch_directory() as directory:
        tell_start(directory)
    with scratch_directory() as directory:
        cluster = Cluster(directory, apis=1, beats=1)
        cluster.pgbouncer = None
        try:
            cluster.start()
            measure(cluster, DELIVER_S if minutes is None else 60 * minutes)
        finally:
            cluster.close()
    return 0


def say(what: str, figure: str) -> None:
    print(f"| {what} | {figure} | {os.getloadavg()[0]:.1f} |", flush=True)


def help_cpu_s() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tell_start(directory: Path) -> None:
    """`tidemark up` on a directory that is there already, until its first page; then the memory of its processes."""
    for start in ("new", "warm"):
        port = ports.private_port()
        command = [*COMMAND, "up", "--no-demo", "--data-dir", str(directory / "data"), "--port", str(port)]
        began = time.monotonic()
        service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until_first_page(f"http://127.0.0.1:{port}/")
            took_s = time.monotonic() - began
            everything = psutil.Process(service.pid).children(recursive=True)
            cpu_s = sum(map(cpu_of, [psutil.Process(service.pid), *everything]))
            say(f"`tidemark up`, {start}, to its first page", f"{took_s:.1f} s, {cpu_s:.1f} s of CPU")
            if start == "warm":
                time.sleep(SETTLES_S)
                running = DataDirectory(directory / "data").running()
                kinds = running.children if running is not None else {}
                parts = [f"{name} {memory_of(child.pid) / 2**20:.0f} MiB" for name, child in kinds.items()]
                say("memory of each, shared pages in parts", ", ".join(parts))
        finally:
            service.send_signal(signal.SIGINT)
            service.wait(60)


def until_first_page(url: str) -> None:
    for _ in range(PATIENCE_S * 20):
        try:
            if httpx.get(url, timeout=PATIENCE_S, trust_env=False).status_code < 400:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise RuntimeError(f"no page at {url} after {PATIENCE_S} s")


def memory_of(pid: int) -> int:
    """Of a process and its children; what several share counts in parts. Those that end meanwhile have none."""
    process, memory = psutil.Process(pid), 0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            memory += each.memory_full_info().pss
    return memory


def measure(cluster: Cluster, deliver_s: float) -> None:
    child = cluster.children["api-0"].process
    assert child is not None
    api = psutil.Process(child.pid)
    for pages, seconds in ((0, DELIVER_S), (LIVE, deliver_s)):
        opened = open_pages(cluster.api_ports[0], pages)
        results, cpu_s = delivered(cluster, api, seconds)
        for page in opened:
            page.close()
        figure = f"{results / seconds:.0f} runs/s, {1e3 * cpu_s / max(results, 1):.1f} ms of CPU of the API for each"
        say(f"results of 3 clients for {seconds:.0f} s, {pages} live pages open", figure)
    before = api.memory_info().rss
    opened = open_pages(cluster.api_ports[0], IDLE)
    used = cpu_of(api)
    cluster.keep_for(REST_S)
    grown, used = api.memory_info().rss - before, cpu_of(api) - used
    say(f"{len(opened)} idle pages", f"{grown / 2**20:.0f} MiB more, {100 * used / REST_S:.1f} % of a core")
    for page in opened:
        page.close()
    say(f"{PUSHES} webhooks at once, 20 at a time", pushes(cluster))
    connections = len(psutil.Process(cluster.children["primary"].process.pid).children())  # type: ignore[union-attr]
    say("at the end", f"API {api.memory_info().rss / 2**20:.0f} MiB, {connections} processes of PostgreSQL")


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def open_pages(port: int, count: int) -> list[socket.socket]:
    """So many event streams, from as many addresses as it takes; they are read, as a browser would."""
    opened = []
    for number in range(count):
        source = f"127.0.0.{2 + number // PAGES_OF_AN_ADDRESS}"
        page = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))
        page.sendall(STREAM.encode())
        if b" 200 " not in page.recv(4096).split(b"\r\n", 1)[0]:
            raise RuntimeError(f"page {number} was not opened")
        opened.append(page)
    if opened:
        threading.Thread(target=_read, args=(list(opened),), daemon=True).start()
    return opened


def _read(pages: list[socket.socket]) -> None:
    for page in pages:
        page.setblocking(False)
    while any(page.fileno() >= 0 for page in pages):
        for page in pages:
            try:
                page.recv(65536)
            except OSError:
                continue
        time.sleep(0.1)


def delivered(cluster: Cluster, api: psutil.Process, seconds: float) -> tuple[int, float]:
    """Results taken, and the CPU that the API spent on them and on its pages. Over minutes, memory is told as well."""
    url, prefix = f"http://127.0.0.1:{cluster.api_ports[0]}", uuid.uuid4().hex[:6].upper()
    deliveries = Deliveries(url, cluster.token, prefix=prefix, project=f"drill/{prefix}".lower())
    threads = deliveries.start()
    cluster.keep_for(3)
    before, used = len(deliveries.acknowledged), cpu_of(api)
    moments = 1 if seconds <= DELIVER_S else MOMENTS
    for moment in range(1, moments + 1):
        cluster.keep_for(seconds / moments)
        if moments > 1:
            say(f"memory after {moment * seconds / moments / 60:.1f} minutes of results", memory_of_servers(cluster))
    results, used = len(deliveries.acknowledged) - before, cpu_of(api) - used
    deliveries.stopping.set()
    for thread in threads:
        thread.join()
    return results, used


def memory_of_servers(cluster: Cluster) -> str:
    processes = {"API": cluster.children["api-0"].process, "PostgreSQL": cluster.children["primary"].process}
    return ", ".join(f"{name} {memory_of(each.pid) / 2**20:.0f} MiB" for name, each in processes.items() if each)


def pushes(cluster: Cluster) -> str:
    payload = json.dumps(
        {"ref": "refs/heads/main", "after": "a" * 40, "repository": {"full_name": "drill/p0", "clone_url": "x"}}
    ).encode()
    signature = "sha256=" + hmac.new(PASSWORD.encode(), payload, hashlib.sha256).hexdigest()

    def push(_: int) -> int:
        stated = {
            "X-GitHub-Event": "push", "X-GitHub-Delivery": str(uuid.uuid4()), "X-Hub-Signature-256": signature,
        }  # fmt: skip
        return client.post("/api/v1/webhooks/github", content=payload, headers=stated).status_code

    with httpx.Client(base_url=f"http://127.0.0.1:{cluster.api_ports[0]}", timeout=60, trust_env=False) as client:
        began = time.monotonic()
        with ThreadPoolExecutor(20) as pool:
            statuses = list(pool.map(push, range(PUSHES)))
        took_s = time.monotonic() - began
    taken = sum(status < 300 for status in statuses)
    return f"{taken} taken, all answered after {took_s:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
