"""Deliberate mistakes in the core, each one easy to make. The simulation must turn red on each."""

from collections.abc import Callable
from typing import Any

import pytest

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.memory import settle as settle_module
from taskharbor.model.clock import StoreClock
from taskharbor.model.errors import LeaseExpired, LeaseMismatch
from taskharbor.model.job import State
from taskharbor.model.outcome import Ack
from taskharbor.policy import decide, trail
from taskharbor.store.enqueue import _Batch
from taskharbor.tasks.results import Results
from taskharbor.worker import losses
from taskharbor.worker.capacity import SuspectGate
from taskharbor.worker.decider import Decider
from taskharbor.worker.executor import Executor
from taskharbor.worker.heart import Heart
from taskharbor.worker.interrupts import Interrupts
from taskharbor.worker.settler import Settler

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(function: Mutation) -> Mutation:
    MUTATIONS[function.__name__] = function
    return function


@mutation
def a_failed_settle_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    async def flush(self: Any, batch: list[Any]) -> None:
        try:
            answers = await self._driver.settle([outcome for _, outcome in batch], self._clock.now())
        except Exception:
            for run, _ in batch:
                self._held.pop(run.lease.token, None)
            self._decider.on_settled()
            return
        self._report(batch, answers)

    patch.setattr(Settler, "_flush", flush)


@mutation
def a_batch_is_forgotten_when_its_settle_fails(patch: pytest.MonkeyPatch) -> None:
    async def flush(self: Any, batch: list[Any]) -> None:
        try:
            answers = await self._driver.settle([outcome for _, outcome in batch], self._clock.now())
        except Exception:
            return  # still held, so the heart keeps the lease
        self._report(batch, answers)

    patch.setattr(Settler, "_flush", flush)


@mutation
def a_result_that_is_not_there_is_none(patch: pytest.MonkeyPatch) -> None:
    """As after a store that forgets what a job returned."""

    async def results(self: Any, ids: Any) -> dict[str, bytes | None]:
        return {}

    patch.setattr(MemoryDriver, "results", results)
    patch.setattr(Results, "of", lambda self, id: self.found.get(id))


@mutation
def only_the_first_of_a_batch_is_settled(patch: pytest.MonkeyPatch) -> None:
    whole = Settler._flush

    async def flush(self: Any, batch: list[Any]) -> None:
        await whole(self, batch[:1])

    patch.setattr(Settler, "_flush", flush)


@mutation
def a_job_is_acked_before_its_handler_ends(patch: pytest.MonkeyPatch) -> None:
    execute = Executor._execute

    async def early(self: Any, run: Any, handler: Any) -> None:
        self.decider.decide(run, Ack(run.lease))
        await execute(self, run, handler)

    patch.setattr(Executor, "_execute", early)


@mutation
def a_lost_lease_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Interrupts, "lose", lambda self, run, error: None)


@mutation
def leases_are_never_extended(patch: pytest.MonkeyPatch) -> None:
    async def beat(self: Any) -> float:
        return float(self._every)

    patch.setattr(Heart, "beat", beat)


@mutation
def suspects_run_in_company(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SuspectGate, "admit", lambda self, delivery: self._launch(delivery, delivery.handler))


@mutation
def a_lease_that_was_cut_off_counts_as_a_crash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses, "crashes", lambda job, cut_off, max_lost: job.lost)


@mutation
def a_worker_claims_every_lease_that_it_lost(patch: pytest.MonkeyPatch) -> None:
    def claim(self: Any, delivery: Any) -> None:
        self.cut_off.append((delivery.job.id, delivery.job.deliveries))
        self.noted += 1
        self.on_note()

    patch.setattr(losses.Losses, "note", claim)


@mutation
def a_suspect_does_not_wait_for_outcomes_on_their_way(patch: pytest.MonkeyPatch) -> None:
    def launch(self: Any) -> None:
        suspect = self._suspect
        if (
            suspect is not None
            and suspect.task is None
            and all(each.decided for each in self._held.values() if each is not suspect)
        ):
            self._launch(suspect, suspect.handler)

    patch.setattr(SuspectGate, "launch_if_alone", launch)


@mutation
def a_reserve_heard_after_stop_is_dropped(patch: pytest.MonkeyPatch) -> None:
    start = Executor.start

    def ignore(self: Any, *reserved: Any) -> None:
        if not self._stopping:
            start(self, *reserved)

    patch.setattr(Executor, "start", ignore)


@mutation
def a_give_back_spends_an_attempt(patch: pytest.MonkeyPatch) -> None:
    give_back = decide.give_back

    def spend(job: Any, lease: Any, run_at: Any = None) -> Any:
        given = give_back(job, lease, run_at)
        return type(given)(given.lease, given.run_at, given.attempts + 1)

    patch.setattr(decide, "give_back", spend)


@mutation
def jobs_that_crash_are_tried_for_ever(patch: pytest.MonkeyPatch) -> None:
    def admit(self: Any, delivery: Any) -> None:
        self.cautious = True
        if self._suspect is None:
            self._suspect = delivery
        else:
            self._decider.give_back(delivery, "another suspect runs alone first")

    patch.setattr(SuspectGate, "admit", admit)


@mutation
def a_stale_token_is_accepted(patch: pytest.MonkeyPatch) -> None:
    strict = settle_module.refusal

    def lax(*args: Any) -> Any:
        refused = strict(*args)
        return None if isinstance(refused, LeaseMismatch | LeaseExpired) else refused

    patch.setattr(settle_module, "refusal", lax)


@mutation
def the_stores_clock_is_not_followed(patch: pytest.MonkeyPatch) -> None:
    async def follow(self: Any, server_time: Any) -> None:
        await server_time()

    patch.setattr(StoreClock, "follow", follow)


@mutation
def a_repeated_enqueue_has_new_ids(patch: pytest.MonkeyPatch) -> None:
    async def send(self: Any, driver: Any) -> Any:
        now = self._clock.now()
        self.records = self._prepare(now)
        return await driver.enqueue(self.records, now)

    patch.setattr(_Batch, "send", send)


@mutation
def a_timeout_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Interrupts, "_on_due", lambda self, run, now: setattr(run, "due", None))


@mutation
def dependents_are_released_too_early(patch: pytest.MonkeyPatch) -> None:
    def early(store: Any, entry: Any, dependents: Any, now: Any) -> None:
        for dependent in dependents:
            if dependent.state is State.BLOCKED:
                store.join(dependent, now)

    patch.setattr(settle_module, "release_dependents", early)


@mutation
def a_failure_is_not_written_to_the_trail(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decider, "_with_trail", lambda self, delivery, outcome: outcome)


@mutation
def a_lost_execution_is_not_written_by_the_next(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trail, "_lost", lambda job, lost_by: [])


@mutation
def an_ack_drops_the_trail(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trail, "read_trail", lambda stored: [])
