"""What a project is: connected, and set up."""
