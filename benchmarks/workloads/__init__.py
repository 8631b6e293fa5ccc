"""The measured code, one module per family. Imported by child processes only: everything here may import torch."""
