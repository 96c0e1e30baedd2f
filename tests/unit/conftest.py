"""Tests may be coroutine functions."""

from tests.coroutines import pytest_pyfunc_call as pytest_pyfunc_call
