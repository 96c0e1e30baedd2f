"""Decisions: when to retry, when to give up. Pure functions of what happened; no I/O, no clock."""
