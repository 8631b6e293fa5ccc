"""What a run takes on disk, as the worker sees it."""

from __future__ import annotations

from pathlib import Path

from tests.waiting import until
from worker.isolation.disk import DiskWatch, taken_bytes


def test_files_that_were_removed_and_are_still_open_end_it_when_the_disk_runs_out(tmp_path: Path) -> None:
    with DiskWatch([tmp_path], 1 << 60, least_free_bytes=1 << 60) as watch:
        assert "were left on this worker's disk" in until(watch.trouble)


def test_what_is_only_said_to_be_large_takes_nothing_and_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    (elsewhere / "large").write_bytes(b"x" * 5_000_000)
    run.mkdir()
    (run / "sparse").open("wb").truncate(1 << 40)
    (run / "link").symlink_to(elsewhere)
    assert taken_bytes([run]) < 1_000_000 < taken_bytes([elsewhere])
