"""Telemetry of the machine while the suite runs."""
