"""`python -m taskharbor.conformance DSN`: run the cases against a store and print the result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from taskharbor.conformance.case import THEMES
from taskharbor.conformance.runner import StoreNotEmpty, run


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every case passed, 1 if one failed, 2 if nothing could be run."""
    parser = argparse.ArgumentParser(
        prog="python -m taskharbor.conformance", description="Does a store keep the contract?"
    )
    parser.add_argument("dsn", help="an EMPTY store, for example memory://")
    parser.add_argument("--theme", action="append", choices=THEMES, help="only this theme (repeatable)")
    parser.add_argument("--namespace", help="what the names of the cases begin with; for a store that is not empty")
    options = parser.parse_args(arguments)
    try:
        report = run(options.dsn, themes=options.theme, namespace=options.namespace)
    except (StoreNotEmpty, ValueError, ModuleNotFoundError, RuntimeError) as error:
        sys.stderr.write(f"conformance: {error}\n")
        return 2
    sys.stdout.write(f"{report}\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
