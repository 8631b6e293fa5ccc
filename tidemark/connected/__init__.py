"""Commands that talk with a service over its API."""
