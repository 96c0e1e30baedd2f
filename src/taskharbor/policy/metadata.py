"""A call's own retry policy and unrecoverable errors, as text in the metadata of its job.

Only values are stored: the three policies of this package, and exceptions by their names. Reading them imports and
calls nothing that the data names; a name is only compared with those of the exception that was raised.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from taskharbor.model.error_class import error_class_of
from taskharbor.model.naming import lineage
from taskharbor.policy.retry import Exponential, Fixed, Linear, RetryPolicy

RETRY_KEY = "taskharbor.retry"
UNRECOVERABLE_KEY = "taskharbor.unrecoverable"


_policies: msgspec.json.Decoder[Exponential | Fixed | Linear] = msgspec.json.Decoder(Exponential | Fixed | Linear)
_names: msgspec.json.Decoder[tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...])


def write_retry(policy: RetryPolicy) -> str:
    """The policy as text; TypeError for one that is a function.

    >>> read_retry(write_retry(Fixed(30)))
    Fixed(delay=30.0)
    """
    if not isinstance(policy, Exponential | Fixed | Linear):
        raise TypeError(
            f"expected Exponential(…), Fixed(…) or Linear(…), got {type(policy).__name__}; a function cannot be stored "
            "with a job: declare it with the task"
        )
    return msgspec.json.encode(policy).decode()


def read_retry(text: str) -> RetryPolicy:
    """The policy that `write_retry` wrote, or ValueError (or RecursionError if it is nested too deeply)."""
    return _policies.decode(text)


def write_unrecoverable(kinds: Iterable[type[BaseException]]) -> str:
    """Exception types as text."""
    return msgspec.json.encode([error_class_of(kind) for kind in kinds]).decode()


def is_unrecoverable(text: str, error: BaseException) -> bool:
    """Whether an error is of one of the types that `write_unrecoverable` wrote; ValueError for any other text."""
    names = _names.decode(text)
    return any(error_class_of(kind) in names for kind in lineage(type(error)))
