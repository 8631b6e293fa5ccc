"""What a person sees: pages, templates, figures, static files. Asks services; decides nothing."""

from frontend.app import mount

__all__ = ["mount"]
