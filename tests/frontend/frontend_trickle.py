"""A slow line between the browser and a site: pages arrive in pieces, and each piece is painted before the next comes.

Where a page moves while it is being read, it does so between two pieces; on a fast line that depends on chance.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import httpx
from playwright.sync_api import Page

PATIENCE_S = 20
TOP = 120  # tags of a page's bar and controls: half of all cuts are there
OF_THE_LINE = ("content-length", "transfer-encoding", "connection", "date", "server")
MARK = b"<!--piece %d-->"
# Marks would be text inside these, and are no children of an attribute.
RAW = re.compile(rb"<(script|style|title|textarea|noscript|select)\b.*?</\1>|<!--.*?-->", re.S)
TAG = re.compile(rb"</?[a-zA-Z][^>]*>", re.S)

WATCH_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) for (const source of entry.sources)
    window.shifts.push(`${source.node?.outerHTML?.slice(0, 120) || source.node?.textContent || source.node} ` +
      `${JSON.stringify(source.previousRect)} → ${JSON.stringify(source.currentRect)}`);
}).observe({ type: "layout-shift", buffered: true });
"""
PAINTED = """([piece, unpainted_ms]) => new Promise((done) => {
  const name = `piece ${piece}`;
  const arrived = () => {
    const walk = document.createTreeWalker(document, NodeFilter.SHOW_COMMENT);
    while (walk.nextNode()) if (walk.currentNode.data === name) return true;
    return false;
  };
  // A page that waits with its first paint has no frames yet: then a moment has to do.
  const painted = () => {
    requestAnimationFrame(() => requestAnimationFrame(() => done()));
    if (performance.getEntriesByType("paint").length === 0) setTimeout(done, unpainted_ms);
  };
  const end = performance.now() + 5000;
  const look = () => (arrived() || performance.now() > end ? painted() : setTimeout(look, 4));
  look();
})"""


def ends_of_tags(html: bytes) -> list[int]:
    """Where a page can be cut in two: after each tag of its body."""
    raw = [match.span() for match in RAW.finditer(html)]
    start = html.index(b"<body")
    ends, current = [], 0
    for tag in TAG.finditer(html, start):
        while current < len(raw) and raw[current][1] <= tag.start():
            current += 1
        inside = current < len(raw) and raw[current][0] <= tag.start()
        if not inside and tag.end() < len(html):
            ends.append(tag.end())
    return ends


def spread(places: Sequence[int], wanted: int) -> list[int]:
    """At most that many of them, evenly."""
    if len(places) <= wanted:
        return list(places)
    return [places[round(number * (len(places) - 1) / (wanted - 1))] for number in range(wanted)]


@dataclass(slots=True)
class Slow:
    """The site behind a slow line. `open` shows a page piece by piece and tells how often it was cut."""

    url: str
    cuts: int
    without: bytes = b""
    _pieces: int = 0
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _ready: threading.Event = field(default_factory=threading.Event)
    stopped: bool = False

    def pieces_of(self, html: bytes) -> list[bytes]:
        """The page, each piece but the last with a mark at its end by which the browser knows that it is there."""
        html = html.replace(self.without, b"")
        places = ends_of_tags(html)
        top, rest = places[:TOP], places[TOP:]
        edges = [0, *spread(top, self.cuts - self.cuts // 2), *spread(rest, self.cuts // 2), len(html)]
        pieces = [html[start:end] for start, end in pairwise(edges)]
        return [piece + MARK % number for number, piece in enumerate(pieces[:-1])] + pieces[-1:]

    def announce(self, pieces: int) -> None:
        self._pieces = pieces
        self._ready.set()

    def wait(self) -> None:
        self._go.acquire(timeout=PATIENCE_S)

    def open(self, page: Page, path: str, unpainted_ms: int = 30) -> int:
        """Every piece is painted before the next is sent. Returns the number of pieces.

        A page that holds back its first paint tells nobody when; so long is waited for it after each piece."""
        self._ready.clear()
        self._go = threading.Semaphore(0)
        page.goto(self.url + path, wait_until="commit")
        assert self._ready.wait(PATIENCE_S), f"{path} is no page"
        for piece in range(self._pieces - 1):
            page.evaluate(PAINTED, [piece, unpainted_ms])
            self._go.release()
        page.wait_for_load_state("load")
        return self._pieces


class Line(BaseHTTPRequestHandler):
    """Passes on what the site answers; a page that someone went to is sent in pieces."""

    protocol_version = "HTTP/1.1"
    server: Bridge

    def do_GET(self) -> None:
        asked = {name: self.headers[name] for name in ("Accept", "Cookie") if name in self.headers}
        asked["Accept-Encoding"] = "identity"
        with self.server.client.stream("GET", self.server.upstream + self.path, headers=asked) as answer:
            self.send_response(answer.status_code)
            for name, value in answer.headers.multi_items():
                if name not in OF_THE_LINE:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._pass_on(answer)
            self.wfile.write(b"0\r\n\r\n")

    def _pass_on(self, answer: httpx.Response) -> None:
        slow = self.server.slow
        navigated = self.headers.get("Sec-Fetch-Mode") == "navigate"
        if navigated and answer.headers.get("content-type", "").startswith("text/html"):
            pieces = slow.pieces_of(answer.read())
            slow.announce(len(pieces))
            for piece in pieces:
                self._send(piece)
                if piece is not pieces[-1]:
                    slow.wait()
            return
        for piece in answer.iter_raw():
            if slow.stopped:
                break
            self._send(piece)

    def _send(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(OSError, httpx.HTTPError):  # the browser went to another page, or the site is gone
            super().handle()


class Bridge(ThreadingHTTPServer):
    """The near end of the line."""

    daemon_threads = True

    def __init__(self, upstream: str, slow: Slow, client: httpx.Client) -> None:
        super().__init__(("127.0.0.1", 0), Line)
        self.upstream, self.slow, self.client = upstream, slow, client


@contextmanager
def slow_line(upstream: str, cuts: int, without: bytes = b"") -> Iterator[Slow]:
    """`upstream` behind a slow line, on a port of its own; pages come in that many pieces, less some of their text."""
    slow = Slow("", cuts, without)
    with httpx.Client(timeout=PATIENCE_S) as client:
        server = Bridge(upstream, slow, client)
        slow.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield slow
        finally:
            slow.stopped = True
            server.shutdown()
            server.server_close()
