"""What the machine did while the suite ran."""
