"""What the processes say of themselves: log lines and traces."""
