"""A commit's code, kept apart from everything else on the machine: its processes, what they see, and their end."""
