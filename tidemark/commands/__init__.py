"""The commands, a module for each kind: a command reads its options and calls the module that does the work."""
