"""Log lines and traces of the processes."""
