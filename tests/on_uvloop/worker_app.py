"""What `taskharbor worker run --app` imports: a program that makes uvloop the loop of everything in it."""

import warnings

import uvloop

from tests.on_uvloop.sums import harbor

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on; programs do it all the same
    uvloop.install()

__all__ = ["harbor"]
