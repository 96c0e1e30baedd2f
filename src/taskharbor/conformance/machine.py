"""The state machine: hypothesis makes random calls, and the driver, the model and the oracle must agree at each step.

`check_machine(make_driver)` runs it, in pytest `DriverMachine.test_machine` does. A failure is printed as the shortest
series of steps that leads to it. Needs hypothesis, the extra `taskharbor[conformance]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

try:
    import hypothesis
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the state machine needs the module {error.name}: pip install 'taskharbor[conformance]'", name=error.name
    ) from None

from msgspec.structs import replace

from taskharbor.conformance.actions import (
    FLOWS,
    LEASES,
    QUEUES,
    SCHEDULE_NAMES,
    SECOND,
    WORKERS,
    a_job,
    an_action,
    index,
)
from taskharbor.conformance.environment import BASE, MS, settled
from taskharbor.conformance.machine_schedules import ScheduleWalk
from taskharbor.conformance.parts import AMEND, ATTEMPTS, AUDIT, SCHEDULES, STEPS
from taskharbor.conformance.parts import FLOWS as FLOWS_LISTED
from taskharbor.conformance.twins import Twins
from taskharbor.drivers import (
    Ack,
    Amend,
    Cancelled,
    Driver,
    Fail,
    FlowStatus,
    JobRecord,
    Lease,
    Outcome,
    Retry,
    Seen,
    State,
    StoredAudit,
)

MakeDriver: TypeAlias = Callable[[], Driver | Awaitable[Driver]]
Clean: TypeAlias = Callable[[Driver], Awaitable[None] | None]

COMPARE_ALL_EVERY = 5
PROFILES = ("mixed", "mixed", "one group", "flow")
"""What a run is about. In a mixed one jobs seldom meet, so some runs have one group only, or one flow."""


class Machine(RuleBasedStateMachine):
    """One run. `check_machine` sets `begin` and `finish`, which bring the driver under test and take it back."""

    begin: Callable[[], tuple[asyncio.AbstractEventLoop, Driver, str, datetime]]
    finish: Callable[[Driver], None]
    profiles: Sequence[str] = PROFILES

    def __init__(self) -> None:
        super().__init__()
        self.loop, driver, self.prefix, now = type(self).begin()
        name = self.prefix.__add__
        self.twins = Twins(driver, [name(queue) for queue in QUEUES], [name(flow) for flow in FLOWS], now)
        self.schedules = ScheduleWalk(self.twins, self.prefix)
        self.profile = "mixed"
        self.made = 0
        self.steps = 0
        self.lacks = self.twins.lacks
        self.sent: list[list[Outcome]] = []
        self.seen: dict[str, list[Seen]] = {}  # of each job, what it was and what it is

    def teardown(self) -> None:
        try:
            self._run(self.twins.compare_all())
        finally:
            type(self).finish(self.twins.subject)

    def _run(self, step: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(step)

    # From numbers to what they stand for

    def _moment(self, offset: int | None) -> datetime | None:
        return None if offset is None else self.twins.now + offset * SECOND

    def _keep_for(self, keep: int | None) -> timedelta | None:
        if keep is None or ATTEMPTS in self.lacks:
            return None
        return max(self.twins.subject.retention + keep * 5 * SECOND, timedelta(0))

    def _ids(self, picks: Sequence[int]) -> list[str]:
        """Jobs that expired, were delivered or stored lately. The last number stands for an unknown job."""
        expired = [lease.job_id for lease in self._held(expired=True)]
        delivered = [lease.job_id for lease in self.twins.deliveries[:-5:-1]]
        known = expired * 3 + delivered + list(self.twins.oracle.jobs)[:-9:-1]
        return [known[pick % len(known)] if known and pick < 63 else f"{self.prefix}unknown" for pick in picks]

    def _jobs(self, given: Sequence[tuple[Any, ...]], *, extra: Sequence[str] = ()) -> list[JobRecord]:
        ids = []
        for _ in given:
            self.made += 1
            ids.append(f"{self.prefix}{self.made * 7919 % 99991:05d}")  # not in the order in which they are made
        jobs = []
        for number, (queue, group, limit, priority, run_at, key, depends_on, keep, flow) in enumerate(given):
            if self.profile == "one group":
                queue, group, limit, run_at, key, depends_on = 0, "g", min(limit, 1), None, None, []
            elif self.profile == "flow":
                queue, group, run_at, flow = 0, None, None, "f"
            # Dependencies: the newest jobs and those before it in the call; rarely a cycle, or an unknown job.
            known = [*extra, *ids[:number], *list(self.twins.oracle.jobs)[:-7:-1]] or [f"{self.prefix}unknown"]
            jobs.append(
                JobRecord(
                    id=ids[number],
                    type="work",
                    queue=self.prefix + QUEUES[queue // 2],
                    run_at=self._moment(run_at),
                    priority=priority,
                    group=group,
                    group_limit=limit if group else 0,
                    idempotency_key=key,
                    depends_on=tuple(ids[-1] if pick == 63 else known[pick % len(known)] for pick in depends_on),
                    flow_id=self.prefix + flow if flow else None,
                    keep_for=self._keep_for(keep),
                )
            )
        return jobs

    def _held(self, *, expired: bool = False) -> list[Lease]:
        """Recent leases that nothing has ended: valid ones, or those whose time is over."""
        recent, jobs, now = self.twins.deliveries[:-9:-1], self.twins.oracle.jobs, self.twins.now
        held = [(lease, known.held) for lease in recent if (known := jobs.get(lease.job_id))]
        return [
            lease
            for lease, newest in held
            if newest and newest.token == lease.token and (newest.expires_at <= now) is expired
        ]

    def _lease(self, pick: int, variant: int) -> Lease:
        """Mostly a valid one; else expired or past, with a wrong token or that of another job, or of an unknown job."""
        recent = self.twins.deliveries[:-9:-1]
        held = self._held(expired=variant < 7) if variant > 4 else []
        chosen = _pick(held or recent, pick)
        if chosen is None or variant == 0:
            # A name that no step gives to a job: `unknown` may be stored later, and then in another queue than this.
            return Lease(f"{self.prefix}absent", self.prefix + QUEUES[0], "f" * 32, self.twins.now + SECOND)
        if variant == 1:
            return replace(chosen, token="f" * 32)
        if variant == 2 and (other := _pick(recent, pick + 1)) is not None:
            return replace(chosen, token=other.token)
        return chosen

    # The steps

    @initialize(profile=index, given=st.lists(a_job, min_size=2, max_size=6))
    def start(self, profile: int, given: list[tuple[Any, ...]]) -> None:
        self.profile = self.profiles[profile % len(self.profiles)]
        self._run(self.twins.enqueue(self._jobs(given)))

    @rule(action=an_action)
    def step(self, action: tuple[Any, ...]) -> None:
        name, *given = action
        if name in {"settle", "ack", "extend", "save"} and not self._held():
            self.reserve(2, 3, 1, 0)  # otherwise most of these steps would have nothing to do
        getattr(self, name)(*given)

    def enqueue(self, given: list[tuple[Any, ...]], repeat: int) -> None:
        jobs = self._jobs(given)
        if repeat % 2:  # dependents come before their dependencies
            jobs.reverse()
        if repeat == 0:  # the same job twice in a call
            jobs.append(jobs[0])
        self._run(self.twins.enqueue(jobs))
        if repeat == 1:  # the reply was lost, the call is sent again
            self._run(self.twins.enqueue(jobs))

    def reserve(self, both: int, limit: int, lease: int, worker: int) -> None:
        names = [QUEUES[:1], QUEUES[1:], QUEUES, QUEUES[::-1]][both]
        queues = [self.prefix + name for name in names]
        self._run(self.twins.reserve(queues, limit, LEASES[lease] * SECOND, self.prefix + WORKERS[worker]))

    def extend(self, picks: list[tuple[int, int]], lease: int, noted: bool) -> None:
        leases, notes = [self._lease(*pick) for pick in picks], None
        if noted and ATTEMPTS not in self.lacks:  # with a note for each but the last
            notes = {each.token: b"note %d" % self.steps for each in leases[: len(leases) // 2 + 1]}
        self._run(self.twins.extend(leases, LEASES[lease] * SECOND, notes))

    def save(self, pick: int, variant: int, name: int) -> None:
        if STEPS not in self.lacks:
            self._run(self.twins.save(self._lease(pick, variant), "abc"[name], b"%d" % self.steps))

    def amend(self, given: list[tuple[Any, ...]]) -> None:
        if AMEND not in self.lacks:
            self._run(self.twins.amend([self._amend(*each) for each in given]))

    def _amend(self, pick: int, seen: int, fields: int, run_at: int | None, priority: int) -> Amend:
        """Mostly seen as it is now; else before its last delivery, or before its last change."""
        (id,) = self._ids([pick])
        job = self.twins.model.jobs.get(id)
        deliveries, edits = (job.record.deliveries, job.record.edits) if job is not None else (0, 0)
        changes: dict[str, Any] = {}
        if fields & 1:
            changes["run_at"] = self._moment(run_at)
        if fields & 2:
            changes["priority"] = priority
        if fields & 4:
            changes |= {"payload": b"%d" % self.steps, "max_attempts": self.steps, "metadata": {"a": str(self.steps)}}
        deliveries, edits = max(deliveries - (seen == 0), 0), max(edits - (seen == 1), 0)
        return Amend(id=id, deliveries=deliveries, edits=edits, **changes)

    def search(self, limit: int, state: State | None, down: bool, bounds: int, ago: int) -> None:
        # Mostly the very moment at which a job was enqueued or ended, or the one after it.
        records = [job.record for job in self.twins.model.jobs.values()][:-5:-1]
        moments = [moment for each in records for moment in (each.created_at, each.finished_at) if moment is not None]
        moment = moments[ago % len(moments)] + (ago % 3 == 0) * MS if moments else self.twins.now
        asked: dict[str, Any] = {
            "state": state,
            "since": moment if bounds & 1 else None,
            "until": moment if bounds & 2 else None,
        }
        if ATTEMPTS not in self.lacks and ago < 3:
            asked |= dict.fromkeys(("error_class", "error_name")[ago // 2 : ago + 1], "Error")
        self._run(self.twins.search(limit + 1, order="-id" if down else "id", **asked))

    def list_flows(self, limit: int, status: FlowStatus | None, down: bool) -> None:
        if FLOWS_LISTED not in self.lacks:
            self._run(self.twins.list_flows(limit + 1 if not self.prefix else 500, status, "-id" if down else "id"))

    def settle(self, given: list[tuple[Any, ...]]) -> None:
        self._send([self._outcome(self._lease(pick, variant), *rest) for pick, variant, *rest in given])

    def ack(self, number: int) -> None:
        """Valid leases, plainly: most jobs end well."""
        self._send([Ack(lease, b"r") for lease in self._held()[:number]])

    def settle_again(self, back: int) -> None:
        """The reply to a settle was lost, now or some time ago: it is sent again."""
        if self.sent:
            self._run(self.twins.settle(self.sent[-min(back, len(self.sent))]))

    def _send(self, outcomes: list[Outcome]) -> None:
        self.sent.append(outcomes)
        self._run(self.twins.settle(outcomes))

    def _outcome(
        self,
        lease: Lease,
        kind: int,
        run_at: int | None,
        plain: bool,
        spawn: list[tuple[Any, ...]],
        flag: bool,
        written: int,
    ) -> Outcome:
        """`flag`: with a handover, or with a failure counted. `written`: with a trail, and with the error's class."""
        now = self.twins.now
        if ATTEMPTS in self.lacks:
            written = 0
        trail = b"trail %d" % self.steps if written & 1 else b""
        error_class, fingerprint = (
            (("Error", "app.Error")[self.steps % 2], f"f{self.steps}") if written & 2 else ("", "")
        )
        known = self.twins.oracle.jobs.get(lease.job_id)
        attempts = known.attempts if known else 0
        if kind <= 2:
            hand = flag and bool(spawn) and not plain
            jobs = () if plain else tuple(self._jobs(spawn, extra=() if hand else (lease.job_id,)))
            return Ack(lease, b"result", jobs, jobs[-1].id if hand else None, trail)
        if kind == 3:
            error, failed_at = ("", None) if plain else ("error", now)
            at = self._moment(run_at)
            return Retry(lease, at, attempts + flag, error, failed_at, error_class, fingerprint, trail)
        if kind == 4:
            jobs = () if plain else tuple(self._jobs(spawn, extra=(lease.job_id,)))
            error = "" if plain else "error"
            return Fail(lease, "reason", attempts + 1, now, error, jobs, error_class, fingerprint, trail)
        return Cancelled(lease, "reason", trail)

    def release(self, worker: int, keep: int) -> None:
        self._run(self.twins.release(self.prefix + WORKERS[worker], self.twins.deliveries[: -keep - 1 : -1]))

    def pause(self, queue: int, on: int) -> None:
        self._run(self.twins.pause(self.prefix + QUEUES[queue], on == 0))

    def cancel(self, picks: list[int], seen: int | None) -> None:
        ids = self._ids(picks)
        self._run(self.twins.cancel(ids, self._seen(ids, seen)))

    def requeue(self, picks: list[int], run_at: int | None, reset: bool, seen: int | None) -> None:
        ids = self._ids(picks)
        self._run(self.twins.requeue(ids, self._moment(run_at), reset, self._seen(ids, seen)))

    def delete(self, picks: list[int], seen: int | None) -> None:
        ids = self._ids(picks)
        self._run(self.twins.delete(ids, self._seen(ids, seen)))

    def _seen(self, ids: Sequence[str], how: int | None) -> list[Seen] | None:
        """Half of them as they are, a quarter as they were before that, and a quarter as they have never been."""
        if how is None:
            return None
        return [self._seen_one(self.seen.get(id) or [Seen(0)], how >> 2 * place & 3) for place, id in enumerate(ids)]

    def _seen_one(self, known: Sequence[Seen], how: int) -> Seen:
        if how < 3:
            return known[-2 if how == 2 and len(known) > 1 else -1]
        last, end = known[-1], None if known[-1].finished_at else self.twins.now
        changes = ({"deliveries": last.deliveries + 1}, {"edits": last.edits + 1}, {"finished_at": end})
        return replace(last, **changes[self.steps % 3])

    def audit(
        self, given: list[tuple[int, timedelta, int]], limit: int, by: int | None, bounds: int, pick: int
    ) -> None:
        """Entries are stored, and others read."""
        if AUDIT in self.lacks:
            return
        name, now, data = self.prefix.__add__, self.twins.now, b"%d" % self.steps
        entries = [
            StoredAudit(id=name(f"e{number}"), at=now + ago, by=name(f"by{by}"), data=data) for number, ago, by in given
        ]
        self._run(self.twins.put_audit(entries))
        moments = [entry.at for entry in self.twins.model.entries.values()]
        moment = moments[pick % len(moments)] + (pick % 3 == 0) * MS if moments else now
        asked: dict[str, Any] = {
            "since": moment if bounds in (1, 3) else None,
            "until": moment if bounds in (2, 3) else None,
            "by": None if by is None else name(f"by{by}"),
        }
        self._run(self.twins.read_audit(limit + 1 if not self.prefix else 500, **asked))

    def change_schedules(self, given: list[tuple[Any, ...]]) -> None:
        if SCHEDULES in self.lacks:
            return
        jobs = [self._jobs(jobs) for *_, jobs, _ in given]
        for made, (*_, known) in zip(jobs, given, strict=True):
            if made and known < 8:
                made[-1] = replace(made[-1], id=self._ids([known])[0])
        self._run(self.twins.change_schedules(self.schedules.changes([each[:4] for each in given], jobs)))

    def change_again(self, back: int, deleted: bool) -> None:
        """The reply to a change was lost, now or some time ago: it is sent again, perhaps after its jobs are gone."""
        sent = self.schedules.sent[-back:][:1]
        for changes in sent:
            if deleted:
                self._run(self.twins.delete([job.id for change in changes for job in change.jobs]))
            self._run(self.twins.change_schedules(changes))

    def read_due(self, queues: int, limit: int, names: int, again: bool) -> None:
        """At what is due, and at a listing. `names`: which ones, by the bits of the number; all of them by none."""
        if SCHEDULES in self.lacks:
            return
        asked = [self.prefix + name for name in [QUEUES[:1], QUEUES[1:], QUEUES, QUEUES[::-1]][queues]]
        self._run(self.twins.read_due(asked, limit + 1, again=again))
        some = [self.prefix + name for place, name in enumerate(SCHEDULE_NAMES) if names >> place & 1]
        wanted: dict[str, Any] = {"names": some} if some else {"queue": asked[0]} if queues else {}
        self._run(self.twins.list_schedules(limit + 1 if wanted or not self.prefix else 500, **wanted))

    def prune(self, ago: int) -> None:
        self._run(self.twins.prune(self.twins.now - ago * SECOND))

    def cancel_flow(self, flow: int) -> None:
        self._run(self.twins.cancel_flow(self.prefix + FLOWS[flow]))

    def begin_flow_anew(self, flow: int, given: list[tuple[Any, ...]]) -> None:
        """A flow is cancelled and its jobs are deleted; then others are enqueued into one of that name."""
        name = self.prefix + FLOWS[flow]
        self.cancel_flow(flow)
        self._run(self.twins.delete([id for id, known in self.twins.oracle.jobs.items() if known.job.flow_id == name]))
        self._run(self.twins.enqueue(self._jobs([(*job[:-1], FLOWS[flow]) for job in given])))

    def advance(self, how: int) -> None:
        """Forward, and often to the very moment at which something happens, or to the one before it."""
        now = self.twins.now
        ends = [known.held.expires_at for known in self.twins.oracle.jobs.values() if known.held]
        due = [known.job.run_at for known in self.twins.oracle.jobs.values() if known.job.run_at]
        rows = [row.next_at for row in self.twins.model.schedules.values() if row.next_at]
        ahead = sorted(moment for moment in (*ends, *due, *rows) if moment > now)
        if how <= 3 and ahead:
            self.twins.now = ahead[0]
        elif how == 4 and ahead:
            self.twins.now = max(now, ahead[0] - MS)
        else:
            self.twins.now = now + (MS, SECOND, 5 * SECOND, 12 * SECOND)[how % 4]

    @invariant()
    def agree(self) -> None:
        self.steps += 1
        self._run(self.twins.compare() if self.steps % COMPARE_ALL_EVERY else self.twins.compare_all())
        for id, job in self.twins.model.jobs.items():
            seen = Seen(job.record.deliveries, job.record.edits, job.record.finished_at)
            known = self.seen.setdefault(id, [])
            if not known or known[-1] != seen:
                self.seen[id] = [*known[-1:], seen]


