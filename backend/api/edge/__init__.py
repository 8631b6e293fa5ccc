"""The layers around every request: hosts, rates, sizes, pace, and the connections themselves."""
