"""`tidemark doctor`: what it looks at on this machine, and what it says of it."""
