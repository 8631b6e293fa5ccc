"""Make sure a Chromium is there for the browser tests: on PATH, else from Debian where this user may install it, else
Playwright's own download. Prints one line; never fails: tests that find no browser are listed as not run."""

import os
import shutil
import subprocess
import sys

from frontend.screenshots import chromium_path

# The first draws the same pages in two thirds of the time.
PACKAGES = ("chromium-headless-shell", "chromium")


def chromium() -> str | None:
    """The path of a Chromium that the browser tests can drive, or None."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = chromium_path(playwright)
    return None if path is None else str(path)


def _run(*command: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=900).returncode == 0


def provide() -> str | None:
    """Find a Chromium or install one; returns its path, or None when there is none to be had."""
    path = chromium()
    if path is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing a Chromium of Debian's for the browser tests", flush=True)
        _run("apt-get", "update", "-qq") and any(_run("apt-get", "install", "-y", "-qq", each) for each in PACKAGES)
        path = chromium()
    if path is None:
        print("downloading Playwright's chromium for the browser tests", flush=True)
        _run(sys.executable, "-m", "playwright", "install", "chromium")
        path = chromium()
    return path


if __name__ == "__main__":
    print(f"browser for the tests: {provide() or 'none could be found or installed; browser tests will not run'}")
