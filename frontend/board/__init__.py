"""The board as HTML: its columns, its cells, and what a cell says when one points at it."""
