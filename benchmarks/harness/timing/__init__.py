"""How a step is timed: clocks, events, marks between phases, and the yardstick."""
