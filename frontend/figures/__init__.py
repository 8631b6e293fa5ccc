"""Figures as data: Plotly dictionaries for what one explores, small SVG for what one only looks at.

Colours are names of tokens (`--c-line`, with opacity `--reg/0.1`); the page resolves them in the current theme.
"""
