"""Pictures of a running service for the documentation: `python -m frontend.screenshots --url … --out docs/images`.

Needs the development extras (Playwright) and a Chromium; what is pictured is whatever the service shows.
"""

import argparse
import html
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright, StorageState

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
# The shell draws the same pages without a browser's windows, in two thirds of the time.
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
THEMES = ("light", "dark")
WIDE, NARROW = (1440, 900), (420, 900)
SETTLE_MS = 900
DRAWN_WITHIN_MS = 20_000

# name → (path, or how to find it from the page before, width and height)
SHOTS: dict[str, tuple[str, tuple[int, int]]] = {
    "board": ("/board", WIDE),
    "board-details": ("/board", WIDE),
    "board-narrow": ("/board", NARROW),
    "regressions": ("/regressions", WIDE),
    "regression": ("first:/regressions:/regressions/\\d+", WIDE),
    "overview": ("/", WIDE),
    "overview-narrow": ("/", NARROW),
    "suite": ('first:/:/suites/[^"?#]+', WIDE),
    "suite-narrow": ('first:/:/suites/[^"?#]+', NARROW),
    "series": ("first:/series:/series/\\d+", WIDE),
    "regression-narrow": ("first:/regressions:/regressions/\\d+", NARROW),
    "run": ('first:/workers:/runs/[^"?#]+', WIDE),
    "compare": ('first:/regressions:/compare\\?[^"]*head=[^"]+', WIDE),
    "workers": ("/workers", WIDE),
    "rule": ("/rule", WIDE),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m frontend.screenshots", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the running service (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder for the pictures (%(default)s)")
    parser.add_argument(
        "--sign-in", metavar="LINK", help="a one-time sign-in link, to picture what a signed-in person sees"
    )
    parser.add_argument("--only", action="append", choices=sorted(SHOTS), help="only this page; may be repeated")
    parser.add_argument("--theme", action="append", choices=THEMES, help="only this theme; may be repeated")
    asked = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    asked.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        if browser is None:
            print("no Chromium on PATH; tests/provide_chromium.py installs one", file=sys.stderr)
            return 1
        state = signed_in(browser, asked.sign_in) if asked.sign_in else None
        for theme in asked.theme or THEMES:
            shoot(browser, asked.url.rstrip("/"), asked.out, theme, asked.only or list(SHOTS), state)
        browser.close()
    return 0


def chromium_path(playwright: "Playwright") -> Path | None:
    """A Chromium that Playwright can drive: one on PATH, else the one that it downloaded; None where there is none."""
    path = Path(next(filter(None, map(shutil.which, CHROMIUM_NAMES)), playwright.chromium.executable_path))
    return path if path.exists() else None


def launch_chromium(playwright: "Playwright") -> "Browser | None":
    """A browser without windows; None where there is no Chromium."""
    path = chromium_path(playwright)
    return None if path is None else playwright.chromium.launch(executable_path=path, args=FLAGS)


def signed_in(browser: "Browser", link: str) -> "StorageState":
    """The session that the link opens; it works once, and both themes use it."""
    context = browser.new_context()
    context.new_page().goto(link)
    state = context.storage_state()
    context.close()
    return state


def shoot(browser: "Browser", url: str, out: Path, theme: str, names: list[str], state: "StorageState | None") -> None:
    """Every page in one theme."""
    scheme: Literal["light", "dark"] = "dark" if theme == "dark" else "light"
    context = browser.new_context(storage_state=state, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    for name in names:
        where, size = SHOTS[name]
        path = find(page, url, where) if where.startswith("first:") else where
        if path is None:
            print(f"{name}: nothing to picture yet", file=sys.stderr)
            continue
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.goto(f"{url}{path}{'&' if '?' in path else '?'}theme={theme}")
        page.wait_for_timeout(SETTLE_MS)
        draw_charts(page)
        if name == "board-details" and page.locator("td.vc.r").count():
            page.locator("td.vc.r").first.hover()
            page.wait_for_timeout(SETTLE_MS)
        file = out / f"{name}{'-dark' if theme == 'dark' else ''}.png"
        page.screenshot(path=file, full_page=not name.startswith("board-"))
        print(file)
    context.close()


def draw_charts(page: "Page") -> None:
    """Charts are drawn when a reader comes near them."""
    for chart in page.locator("[data-figure]").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".main-svg").first.wait_for(timeout=DRAWN_WITHIN_MS)
    page.evaluate("scrollTo(0, 0)")


def find(page: "Page", url: str, where: str) -> str | None:
    """The first address on a page that looks like the one wanted."""
    _, start, pattern = where.split(":", 2)
    for query in ("", "?state=closed"):
        page.goto(f"{url}{start}{query}")
        found = re.search(f'href="({pattern})', page.content())
        if found:
            return html.unescape(found[1])
    return None


if __name__ == "__main__":
    sys.exit(main())
