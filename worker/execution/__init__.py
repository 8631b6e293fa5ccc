"""From a leased run to its result: checkout, setup, suite, and what they left behind."""
