"""The command line. `taskharbor` and `python -m taskharbor` are the same program."""

from taskharbor.cli.main import main

__all__ = ["main"]
