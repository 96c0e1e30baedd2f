"""Schedules: what a row holds, what follows from it at a moment, and how workers and people change it."""
