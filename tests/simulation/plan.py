"""What a seed decides before the start: the workload, the workers, which faults happen and how often.

Each concern draws from a stream of its own (`stream`), so that leaving one out, as shrinking does, changes the others
as little as possible.
"""

import random
from dataclasses import dataclass, field, replace

FAULTS = (
    "kill",  # a process dies at any moment, or around a storage call
    "fail",  # a call fails before the store does it
    "lose",  # a call is done, and its reply is lost
    "duplicate",  # a call arrives twice, the second time at once or much later
    "slow",  # a call takes long
    "outage",  # the store does not answer for a while
    "freeze",  # a process stands still for up to three leases
    "clock",  # clocks are wrong, drift and are stepped
    "cancel",  # calls of clients are cancelled, and workers' own tasks
    "stop",  # workers are stopped gracefully, or hurried, and started again
    "poison",  # jobs that take their process down
    "renewals",  # for a while extends fail, and every other call passes
    "admin",  # an operator cancels, requeues, deletes, pauses and resumes
)

LATE_FAULT = "renewals"  # drawn from a stream of its own, so that the seeds that were kept mean what they meant

KINDS = {  # what a job does, and how often there is one
    "plain": 8,
    "fail": 4,
    "unrecoverable": 1,
    "later": 1,
    "snooze": 2,
    "cancel": 1,
    "parent": 2,
    "flow": 2,
    "badflow": 0.3,
    "hang": 1,
    "stubborn": 1,
}


@dataclass(frozen=True)
class Spec:
    """One job of the workload. `n` is its name: the payload carries it."""

    n: int
    kind: str
    at: float = 0.0  # when it is enqueued
    type: str = "work"
    queue: str = "a"
    key: str | None = None
    delay: float | None = None
    timeout: float | None = None
    priority: int = 0
    group: str | None = None
    group_limit: int = 0
    max_attempts: int = 5
    seconds: float = 0.0  # how long an execution takes
    times: int = 0  # how often it fails, or is snoozed
    after: tuple[int, ...] = ()  # the jobs it depends on, which are enqueued in the same call


