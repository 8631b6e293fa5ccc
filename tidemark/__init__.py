"""The launcher: the `tidemark` command, the composition root, the embedded PostgreSQL and broker.

Importing this package needs the standard library only, so that it can be installed beside anything.
"""

__version__ = "0.1.0"
