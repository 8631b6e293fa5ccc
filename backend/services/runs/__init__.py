"""One run: its page, its profile and kernels, what its neighbours say, and the command that repeats it."""
