"""The pages people see: pages, templates, figures, static files. Asks services; decides nothing."""

from frontend.app import mount

__all__ = ["mount"]