def _pick(leases: Sequence[Lease], pick: int) -> Lease | None:
    return leases[pick % len(leases)] if leases else None


class _Stores:
    """Brings the driver under test to each run: one for all runs, or a new one for each."""

    def __init__(self, make_driver: MakeDriver, shared: bool, clean: Clean | None) -> None:
        self.loop = asyncio.new_event_loop()
        self._make_driver, self._shared, self._clean = make_driver, shared, clean
        self._driver: Driver | None = None
        self._runs = 0

    def begin(self) -> tuple[asyncio.AbstractEventLoop, Driver, str, datetime]:
        """The loop, an open driver, a prefix for every name of the run, and the moment at which it begins."""
        self._runs += 1
        if not self._shared:
            return self.loop, self.loop.run_until_complete(self._open()), "", BASE
        if self._driver is None:
            self._driver = self.loop.run_until_complete(self._open())
        # A later run lies on an earlier day, so that it never prunes what another left behind.
        return self.loop, self._driver, f"m{self._runs:06d}-", BASE - timedelta(days=self._runs % 10_000)

    async def _open(self) -> Driver:
        driver = await settled(self._make_driver())
        await driver.open()
        return driver

    def finish(self, driver: Driver) -> None:
        self.loop.run_until_complete(self._finish(driver))

    async def _finish(self, driver: Driver) -> None:
        if self._clean is not None:
            await settled(self._clean(driver))
        if not self._shared:
            await driver.close()

    def close(self) -> None:
        if self._driver is not None:
            self.loop.run_until_complete(self._driver.close())
        self.loop.close()


