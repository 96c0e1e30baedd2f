"""How the worker knows a returned workflow without knowing how workflows are composed."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from taskharbor.model.job import JobRecord


class Spawned(msgspec.Struct, frozen=True):
    """The jobs of a workflow that takes a job's place, and the one of them whose result stands for the whole."""

    jobs: tuple[JobRecord, ...]
    handover: str


@runtime_checkable
class Workflow(Protocol):
    """What a handler may return to let a workflow take the place of its job."""

    def compile(self, parent: JobRecord, now: datetime) -> Spawned:
        """The workflow as job records, stored in the transaction that settles the parent."""
