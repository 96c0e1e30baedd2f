"""What must be true at the end, when faults are over and everything has had time to settle."""

import json
from datetime import timedelta
from typing import TYPE_CHECKING

from taskharbor.model.executions import FIRST_KEPT, LAST_KEPT, known_executions
from taskharbor.model.job import JobInfo
from taskharbor.model.outcome import Ack, Cancelled, Fail, Retry
from tests.simulation.journal import Journal
from tests.simulation.machine import START, Process, now_of
from tests.simulation.oracle import Delivery, Known

if TYPE_CHECKING:
    from tests.simulation.world import World

NOBODY_DIES = {"fail", "outage", "renewals", "admin"}  # faults that every process survives, and knows of
CLOCKS_APART = timedelta(hours=1)  # clocks are stepped in some plans


def drained(journal: Journal) -> bool:
    """Whether nothing is left to do: what is not terminal waits for something dead."""
    return all(known.terminal or _waits_for_ever(journal, known) for known in journal.jobs.values())


def _waits_for_ever(journal: Journal, known: Known) -> bool:
    for id in journal.waits_for(known):
        other = journal.jobs[id]
        if other.state in ("dlq", "cancelled") or (not other.terminal and _waits_for_ever(journal, other)):
            return True
    return False


def held_by(journal: Journal, process: Process) -> list[Delivery]:
    """The deliveries of a process whose reserve reached it."""
    held = [known.held for known in journal.jobs.values() if known.held is not None]
    return [each for each in held if each.process is process and each.heard and not _in_doubt(each)]


def _in_doubt(held: Delivery) -> bool:
    """Its lease ended, or its outcome may have come too late, or was given up by a worker that had to end."""
    process = held.process
    return bool(
        held.given_up  # explained when the job is taken over
        or process.suffered("settle failed", "slow", "frozen", "thawed", "clock stepped", since=held.renewed)
        or held.expires_at <= now_of(process) + timedelta(seconds=0.3)
    )


async def check_at_the_end(world: "World") -> None:
    """Compare the journal with the store, and the store with itself."""
    journal = world.journal
    if journal.problems:
        return
    now = START.replace(year=2031)
    page = await world.store.list(now=now, limit=1000)
    stored = {info.job.id: info for info in page.items}
    for id in journal.acknowledged:
        if id not in stored:
            journal.demand(id in journal.jobs and journal.jobs[id].gone, f"{id} was acknowledged, and is lost")
    for known in journal.jobs.values():
        info = stored.pop(known.id, None)
        if known.gone:
            journal.demand(info is None, f"{known} was deleted, and is there")
            continue
        if info is None:
            journal.wrong(f"{known} is {known.state} in the journal, and not in the store")
            continue
        expected = known.state if known.terminal else "blocked"
        journal.demand(info.state == expected, f"{known} is {info.state} in the store, {expected} in the journal")
        journal.demand(json.loads(info.job.payload)["name"] == known.label, f"{known}: another payload")
        journal.demand(info.job.deliveries == len(known.deliveries), f"{known}: {info.job.deliveries} deliveries")
        if expected == "done":
            executions = [each for each in known.deliveries if each.execution is not None]
            journal.demand(executions, f"{known} is done, but was never executed")
        if expected == "dlq":
            job = info.job
            whole = job.payload and job.reason and job.last_error and job.failed_at and job.finished_at
            journal.demand(whole, f"dead letter {known} lacks something: {job.reason!r}, {job.failed_at}")
            journal.demand(job.attempts == known.attempts, f"dead letter {known}: attempts {job.attempts}")
            poisoned = any(spec.kind == "poison" for spec in journal.plan.specs.values())
            healthy = not poisoned and not set(journal.plan.faults) - NOBODY_DIES
            journal.demand(
                not healthy or not job.reason.startswith("crashed"), f"{known} is dead because {job.reason!r}"
            )
        if known.spec is not None and known.spec.kind == "poison":
            _check_poison(journal, known)
        _check_attempts(journal, known, info)
    journal.demand(not stored, f"in the store, but never seen to be stored: {', '.join(sorted(stored))}")


ENDS: dict[type, tuple[str, ...]] = {
    Ack: ("done",),
    Retry: ("failed", "timeout", "snoozed", "given_back"),
    Fail: ("failed", "timeout"),
    Cancelled: ("cancelled",),
}
"""How an execution may have ended that an outcome has settled."""


def _check_attempts(journal: Journal, known: Known, info: JobInfo) -> None:
    """Each reservation that the journal saw is kept once, as it ended; only one that was lost may be missing."""
    kept = known_executions(info)
    numbers = [each.number for each in kept]
    journal.demand(numbers == sorted(set(numbers)), f"{known}: executions {numbers}")
    if len(known.deliveries) > FIRST_KEPT + LAST_KEPT:
        return  # a long list is cut
    by_number = {each.number: each for each in kept}
    journal.demand(not by_number.keys() - {each.epoch for each in known.deliveries}, f"{known}: executions {numbers}")
    for each in known.deliveries:
        found = by_number.get(each.epoch)
        if each.settled is not None:
            fits = found is not None and found.kind in ENDS[each.settled]
            journal.demand(fits, f"{each} was settled with {each.settled.__name__}, and is kept as {found}")
        elif each.ended == "expired":
            journal.demand(found is None or found.kind == "lost", f"{each} was lost, and is kept as {found}")
            after = known.deliveries[each.epoch :]  # the next one writes it, unless it is lost as well
            journal.demand(found or not after or after[0].settled is None, f"{each} was lost, and is not kept")
            journal.count("a loss that was written by the next execution" if found else "a loss that nothing wrote")
        if found is not None and found.began_at is not None and found.ended_at is not None:
            journal.demand(found.began_at <= found.ended_at + CLOCKS_APART, f"{each} ended before it began: {found}")


def _check_poison(journal: Journal, known: Known) -> None:
    """It ends in the dead letter queue as crashed (or an operator removed it), after max_lost crashes at most. An
    execution that was interrupted, because its lease ended, killed nobody. A worker that could not read whether the
    last losses were crashes runs it once more."""
    lost = [each for each in known.deliveries if each.execution is not None and each.ended == "expired"]
    ran = sum(1 for each in lost if each.execution is not None and each.execution.how != "interrupted")
    unread = sum(1 for _, _, what in journal.events if what.startswith("fault: workers"))
    most = journal.plan.max_lost * (1 + known.requeues) + unread
    journal.demand(ran <= most, f"poison {known} was executed {ran} times, at most {most} allowed")
    journal.demand(known.state != "done", f"poison {known} is done")
    if known.state == "dlq":
        journal.demand(known.reason.startswith("crashed"), f"poison {known} is dead because {known.reason!r}")
        journal.count("poison in the dead letter queue")
