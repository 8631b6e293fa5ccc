"""The page of a run: its commit where the repository has it, the canary in the words of the pages of workers."""

import re
from dataclasses import replace
from pathlib import Path
from subprocess import run

import frontend_history as history
import httpx
import pytest
from frontend_site import Site

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


def test_a_run_that_comes_before_the_repository_is_read_says_why_no_board_shows_it(
    own_site: Site, tmp_path: Path
) -> None:
    commits = history.make_repository(tmp_path / "early", 3)
    own_site.add_project("a/early", tmp_path / "early", commits)
    history.add_commit(tmp_path / "early", "Not fetched yet")
    head = run(["git", "-C", tmp_path / "early", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    newest = replace(commits[-1], index=3, sha=head.stdout.strip(), parent=commits[-1].sha)
    document = history.run_document("a/early", newest, "gpt")

    def branch() -> str:
        page = httpx.get(f"{own_site.url}/runs/{document['id']}", headers={"Accept": "text/html"}).text
        found = re.search(r"<dt>Branch</dt><dd>(.*?)</dd>", page)
        assert found is not None
        return found[1]

    (warning,) = own_site.put(document)["warnings"]
    assert warning.startswith(f"main of the repository, as last read, does not have commit {newest.sha[:12]}: no board")
    assert own_site.put(document)["warnings"] == [warning]
    assert branch().startswith("main") and "does not have this commit: no board shows this run" in branch()
    own_site.sync("a/early")
    assert own_site.put(document)["warnings"] == []
    assert branch() == "main"
