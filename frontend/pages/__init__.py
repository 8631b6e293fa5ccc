"""One module per page: read the address, ask a service, render."""
