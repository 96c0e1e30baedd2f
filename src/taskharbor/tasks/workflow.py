"""The base class by which the worker recognises a returned workflow, without importing `taskharbor.flow`."""

from __future__ import annotations

from datetime import datetime
from typing import TypeGuard

import msgspec

from taskharbor.model.job import JobRecord


class Spawned(msgspec.Struct, frozen=True):
    """The jobs of a workflow that takes a job's place, and the one of them whose result stands for the whole."""

    jobs: tuple[JobRecord, ...]
    handover: str


class Workflow:
    """What a handler may return to let a workflow take the place of its job.

    A base class, not a Protocol: an object of another library that has a method `compile` is a plain result.
    """

    __slots__ = ()

    def compile(self, parent: JobRecord, now: datetime) -> Spawned:
        """The workflow as job records, stored in the transaction that settles the parent."""
        raise NotImplementedError


def is_workflow(value: object) -> TypeGuard[Workflow]:
    """Whether it is a workflow, by its class alone: reading an attribute of an unbound proxy would raise."""
    return issubclass(type(value), Workflow)
