"""What the store was seen to do, kept apart from the code under test: a small model of the contract.

Every call is noted at the moment it takes effect, and compared with what the model allows. The model has its own
epoch for each job (the number of reservations seen) and notes which lease is valid until when; it trusts no
token, no counter and no state of the driver. What it objects to is a problem of the run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from tests.simulation import oracle
from tests.simulation.machine import Process, now_of
from tests.simulation.oracle import Delivery, Execution, Known
from tests.simulation.plan import Plan


class Journal:
    """The history of one run."""

    def __init__(self, plan: Plan, time: Callable[[], float]) -> None:
        self.plan = plan
        self._time = time
        self.jobs: dict[str, Known] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.paused: dict[str, bool] = {}
        self.acknowledged: dict[str, None] = {}
        self.events: list[tuple[float, str, str]] = []
        self.problems: list[str] = []
        self.happened: Counter[str] = Counter()
        self.over = False

    def say(self, who: Any, text: str) -> None:
        self.events.append((self._time(), str(who), text))

    def wrong(self, text: str) -> None:
        if not self.over:
            self.problems.append(text)
            self.say("PROBLEM", text)

    def count(self, what: str) -> None:
        self.happened[what] += 1

    def demand(self, condition: object, text: str) -> None:
        if not condition:
            self.wrong(text)

    # Enqueue -------------------------------------------------------------------------------------------------

    def enqueued(self, process: Any, records: Sequence[JobRecord], answers: Sequence[Enqueued], now: datetime) -> None:
        for record, answer in zip(records, answers, strict=True):
            known = self.jobs.get(answer.id)
            if answer.existed:
                self.demand(known and not known.gone, f"{answer.id} was said to exist, but was never stored")
                self.count("enqueue met a known job")
            else:
                self.demand(known is None or known.gone, f"{answer.id} was stored twice")
                self._store(record)
                process.stored += known is None  # one deleted before the repetition arrives is stored again
            self.say(process, f"enqueue {oracle.label(record)}{' (existed)' if answer.existed else ''}")

    def _store(self, record: JobRecord) -> None:
        if record.idempotency_key is not None:
            key = (record.queue, record.idempotency_key)
            other = self.jobs.get(self.keys.get(key, ""))
            self.demand(other is None or other.gone, f"{oracle.label(record)}: two jobs have the key {key}")
            self.keys[key] = record.id
        deps = tuple(self._heir(id) for id in record.depends_on)
        self.jobs[record.id] = Known(record, self.plan.specs.get(oracle.number(record)), deps)

    def _heir(self, id: str) -> str:
        while (known := self.jobs.get(id)) is not None and known.handed_to is not None:
            id = known.handed_to
        return id

    def acknowledge(self, process: Any, ids: Sequence[str]) -> None:
        """A call returned to its caller: these are stored."""
        for id in ids:
            self.acknowledged[id] = None
            self.demand(id in self.jobs, f"{id} was acknowledged, but never stored")

    # Reserve -------------------------------------------------------------------------------------------------

    def reserved(
        self, process: Process, queues: Sequence[str], now: datetime, limit: int, batch: Sequence[Reserved]
    ) -> list[Delivery]:
        self.demand(len(batch) <= limit, f"reserve gave {len(batch)} jobs, asked for {limit}")
        given = []
        for reserved in batch:
            known = self.jobs.get(reserved.job.id)
            if known is None:
                self.wrong(f"reserve gave {reserved.job.id}, which was never stored")
                continue
            given.append(self._grant(process, queues, now, known, reserved))
        for delivery in given:
            delivery.with_suspect = any(other.may_be_suspect for other in given)
        if len(batch) < limit:
            for known in self.jobs.values():
                if known.queue in queues and not self.paused.get(known.queue) and self._runnable(known, now):
                    self.wrong(f"reserve left {known} alone, which was runnable")
        if batch:
            self.say(process, "reserve " + ", ".join(map(str, given)))
        return given

    def _grant(
        self, process: Process, queues: Sequence[str], now: datetime, known: Known, reserved: Reserved
    ) -> Delivery:
        last = known.held
        self.demand(known.queue in queues, f"{known} was given from a queue that was not asked for")
        self.demand(not self.paused.get(known.queue), f"{known} was given from a paused queue")
        self.demand(not known.terminal, f"{known} was given, but is {known.state}")
        self.demand(not self.waits_for(known), f"{known} was given before all it depends on was done")
        if last is not None:
            self.demand(last.expires_at <= now, f"{known} was given, though {last} holds it until {last.expires_at}")
            self._take_over(known, last, now)
        else:
            self.demand(known.run_at is None or known.run_at <= now, f"{known} was given before its time")
        known.run_at = None if last is not None else known.run_at
        delivery = Delivery(known, len(known.deliveries) + 1, reserved.lease, process, self._time())
        known.deliveries.append(delivery)
        known.held = delivery
        job = reserved.job
        self.demand(job.deliveries == delivery.epoch, f"{known}: deliveries is {job.deliveries}, not {delivery.epoch}")
        self.demand(job.lost == known.lost, f"{known}: lost is {job.lost}, not {known.lost}")
        self.demand(job.attempts == known.attempts, f"{known}: attempts is {job.attempts}, not {known.attempts}")
        if known.group is not None:
            full = self._in_group(known, now)
            self.demand(full <= known.limit, f"group {known.group}: {full} inflight, limit {known.limit}")
        if known.attempts:
            self.count("retried after a failure")
        if len(known.deps) > 1:
            self.count("join released")
        return delivery

    def _take_over(self, known: Known, last: Delivery, now: datetime) -> None:
        why = oracle.why_expired(last, self.plan, self._time())
        self.say("journal", f"takeover of {last}: {why or 'UNEXPLAINED'}")
        self.demand(why, f"{last}: its lease ended while {last.process} was well")
        self.count("takeover")
        self.count(f"takeover: {why}")
        known.lost += 1
        if why == "killed by poison" and last is not last.process.killer:
            # A poison that is known as a suspect runs alone, so a neighbour can only be lost with a fresh one.
            killer = last.process.killer
            self.demand(not killer.suspect, f"{last} was lost with the suspect {killer}")
            known.blamed += 1
            self.count("blamed beside a poison")
            if known.blamed >= self.plan.max_lost:
                self.count("innocent lost beside fresh poisons until it counts as crashed")
        last.ended = "expired"

    def claimed(self, process: Process, cut_off: Sequence[tuple[str, int]]) -> None:
        """A heartbeat names executions that its worker lost because no renewal reached the store."""
        for id, epoch in cut_off:
            if id not in self.jobs:  # a schedule's: those have a journal of their own
                continue
            delivery = self.jobs[id].deliveries[epoch - 1]
            self.demand(delivery.process is process, f"{process} claims {delivery}, which it never held")
            troubled = process.suffered(
                "extend failed", "slow", "frozen", "thawed", since=delivery.at - self.plan.lease
            )
            self.demand(troubled or self.plan.own_clock, f"{process} claims {delivery}, and no renewal of it failed")
            unknown = process.suffered("settle failed", since=delivery.at)  # a settle whose reply was lost
            self.demand(delivery.settled is None or unknown, f"{process} claims {delivery}, which was settled")
            self.count("a lost lease that its worker lived to tell")

    def weighed(self, process: Process, cut_off: set[tuple[str, int]]) -> None:
        """A worker has read the heartbeats, to know which losses were crashes."""
        for delivery in self._to_weigh(process):
            delivery.weigh(cut_off)

    def not_weighed(self, process: Process) -> None:
        """It could not read them: then it buries nothing."""
        for delivery in self._to_weigh(process):
            delivery.lost = delivery.losses
            delivery.least = min(delivery.losses, self.plan.max_lost - 1)

    def _to_weigh(self, process: Process) -> list[Delivery]:
        held = [known.held for known in self.jobs.values() if known.held is not None and known.held.losses]
        return [each for each in held if each.process is process and each.heard and each.execution is None]

    def _runnable(self, known: Known, now: datetime) -> bool:
        if known.terminal or self.waits_for(known):
            return False
        if known.held is not None:
            due = known.held.expires_at <= now
        else:
            due = known.run_at is None or known.run_at <= now
        if due and known.group is not None and self._in_group(known, now) >= known.limit:
            self.count("group was full")
            return False
        return due

    def _in_group(self, known: Known, now: datetime) -> int:
        return sum(
            1
            for other in self.jobs.values()
            if (other.group, other.queue) == (known.group, known.queue)
            and other.held is not None
            and other.held.expires_at > now
        )

    def waits_for(self, known: Known) -> list[str]:
        """Its dependencies that are not done, as far as their records are there."""
        return [id for id in known.deps if not (self.jobs[id].state == "done" or self.jobs[id].gone)]

    # Extend and settle ---------------------------------------------------------------------------------------

    def extended(
        self, process: Any, leases: Sequence[Lease], answers: Sequence[Any], now: datetime, lease_for: timedelta
    ) -> None:
        for lease, answer in zip(leases, answers, strict=True):
            known = self.jobs[lease.job_id]
            legal = known.held is not None and known.held.token == lease.token and known.held.expires_at > now
            if isinstance(answer, Lease):
                self.demand(legal, f"{known}: a lease was extended that no longer held it")
                if known.held is not None:
                    known.held.expires_at = max(known.held.expires_at, now + lease_for)
                    known.held.renewed = self._time()
                    self.demand(answer.expires_at == known.held.expires_at, f"{known}: extended to {answer.expires_at}")
                    self.demand(
                        oracle.may_extend(known.held, self.plan, self._time()),
                        f"{known.held} is kept though its handler ended long ago",
                    )
            else:
                self.demand(not legal, f"{known}: a valid lease was not extended: {answer!r}")
                self.count(f"extend refused: {type(answer).__name__}")

    def told(self, lease: Lease, answer: Any) -> None:
        """A process received the result of an extend."""
        for delivery in self.jobs[lease.job_id].deliveries:
            if delivery.token == lease.token and delivery.told is None and not isinstance(answer, Lease):
                delivery.told = self._time()

    def given_up(self, record: JobRecord) -> None:
        """A worker reported that an outcome was refused, or came too late: it does not have the job any more."""
        if not self.over:
            self.jobs[record.id].deliveries[record.deliveries - 1].given_up = True

    def settled(self, process: Process, outcomes: Sequence[Outcome], answers: Sequence[Any], now: datetime) -> None:
        for outcome, answer in zip(outcomes, answers, strict=True):
            known = self.jobs[outcome.lease.job_id]
            held = known.held
            legal = held is not None and held.token == outcome.lease.token and held.expires_at > now
            if answer is None and legal:
                assert held is not None
                self.say(process, f"settle {held} {oracle.describe(outcome)}")
                wrong = oracle.objection(held, outcome, self.plan, self._time())
                self.demand(not wrong, f"{held} {oracle.describe(outcome)}: {wrong}")
                self._apply(known, held, outcome, now)
            elif answer is None:
                last = known.deliveries[-1] if known.deliveries else None
                same = last is not None and (last.token, last.settled) == (outcome.lease.token, type(outcome))
                self.demand(same, f"{known}: a stale {type(outcome).__name__} was accepted")
                self.count("settle repeated after a lost reply")
            elif isinstance(answer, InvalidJob) and known.spec is not None and known.spec.kind == "badflow":
                self.count("workflow that cannot be stored")
            else:
                self.demand(not legal, f"{known}: a valid {type(outcome).__name__} was refused: {answer!r}")
                self.say(process, f"refused {known} {type(outcome).__name__}: {type(answer).__name__}")
                self.count(f"settle refused: {type(answer).__name__}")
                if known.held is not None and known.held.token != outcome.lease.token:
                    self.count("zombie settle refused")

    def _apply(self, known: Known, held: Delivery, outcome: Outcome, now: datetime) -> None:
        held.ended, held.settled = "settled", type(outcome)
        known.held = None
        if isinstance(outcome, Retry):
            if outcome.attempts == known.attempts:
                self._given_back(held)
            known.run_at = outcome.run_at
            if outcome.attempts != known.attempts:
                known.lost = known.blamed = 0
            known.attempts = outcome.attempts
            return
        known.lost = known.blamed = 0
        if isinstance(outcome, Ack):
            self._done(known, outcome)
        elif isinstance(outcome, Fail):
            known.state, known.attempts, known.reason = "dlq", outcome.attempts, outcome.reason
            self.count("dead-lettered")
        elif isinstance(outcome, Cancelled):
            known.state = "cancelled"

    def _given_back(self, held: Delivery) -> None:
        self.count("given back")
        if held.execution is not None and held.execution.how == "snooze":
            self.count("snoozed")
        elif held.process.stopping:
            self.count("given back: stopping")
        elif held.known.record.type not in held.process.types:
            self.count("given back: unknown type")
        elif held.may_be_suspect:
            self.count("suspect given back")
        else:
            self.count("given back: came with a suspect")

    def _done(self, known: Known, outcome: Ack) -> None:
        known.state = "done"
        before = list(self.jobs.values())
        for record in outcome.spawn:
            self._store(record)
        if outcome.handover is not None:
            self.count("handed over to a workflow")
            known.handed_to = outcome.handover
            for other in before:  # what was spawned beside may depend on the job itself
                other.deps = tuple(outcome.handover if id == known.id else id for id in other.deps)

    # Executions ----------------------------------------------------------------------------------------------

    def started(self, process: Process, record: JobRecord, fence: int) -> Execution:
        """A handler was called."""
        known = self.jobs[record.id]
        execution = Execution(process, self._time())
        delivery = known.deliveries[fence - 1] if 0 < fence <= len(known.deliveries) else None
        if delivery is None or delivery.process is not process:
            self.wrong(f"{known} is executed with fence {fence} by {process}, who never reserved it so")
            return execution
        self.demand(delivery.execution is None, f"{delivery} was executed twice")
        self.demand(delivery.least < self.plan.max_lost, f"{delivery} is executed after {delivery.least} crashes")
        delivery.execution = execution
        self._company(delivery)
        self.say(process, f"start {delivery}")
        return execution

    def _company(self, mine: Delivery) -> None:
        """A suspect runs alone: its process has no other job that it would lose with it."""
        beside = [
            known.held
            for known in self.jobs.values()
            if known.held is not None and known.held is not mine and known.held.process is mine.process
        ]
        if mine.lost and not mine.suspect and beside:
            self.count("lost once, ran beside others")
        soon = now_of(mine.process) + timedelta(seconds=0.3)  # clocks differ a little
        if mine.suspect:
            self.count("suspect ran alone")
            alive = [other for other in beside if other.heard and other.told is None and not other.given_up]
            company = [str(other) for other in alive if other.expires_at > soon]
            self.demand(not company, f"suspect {mine} runs beside {', '.join(company)}")
        for other in beside:
            # One whose lease is over is nobody's: its worker goes on, even if its function does.
            running = other.execution is not None and other.execution.how == "" and other.expires_at > soon
            self.demand(not (running and other.suspect), f"{mine} runs beside the suspect {other}")

    # Admin ---------------------------------------------------------------------------------------------------

    def admin(self, verb: str, ids: Sequence[str], answers: Sequence[Any], **options: Any) -> None:
        """cancel, requeue or delete, as far as it was accepted."""
        for id, answer in zip(ids, answers, strict=True):
            known = self.jobs[id]
            self.say("admin", f"{verb} {known}: {type(answer).__name__ if answer is not None else 'ok'}")
            if answer is not None:
                continue
            self.count(f"admin {verb}")
            if known.held is not None and verb != "requeue":
                self.count(f"admin {verb} while inflight")
                known.held.ended, known.held = verb, None
            if verb == "cancel":
                known.state = "cancelled"
            elif verb == "delete":
                known.state = "deleted"
            else:
                self.demand(known.state in ("dlq", "cancelled"), f"{known} was requeued, but was {known.state}")
                known.state, known.lost, known.blamed, known.run_at = "pending", 0, 0, options.get("run_at")
                known.requeues += 1
                if options.get("reset_attempts"):
                    known.attempts = 0
