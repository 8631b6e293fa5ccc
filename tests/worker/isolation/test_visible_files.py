"""What a run sees of the file system: what it needs, and nothing else of what is closed or shared."""

from __future__ import annotations

from pathlib import Path

from worker.isolation.processes import RunUser
from worker.isolation.visible_files import first_closed, hide_neighbours, view_for

SOMEONE = RunUser(name="someone", uid=58_998, gid=58_998)


def test_an_open_way_needs_no_view(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert view_for(SOMEONE, {Path("/usr/bin"): False}) == {}
    view = view_for(SOMEONE, {tmp_path / "inside": True})
    assert list(view.values()) == [{str(tmp_path / "inside"): True}]


def test_the_topmost_directory_that_a_user_may_not_enter_is_the_closed_one(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "closed too"
    inner.mkdir(parents=True)
    for directory in (tmp_path / "closed", inner):
        directory.chmod(0o700)
    closed = first_closed(inner / "file", SOMEONE)
    assert closed is not None and inner.is_relative_to(closed)
    assert first_closed(Path("/usr/bin/env"), SOMEONE) is None


def test_what_is_needed_in_a_shared_place_is_shown_in_an_empty_one() -> None:
    assert view_for(SOMEONE, {}, scratch=("/tmp",)) == {"/tmp": {}}
    needed = Path("/tmp/of-a-run")
    assert view_for(SOMEONE, {needed: True}, scratch=("/tmp",)) == {"/tmp": {str(needed): True}}


def test_a_run_sees_its_own_directory_and_none_beside_it(tmp_path: Path) -> None:
    own = tmp_path / "base"
    view: dict[str, dict[str, bool]] = {}
    hide_neighbours(view, [own])
    assert view == {str(tmp_path): {str(own): True}}
