"""What an operator sees and does, as plain values and functions: the command line shows them, and so may any other
front end. Nothing here prints, asks or parses an option."""
