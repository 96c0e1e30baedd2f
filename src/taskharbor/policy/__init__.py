"""Decisions: when to retry, when to give up, which moments a schedule stands for. Pure functions; no I/O, no clock."""
