"""pip, with one line of progress instead of hundreds or of silence: `python deploy/pip_with_progress.py install …`.

On a terminal the line is rewritten in place; elsewhere it is written every ten seconds. What pip itself says is shown
only when it fails. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time

EVERY_S = {True: 0.2, False: 10.0}
WORTH_SAYING = re.compile(
    r"^\s*(?P<what>Collecting|Processing|Downloading|Using cached|Building wheel for|Installing collected packages)"
    r"\s*:?\s*(?P<name>\S*)"
)


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    pip = subprocess.Popen(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    said = _lines(pip)
    everything: list[str] = []
    collected = 0
    now = "starting pip"
    on_terminal = sys.stdout.isatty()
    last_shown = began
    while True:
        try:
            line = said.get(timeout=EVERY_S[on_terminal])
        except queue.Empty:
            line = ""
        if line is None:
            break
        if line:
            everything.append(line)
            if (found := WORTH_SAYING.match(line)) is not None:
                collected += found["what"] in {"Collecting", "Processing"}
                now = _in_words(found["what"], found["name"])
        if time.monotonic() - last_shown >= EVERY_S[on_terminal]:
            last_shown = time.monotonic()
            _show(f"  {last_shown - began:4.0f} s  {collected} packages found  {now}", on_terminal)
    if on_terminal:
        _show("", on_terminal)
    status = pip.wait()
    if status != 0:
        print("".join(everything[-40:]), file=sys.stderr)
    return status


def _lines(pip: subprocess.Popen[str]) -> queue.Queue[str | None]:
    """What pip says, line by line; None when it has ended."""
    said: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert pip.stdout is not None
        for line in pip.stdout:
            said.put(line)
        said.put(None)

    threading.Thread(target=read, daemon=True).start()
    return said


def _in_words(what: str, name: str) -> str:
    if what == "Installing collected packages":
        return "installing them"
    return f"{what.lower()} {name.rsplit('/', 1)[-1].split('-cp', 1)[0][:60]}"


def _show(line: str, on_terminal: bool) -> None:
    print(f"\r\x1b[K{line}" if on_terminal else line, end="" if on_terminal else "\n", flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
