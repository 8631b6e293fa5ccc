"""Llama blocks."""
