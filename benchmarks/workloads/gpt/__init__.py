"""The dense GPT: its model, its training step, on several ranks, and compiled."""
