"""What an operator sees and does, as plain values and functions: the command line and the dashboard show them.

Nothing here prints, asks or parses an option.
"""
