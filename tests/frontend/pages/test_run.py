"""The page of a run: its commit where the repository has it, the canary in the words of the pages of workers."""

from dataclasses import replace
from pathlib import Path
from subprocess import run
from typing import Any

import frontend_history as history
import pytest
from frontend_site import Site
from playwright.sync_api import expect

from frontend.pages.run import canary_says


@pytest.mark.parametrize(
    ("change", "noise", "words", "moved"),
    [
        (0.001, 0.001, "steady, +0.1 %", False),
        (-0.13, 0.01, "moved, −13 %", True),
        (-0.13, 0.04, "steady, −13 %", False),
        (-0.13, None, "−13 %, its noise is not known", False),
        (None, 0.01, "read once", False),
    ],
)
def test_a_canary_moved_only_past_its_known_noise(
    change: float | None, noise: float | None, words: str, moved: bool
) -> None:
    said, has_moved = canary_says(change, noise)
    assert (said.replace("\u202f", " "), has_moved) == (words, moved)


@pytest.mark.browser
def test_a_run_that_comes_before_the_repository_is_read_says_why_no_board_shows_it(
    own_site: Site, tmp_path: Path, visit: Any
) -> None:
    commits = history.make_repository(tmp_path / "early", 3)
    own_site.add_project("a/early", tmp_path / "early", commits)
    history.add_commit(tmp_path / "early", "Not fetched yet")
    head = run(["git", "-C", tmp_path / "early", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    newest = replace(commits[-1], index=3, sha=head.stdout.strip(), parent=commits[-1].sha)
    document = history.run_document("a/early", newest, "gpt")

    (warning,) = own_site.put(document)["warnings"]
    assert warning.startswith(f"main of the repository, as last read, does not have commit {newest.sha[:12]}: no board")
    assert own_site.put(document)["warnings"] == [warning]
    page = visit(own_site).open(f"/runs/{document['id']}")
    branch = page.locator("dl.facts div", has=page.locator("dt", has_text="Branch")).locator("dd")
    expect(branch).to_have_text("main which, as last read, does not have this commit: no board shows this run yet")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    own_site.sync("a/early")
    expect(branch).to_have_text("main")  # without anybody having asked for the page again
    assert own_site.put(document)["warnings"] == []
