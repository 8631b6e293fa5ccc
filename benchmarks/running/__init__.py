"""A run of the suite: what is planned, fresh processes one after the other, and what became of each."""
