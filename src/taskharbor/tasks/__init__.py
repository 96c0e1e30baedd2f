"""Declaring what runs: tasks, their options, their arguments, and the context a handler receives."""
