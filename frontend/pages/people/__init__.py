"""Pages about people: signing in, one's own account, members of a project, and who did what."""