@dataclass(frozen=True)
class WorkerPlan:
    queues: tuple[str, ...]
    types: tuple[str, ...]
    concurrency: int


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    seed: int
    faults: tuple[str, ...]
    workers: tuple[WorkerPlan, ...]
    batches: tuple[tuple[Spec, ...], ...]  # each is one call of a producer
    lease: float
    active: float  # how long there are faults
    own_clock: bool
    shuffle: bool
    trouble: float  # how often something goes wrong, 1 is usual
    latency: float
    max_lost: int = 3
    specs: dict[int, Spec] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        self.specs.update({spec.n: spec for batch in self.batches for spec in batch})

    def smaller(self) -> "list[Plan]":
        """The same with less: half of the jobs, one fault less, one worker less, one job less."""
        some = [replace(self, faults=tuple(each for each in self.faults if each != left)) for left in self.faults]
        count = len(self.batches)
        if count > 1:
            some += [replace(self, batches=self.batches[: count // 2], specs={})]
            some += [replace(self, batches=self.batches[count // 2 :], specs={})]
        if len(self.workers) > 1:
            some.append(replace(self, workers=self.workers[:-1]))
        if 1 < count <= 12:
            some += [replace(self, batches=self.batches[:i] + self.batches[i + 1 :], specs={}) for i in range(count)]
        if self.shuffle:
            some.append(replace(self, shuffle=False))
        return some

    def describe(self) -> str:
        return (
            f"{sum(map(len, self.batches))} jobs, {len(self.workers)} workers, lease {self.lease:g} s, "
            f"{'own' if self.own_clock else 'store'} clock, {'shuffled' if self.shuffle else 'ordered'}, "
            f"faults: {', '.join(self.faults) or 'none'}"
        )


def stream(seed: int, name: str) -> random.Random:
    """A source of randomness for one concern. (Seeding with text does not depend on PYTHONHASHSEED.)"""
    return random.Random(f"{seed}/{name}")


def make_plan(seed: int) -> Plan:
    rng = stream(seed, "plan")
    calm = rng.random() < 0.08
    faults = () if calm else tuple(name for name in FAULTS if name != LATE_FAULT and rng.random() < 0.42)
    if not calm and stream(seed, LATE_FAULT).random() < 0.42:
        faults += (LATE_FAULT,)
    lease = rng.choice([3.0, 4.0, 6.0])
    active = rng.uniform(8.0, 22.0)
    own_clock = "clock" in faults and rng.random() < 0.4
    workers = [WorkerPlan(("a", "b"), ("work", "rare"), rng.choice([1, 2, 3, 8]))]
    for _ in range(rng.choice([0, 1, 1, 2])):
        queues = rng.choice([("a", "b"), ("b", "a"), ("a",), ("b",)])
        # One that does not know a type and whose clock is ahead would take such a job first, again and again.
        types = ("work",) if rng.random() < 0.3 and not own_clock else ("work", "rare")
        workers.append(WorkerPlan(queues, types, rng.choice([1, 2, 4])))
    return Plan(
        seed=seed,
        faults=faults,
        workers=tuple(workers),
        batches=_workload(stream(seed, "workload"), rng.choice([3, 6, 10, 16]), active, lease, "poison" in faults),
        lease=lease,
        active=active,
        own_clock=own_clock,
        shuffle=rng.random() < 0.5,
        trouble=rng.choice([0.3, 1.0, 1.0, 2.0]),
        latency=rng.choice([0.001, 0.01, 0.1]),
    )


def _workload(
    rng: random.Random, calls: int, active: float, lease: float, poison: bool
) -> tuple[tuple[Spec, ...], ...]:
    batches: list[tuple[Spec, ...]] = []
    number = 0
    for _ in range(calls):
        at = rng.uniform(0, active * 0.7) if rng.random() < 0.7 else 0.0
        size = rng.choice([1, 1, 1, 1, 2, 4])
        batch = [_spec(rng, number + i, at, lease, keyed=size == 1) for i in range(size)]
        if size == 4 and rng.random() < 0.8:  # a diamond: one, two beside each other, a join
            first = batch[0].n
            after = [(), (first,), (first,), (first + 1, first + 2)]
            batch = [replace(spec, after=deps, key=None) for spec, deps in zip(batch, after, strict=True)]
        elif size == 2 and rng.random() < 0.4:
            batch[1] = replace(batch[1], after=(batch[0].n,))
        if poison and size == 1 and rng.random() < 0.15:
            batch = [replace(batch[0], kind="poison", group=None, timeout=None)]
        batches.append(tuple(batch))
        number += size
    return tuple(batches)


def _spec(rng: random.Random, n: int, at: float, lease: float, keyed: bool) -> Spec:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    group = rng.choice(["g", "h"]) if rng.random() < 0.25 else None
    return Spec(
        n=n,
        kind=kind,
        at=at,
        type="rare" if rng.random() < 0.15 else "work",
        queue=rng.choice(["a", "a", "b"]),
        # Some keys are shared: the second of them is the first.
        key=f"key {rng.randrange(4) if rng.random() < 0.3 else n}" if keyed and rng.random() < 0.3 else None,
        delay=rng.uniform(0.1, 6.0) if rng.random() < 0.2 else None,
        timeout=rng.uniform(0.5, 3.0) if kind in ("hang", "stubborn") else (60.0 if rng.random() < 0.2 else None),
        priority=rng.choice([0, 0, 0, 5, -5]),
        group=group,
        group_limit={"g": 2, "h": 0, None: 0}[group],
        max_attempts=rng.choice([1, 2, 3, 5]),
        seconds=rng.choice([0.0, 0.01, 0.5, rng.uniform(0, 1.5 * lease)]),
        times=rng.choice([1, 1, 2, 9]) if kind == "fail" else rng.choice([1, 2]),
    )
