"""The suite that every driver passes: cases for each sentence of docs/driver-contract.md, and a state machine.

In pytest, subclass `DriverConformance` (the extra `taskharbor[conformance]`):

    from taskharbor.conformance import DriverConformance

    class TestMyDriver(DriverConformance):
        def make_driver(self):
            return MyDriver("mystore://localhost/empty")

Without pytest, `run("mystore://localhost/empty")` returns a `Report`; `python -m taskharbor.conformance DSN` prints it.
"""

from typing import TYPE_CHECKING, Any

from taskharbor.conformance.case import THEMES, Case, all_cases, case
from taskharbor.conformance.environment import Environment
from taskharbor.conformance.report import CaseResult, Report, Verdict
from taskharbor.conformance.runner import StoreNotEmpty, arun, run

if TYPE_CHECKING:
    from taskharbor.conformance.suite import DriverCases, DriverConformance, DriverMachine

__all__ = [
    "THEMES",
    "Case",
    "CaseResult",
    "DriverCases",
    "DriverConformance",
    "DriverMachine",
    "Environment",
    "Report",
    "StoreNotEmpty",
    "Verdict",
    "all_cases",
    "arun",
    "case",
    "run",
]


def __getattr__(name: str) -> Any:
    # pytest and hypothesis are needed for these alone.
    if name in {"DriverCases", "DriverConformance", "DriverMachine"}:
        from taskharbor.conformance import suite

        return getattr(suite, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