def check_machine(
    make_driver: MakeDriver,
    *,
    runs: int = 200,
    steps: int = 50,
    share_store: bool = True,
    clean: Clean | None = None,
    profiles: Sequence[str] = PROFILES,
    shrink: bool = True,
    seed: int | None = None,
) -> None:
    """Make `runs` walks of `steps` steps with a driver; AssertionError, with the shortest failing walk found.

    `share_store`: all runs use one driver, each with names and a day of its own; otherwise `make_driver` is called for
    each run. `clean` is called with the driver after each run. `profiles`: what the runs are about. `shrink`: False
    reports the walk as it was found; to find a shorter one may take minutes on a real store. `seed`: the walks of this
    number, without hypothesis's database, so that a walk can be found again and shrunk later. The event loop is made
    here and belongs to the machine.
    """
    stores = _Stores(make_driver, share_store, clean)
    members = {"begin": staticmethod(stores.begin), "finish": staticmethod(stores.finish), "profiles": profiles}
    machine = type("Machine", (Machine,), members)
    if seed is not None:
        machine = hypothesis.seed(seed)(machine)
    try:
        run_state_machine_as_test(machine, settings=_settings(runs, steps, shrink=shrink, seeded=seed is not None))
    finally:
        stores.close()


def _settings(runs: int, steps: int, *, shrink: bool, seeded: bool) -> settings:
    walk = settings(
        max_examples=runs, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    if not shrink:  # what is in the database counts as shrunk, so this walk must not get there
        walk = settings(walk, phases=(Phase.generate,), database=None)
    if seeded:
        phases = [phase for phase in walk.phases if phase is not Phase.reuse]
        walk = settings(walk, phases=phases, database=None, derandomize=False)
    return walk
