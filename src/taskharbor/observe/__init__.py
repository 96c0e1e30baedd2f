"""Consumers of events: logs here, metrics and traces beside it. Nothing calls them back."""
