"""Formats of machine learning: training logs, serving benchmarks, collectives, traces. One module each."""
