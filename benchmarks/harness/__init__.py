"""Runs inside a child process: clocks, the yardstick, timing loops, counters, checks. May import torch."""
