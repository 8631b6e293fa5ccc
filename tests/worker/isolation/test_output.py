"""Lines of untrusted output: bounded, clean, and never a burden to whoever prints them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from worker.client import ApiUnreachable
from worker.events import EventSender
from worker.isolation.output import MAX_LINE_BYTES, Lines, LogFile, OutputStream, SuiteProgress, clean, parse_progress


def lines_of(*chunks: bytes) -> list[str]:
    lines = Lines()
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    return [*found, *lines.finish()]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"on", b"e\r", b"\ntw", b"o"], ["one", "two"]),
        ([b" 10%\r 20%\r100%\n"], [" 10%", " 20%", "100%"]),
        ([b"\n\n\r\n"], []),
        ([b"caf\xc3", b"\xa9 \xff\n"], ["café \ufffd"]),
        ([b"\x1b[31mred\x1b[0m\x00\x07 \x1b]0;title\x07end\n"], ["red end"]),
        ("user\u202eegnahc\n".encode(), ["useregnahc"]),
        ([b"a\tb\n"], ["a\tb"]),
    ],
)
def test_bytes_become_clean_lines(chunks: list[bytes] | bytes, expected: list[str]) -> None:
    assert lines_of(*([chunks] if isinstance(chunks, bytes) else chunks)) == expected


def test_an_endless_line_is_cut_and_says_so() -> None:
    pieces = [b"x" * 3000] * 10 + [b"\nnext"]
    line, following = lines_of(*pieces)
    assert line == "x" * MAX_LINE_BYTES + f" … [{30_000 - MAX_LINE_BYTES} more bytes cut]"
    assert following == "next"
    assert lines_of(b"a\n" + b"y" * 9000 + b"\nb\n")[1].endswith("more bytes cut]")


def test_bad_bytes_do_not_make_a_line_longer_than_the_service_takes() -> None:
    (line,) = lines_of(b"\xff" * 10_000)
    assert len(line.encode()) < 4096


def test_progress_is_read_and_what_is_malformed_is_not() -> None:
    stated = parse_progress('::tidemark-progress {"done": 2, "total": 4, "note": "moe", "eta_s": 1.5}')
    assert stated == SuiteProgress(done=2, total=4, note="moe", eta_s=1.5)
    assert parse_progress('::tidemark-progress {"done": 1}') == SuiteProgress(done=1, total=None, note="", eta_s=None)
    for malformed in ("{}", "[]", "{", '{"done": "1"}', '{"done": true}', '{"done": -1}', '{"done": 1e99}', "[" * 9999):
        assert parse_progress(f"::tidemark-progress {malformed}") is None
    assert parse_progress("done: 1") is None


def test_cleaning_leaves_ordinary_text_alone() -> None:
    assert clean("Größe 5 µs → 日本") == "Größe 5 µs → 日本"


def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = LogFile(limit_characters=1000)
    for number in range(1000):
        log.add("stdout", f"line {number}")
    log.write(tmp_path / "log")
    kept = (tmp_path / "log").read_text().splitlines()
    assert kept[0] == "stdout: line 0"
    assert kept[-1] == "stdout: line 999"
    assert any(line.endswith("lines left out …") for line in kept)
    assert sum(map(len, kept)) < 1200


class Collector:
    """Takes batches, or is away."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.away = False
        self.blocked = threading.Event()
        self.blocked.set()

    def __call__(self, events: Any) -> None:
        self.blocked.wait()
        if self.away:
            raise ApiUnreachable("away")
        self.batches.append(list(events))

    def lines(self) -> list[str]:
        return [line for batch in self.batches for e in batch if e["kind"] == "log" for line in e["detail"]["lines"]]


def test_reporting_never_waits_for_the_service() -> None:
    collector = Collector()
    collector.blocked.clear()
    with EventSender(collector, 0.01) as stream:
        for number in range(10_000):
            stream.line(OutputStream.STDOUT, f"line {number}")
        collector.blocked.set()
    lines = collector.lines()
    assert lines[-1] == "line 9999"
    assert any("lines left out here" in line for line in lines)
    assert all(len(e["detail"]["lines"]) <= 200 for batch in collector.batches for e in batch if e["kind"] == "log")


def test_what_was_said_while_the_service_was_away_is_told_later() -> None:
    collector = Collector()
    collector.away = True
    stream = EventSender(collector, 60.0)
    stream.state("checkout")
    stream.line(OutputStream.STDERR, "first")
    stream.progress(SuiteProgress(done=1, total=2, note="", eta_s=None))
    stream._flush()
    collector.away = False
    stream.line(OutputStream.STDERR, "second")
    stream.progress(SuiteProgress(done=2, total=2, note="", eta_s=None))
    with stream:
        pass
    (batch,) = collector.batches
    assert [event["kind"] for event in batch] == ["state", "log", "progress"]
    assert collector.lines() == ["first", "second"]
    assert batch[-1]["detail"]["done"] == 2


def test_alternating_streams_stay_in_order_and_within_a_batch() -> None:
    collector = Collector()
    with EventSender(collector, 60.0) as stream:
        for number in range(190):
            stream.line(OutputStream.STDOUT if number % 2 else OutputStream.STDERR, str(number))
    assert collector.lines() == [str(number) for number in range(190)]
    assert all(len(batch) <= 200 for batch in collector.batches)
