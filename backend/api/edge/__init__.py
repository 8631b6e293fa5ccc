"""What every request passes before a route: hosts, rates, sizes, pace, and the connections themselves."""
