"""Retry policies: how long to wait after a failure, and a call's own policy in the metadata of its job.

A policy is a value: any function of (attempts, error) → seconds, timedelta or None. `attempts` counts the failure
that just happened; None sends the job to the dead letter queue. Jitter only ever adds, so that a delay is never
shorter than the policy says.

Metadata holds only values: the three policies of this package, and exceptions by their names. Reading them imports and
calls nothing that the data names; a name is only compared with those of the exception that was raised.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from taskharbor.model.error_class import error_class_of
from taskharbor.model.naming import lineage
from taskharbor.model.times import LONGEST, Duration, duration, seconds

RetryPolicy: TypeAlias = Callable[[int, BaseException], Duration | None]
"""A function of the number of failures and the last one. It returns the delay; None: the job is dead."""


def check_policy(value: object, what: str) -> None:
    """TypeError unless this can be a policy. A class can be called as well, but it does not return a delay."""
    if isinstance(value, type):
        raise TypeError(f"{what}: expected a policy such as {value.__name__}(…), got the class itself; call it")
    if not callable(value):
        raise TypeError(f"{what}: expected a policy such as Exponential() or a function, got {type(value).__name__}")


class Exponential(msgspec.Struct, frozen=True, tag=True):
    """base, base·factor, base·factor² … seconds, at most `maximum`, plus up to `jitter` of that.

    >>> [Exponential(jitter=0)(attempts, ValueError()) for attempts in (1, 2, 3, 20)]
    [1.0, 2.0, 4.0, 3600.0]
    """

    base: Duration = 1  # the delay after the first failure
    factor: float = 2  # how much longer each delay is than the one before
    maximum: Duration = 3600  # the longest delay, before jitter
    jitter: float = 0.1  # the share of the delay that is added at most, at random: it never shortens one

    def __post_init__(self) -> None:
        duration(self.base, "Exponential base")
        duration(self.maximum, "Exponential maximum")
        if not self.factor >= 1:
            raise ValueError(f"Exponential factor: expected 1 or more, got {self.factor}")
        if not 0 <= self.jitter <= 10:
            raise ValueError(f"Exponential jitter: expected 0 to 10, got {self.jitter}")

    def __call__(self, attempts: int, error: BaseException) -> float:
        base, maximum = seconds(self.base), seconds(self.maximum)
        try:
            delay = min(maximum, base * float(self.factor) ** (attempts - 1)) if base else 0.0
        except OverflowError:
            delay = maximum
        return min(delay + delay * self.jitter * random.random(), LONGEST.total_seconds())


class Fixed(msgspec.Struct, frozen=True, tag=True):
    """The same delay each time.

    >>> Fixed(30)(7, ValueError())
    30
    """

    delay: Duration  # the delay after every failure

    def __post_init__(self) -> None:
        duration(self.delay, "Fixed delay")

    def __call__(self, attempts: int, error: BaseException) -> Duration:
        return self.delay


class Linear(msgspec.Struct, frozen=True, tag=True):
    """step, 2·step, 3·step … seconds, at most `maximum`.

    >>> [Linear(10, maximum=25)(attempts, ValueError()) for attempts in (1, 2, 3)]
    [10.0, 20.0, 25.0]
    """

    step: Duration  # by how much each delay is longer than the one before
    maximum: Duration = 3600

    def __post_init__(self) -> None:
        duration(self.step, "Linear step")
        duration(self.maximum, "Linear maximum")

    def __call__(self, attempts: int, error: BaseException) -> float:
        return min(seconds(self.step) * attempts, seconds(self.maximum))


DEFAULT_RETRY = Exponential()
DEFAULT_MAX_ATTEMPTS = 5
DEFAULT_MAX_LOST = 3


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
