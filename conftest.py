"""Prints, after every test run, the list of what was not run, and why; in CI that list must be empty."""

import atexit
import gc
import os
from collections import Counter
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays until the end: the garbage collector is off meanwhile, and skips it later, also when
    pytest looks for garbage at last, five times. Then everything is taken apart, or extension modules complain of what
    is left."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(getattr(report, "wasxfail", "") or report.longrepr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was not run; `pytest_sessionfinish` has already turned it into a failure where TIDEMARK_CI is set."""
    missed = _not_run(terminalreporter)
    terminalreporter.section("what was not run")
    if not missed:
        terminalreporter.write_line("nothing: every collected test ran")
    for (where, reason), times in sorted(missed.items()):
        terminalreporter.write_line(f"{where} ({times}): {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and os.environ.get("TIDEMARK_CI") and session.exitstatus == 0 and _not_run(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _not_run(reporter: pytest.TerminalReporter) -> Counter[tuple[str, str]]:
    reports = [*reporter.stats.get("skipped", []), *reporter.stats.get("xfailed", [])]
    missed = Counter((report.nodeid.split("::")[0], _reason(report)) for report in reports)
    for item in reporter.stats.get("deselected", []):
        missed[item.nodeid.split("::")[0], "deselected on the command line"] += 1
    return missed
