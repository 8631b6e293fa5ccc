"""One command per loan of a GPU: measures every target of the suite in order, and writes a page on what was met."""
