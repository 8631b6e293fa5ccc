"""Reads for the page of one run."""
