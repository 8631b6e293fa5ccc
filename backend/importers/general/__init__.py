"""Formats of benchmark tools for any language: one module each."""
