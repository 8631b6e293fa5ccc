"""Writers: run.json, `:::MLLOG` files, and PyTorch benchmark database records."""
