"""Suspects: jobs whose lease was lost twice (`policy.suspects`). One of them may be what takes its worker down.

    found ──► lost max_lost times: dead
          ├► no other suspect here: waits until nothing else is held, then runs alone in its process
          └► another suspect waits or runs: given back

A suspect runs alone so that a crash is counted against the job that caused it, and only against that one. While it
waits and runs, the worker takes no more jobs. Once its outcome is stored the worker goes on, whether or not the
function has ended: one that is past its timeout may go on for ever, and must not keep every other slot idle.
"""

from __future__ import annotations

from collections.abc import Callable

from taskharbor.model.job import JobRecord
from taskharbor.policy.suspects import alone_from
from taskharbor.tasks.handler import Handler
from taskharbor.worker.decider import Decider
from taskharbor.worker.delivery import SHUTDOWN, Delivery
from taskharbor.worker.parts import Part, WorkerParts


class SuspectGate(Part):
    """Lets one suspect at a time run alone."""

    def __init__(self, parts: WorkerParts, decider: Decider, launch: Callable[[Delivery, Handler], None]) -> None:
        super().__init__(parts)
        self._max_lost = parts.settings.max_lost
        self._decider = decider
        self._launch = launch
        self._suspect: Delivery | None = None
        self.alone_from = alone_from(self._max_lost)  # a job that was lost this often is a suspect
        self.cautious = False  # the last batch had a suspect: more may follow, so take jobs one at a time

    @property
    def is_occupied(self) -> bool:
        """Whether a suspect waits or runs: no other job may be taken."""
        return self._suspect is not None

    def is_suspect(self, job: JobRecord) -> bool:
        """Whether a job has to run alone."""
        return job.lost >= self.alone_from

    def admit(self, delivery: Delivery) -> None:
        """Take charge of a suspect: it is dead, waits for its turn, or is given back."""
        self.cautious = True
        if delivery.job.lost >= self._max_lost:
            self._decider.crashed(delivery, self._max_lost)
        elif self._suspect is None:
            self._suspect = delivery
        else:
            # Held beside the other suspect, it would be blamed if that one takes the process down.
            self._decider.give_back(delivery, "another suspect runs alone first")

    def launch_if_alone(self) -> None:
        """Launch the waiting suspect once nothing else is held.

        An outcome that is not yet stored would be lost with the process, and its job blamed for the crash.
        """
        suspect = self._suspect
        if suspect is not None and suspect.task is None and all(each is suspect for each in self._held.values()):
            assert suspect.handler is not None
            self._launch(suspect, suspect.handler)

    def on_settled(self) -> None:
        """Something is held no longer: let the suspect go, or launch it.

        It is let go when its outcome is stored, not before: the next job might take the process down, and the suspect
        would be blamed.
        """
        if self._suspect is not None and self._suspect.lease.token not in self._held:
            self._suspect = None
        else:
            self.launch_if_alone()

    def give_back_waiting(self) -> None:
        """The worker stops: give back a suspect that has not been launched."""
        if self._suspect is not None and self._suspect.task is None:
            suspect, self._suspect = self._suspect, None
            self._decider.give_back(suspect, SHUTDOWN)
