"""The registered benchmark suite. Needs torch and the standard library only, so it runs on a bare GPU image.

Importing this package imports no torch: the command plans, starts and collects; only child processes measure.
"""

SUITE_VERSION = "1.1.0"
"""Raised whenever measured code, a yardstick or a configuration changes: results of two versions are two series."""
