"""On this machine: the data directory, embedded servers, child processes, and who keeps them alive."""
