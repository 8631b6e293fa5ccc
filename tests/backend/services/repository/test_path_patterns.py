"""Patterns of paths: what they match, and that none takes for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

from backend.services.repository.manifest import DEFAULT_PATHS
from backend.services.repository.mirror import MORE_PATHS
from backend.services.repository.path_patterns import any_counts


@pytest.mark.parametrize(
    ("paths", "changed", "matters"),
    [
        (("src/**",), "src/a/b.py", True),
        (("src/**",), "src", True),  # a submodule: nothing below it changes
        (("third_party/flash/",), "third_party/flash", True),
        (("**/flash/**",), "third_party/flash", True),
        (("src/**",), "srcs", False),
        (("**", "!doc*/**"), "document.py", True),
        (("src/**",), MORE_PATHS, True),
        (("src/*",), "src/a/b.py", False),
        (("src/",), "src/a/b.py", True),
        (("**/*.py",), "a.py", True),
        (("**/*.py",), "x/y/a.py", True),
        (("*.py",), "x/a.py", False),
        (("./tidemark.toml",), "tidemark.toml", True),
        (("a?.txt",), "a/.txt", False),
        (("src/**", "!src/docs/**"), "src/docs/a.md", False),
        (("src/**", "!src/docs/**", "src/docs/conf.py"), "src/docs/conf.py", True),
        (("a.b",), "axb", False),
        (DEFAULT_PATHS, "README.md", False),
        (DEFAULT_PATHS, "docs/conf.py", False),
        (DEFAULT_PATHS, "src/x.md", False),
        (DEFAULT_PATHS, "src/x.py", True),
        (DEFAULT_PATHS, "tidemark.toml", True),
    ],
)
def test_paths_that_matter(paths: tuple[str, ...], changed: str, matters: bool) -> None:
    assert any_counts([changed], paths) is matters


@pytest.mark.parametrize("pattern", ["**/" * 300 + "x", "*a" * 300 + "x", "**a" * 300 + "x", "?*" * 300 + "x"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    script = (
        "import sys; from backend.services.repository.path_patterns import any_counts; "
        "print(any_counts(['a/' * 300 + 'b', 'a' * 600], [sys.argv[1]]))"
    )
    command = [sys.executable, "-c", script, pattern]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
