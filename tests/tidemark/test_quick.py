"""The garbage collector seldom looks while a command runs, and not at all when it ends."""

from __future__ import annotations

import subprocess
import sys

from helpers_tidemark import ROOT

STAYS = """
import gc
usual = gc.get_threshold()
from tidemark.quick import spare_it_no_longer, spare_the_collector
spare_the_collector()
spare_it_no_longer()
print(gc.isenabled(), gc.get_threshold() == usual, gc.get_freeze_count() > 1000)
"""
CODE = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 1000))  # runs last, for it was registered first
from tidemark.quick import spare_the_collector
spare_the_collector()
print(gc.isenabled(), gc.get_threshold()[0] > 10_000, gc.get_freeze_count() == 0)
"""


def test_it_still_collects_but_seldom_and_leaves_everything_alone_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["True", "True", "True", "True"]


def test_a_process_that_stays_collects_as_usual_what_came_after_its_start() -> None:
    done = subprocess.run([sys.executable, "-c", STAYS], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
