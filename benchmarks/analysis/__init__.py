"""From reports of processes to figures and what they mean. Pure; standard library only."""
