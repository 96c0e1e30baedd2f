"""`python -m taskharbor`: the same program as `taskharbor`."""

from taskharbor.cli import main

if __name__ == "__main__":
    main(prog_name="taskharbor")
