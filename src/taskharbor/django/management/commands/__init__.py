"""The commands of manage.py: `harbor`."""
