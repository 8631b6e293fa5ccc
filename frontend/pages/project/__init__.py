"""Pages to connect a project and to set it up."""
