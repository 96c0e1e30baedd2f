"""What is measured on each store: one row for each line of the report, in its order.

A row gets as many jobs as its subject can do in the time of a sample, by a rough figure given here, so that slow ones
do not hold up the rest; at most as many as `Sizes.jobs`.
"""

from __future__ import annotations

import msgspec

PROCESS = "A worker on jobs that were enqueued beforehand"
RELAXED = "The same, without waiting for the disk at each commit"
UNFLUSHED = "The same, with claims that are not flushed"
ONE = "Enqueueing one at a time"
MANY = "Enqueueing many at a time"
LATENCY = "Pick-up by an idle worker in another process"
BACKLOG = "A worker on the first jobs of a long queue"
MEMBERS = "Settling a member of a group that a finalizer waits for"

SLOTS = 16  # of a worker, if nobody asks for others: what the hand-written loop may hold as well
FAST = 1_000_000  # jobs a second: of those that get all the jobs there are
COMMIT = 500  # of those that wait for a disk with each


class Subject(msgspec.Struct, frozen=True):
    """Something that is measured. Jobs a second, roughly; 0: it has no such call, or what it does is not the same."""

    name: str
    title: str
    module: str
    process: int
    one: int
    many: int
    address: str = "{}"  # how the module wants the place's address
    peer: str = ""  # the environment it runs in, if not this one
    picks: bool = True
    backlog: bool = False
    relaxed: int = 0  # as process, when it is as durable as LESS says; 0: it has no such choice


class Row(msgspec.Struct, frozen=True):
    """One line of the report: how it is run, and which row it is compared with."""

    name: str
    section: str
    title: str
    subject: Subject
    mode: str
    hint: int = FAST
    base: str = ""
    waiting: str = ""  # "small" or "backlog": that number of jobs waits in its queue, which is kept from round to round
    relaxed: bool = False
    width: int = 100  # how many jobs a loop takes at a time
    group: str = ""  # "few" or "members": the size of each group


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured."""

    rounds: int = 5
    jobs: int = 20_000
    seconds: float = 2.0
    picks: int = 200
    small: int = 20_000
    backlog: int = 1_000_000
    few: int = 10
    members: int = 10_000

    def of(self, row: Row) -> int:
        """How many jobs a sample of this row has."""
        if row.section == LATENCY:
            return self.picks
        if row.section == MEMBERS:
            return self.members
        # A loop is several times quicker than a worker: as many jobs would be over before the processor is warm.
        most = 4 * self.jobs if row.subject.name == "limit" else self.jobs
        return int(min(most, max(50, row.hint * self.seconds)))

    def title(self, row: Row) -> str:
        """A row's title with its numbers."""
        return row.title.format(**{name: f"{getattr(self, name):,}" for name in ("small", "backlog", "few", "members")})


FULL = Sizes()
QUICK = Sizes(rounds=3, jobs=5_000, seconds=0.4, picks=40, small=5_000, backlog=100_000, members=2_000)


def _limit(store: str, one: int = COMMIT, relaxed: int = 0) -> Subject:
    title, module = "a hand-written loop (the limit)", f"bench.handwritten.{store}"
    return Subject("limit", title, module, FAST, one, FAST, picks=False, backlog=True, relaxed=relaxed)


def _ours(address: str, one: int = COMMIT, relaxed: int = 0) -> Subject:
    module = "bench.stores.harbor"
    return Subject("ours", "taskharbor", module, FAST, one, FAST, address, backlog=True, relaxed=relaxed)


def _peer(
    name: str,
    process: int,
    one: int,
    many: int = 0,
    *,
    picks: bool = True,
    backlog: bool = False,
    relaxed: int = 0,
) -> Subject:
    module = f"bench.peers.{name.replace('-', '_')}"
    return Subject(name, name, module, process, one, many, "{}", name, picks, backlog, relaxed)


STORES: dict[str, tuple[Subject, ...]] = {
    "sqlite": (
        _limit("sqlite", relaxed=FAST),
        _ours("sqlite:///{}", relaxed=FAST),
        _peer("huey", 1_000, 500, relaxed=5_000),
        _peer("litequeue", 500, 500, 50_000, picks=False, relaxed=2_000),
        _peer("persist-queue", 300, 300, picks=False),
    ),
    "postgres": (
        _limit("postgres", relaxed=FAST),
        _ours("{}", relaxed=FAST),
        _peer("procrastinate", 300, 300, 5_000),
        _peer("pgqueuer", 5_000, 500, 20_000, backlog=True),
        _peer("pg-boss", 10_000, 500, 20_000, picks=False),
        _peer("graphile-worker", 20_000, 500, 20_000, backlog=True),
    ),
    "redis": (
        _limit("redis", one=5_000),
        _ours("{}", one=2_000),
        _peer("rq", 250, 500, 2_000),
        _peer("celery", 400, 700),
        _peer("omniq", 900, 2_000),
        _peer("arq", 1_000, 1_500),
        _peer("saq", 1_000, 2_500),
        _peer("taskiq", 1_500, 1_500),
        _peer("huey", 3_000, 4_000),
        _peer("dramatiq", 3_000, 4_000),
        _peer("bullmq", 8_000, 4_000, 20_000),
    ),
}


LESS = {"sqlite": RELAXED, "postgres": UNFLUSHED}  # what a store's weaker setting is


def rows(store: str) -> list[Row]:
    """Every row of a store. The first of a section is the limit, where there is one."""
    made: list[Row] = []
    for each in STORES[store]:
        if each.name == "limit":
            wide = _row(each, PROCESS, "process", each.process, title=f"{each.title}, 100 at a time")
            narrow = msgspec.structs.replace(
                wide, name=f"narrow-{each.name}", title=f"{each.title}, {SLOTS} at a time", width=SLOTS
            )
            made += [narrow, wide]
        elif each.name == "ours":
            made.append(_row(each, PROCESS, "process", each.process, "narrow-limit", f"{each.title}, {SLOTS} slots"))
            made.append(_row(each, PROCESS, "process-wide", each.process, "process-limit", f"{each.title}, 100 slots"))
        else:
            made.append(_row(each, PROCESS, "process", each.process, "narrow-limit"))
    for each in STORES[store]:
        if each.relaxed:
            made += _relaxed(each, LESS[store])
    made += [_row(each, ONE, "enqueue-one", each.one, "enqueue-one-limit") for each in STORES[store] if each.one]
    made += [_row(each, MANY, "enqueue-many", each.many, "enqueue-many-limit") for each in STORES[store] if each.many]
    made += [_row(each, LATENCY, "latency") for each in STORES[store] if each.picks]
    for each in STORES[store]:
        if each.backlog:
            mode = "backlog" if each.name == "ours" else "process"
            small = Row(
                f"small-{each.name}", BACKLOG, f"{each.title}, {{small}} waiting", each, mode, each.process, "", "small"
            )
            title = f"{each.title}, {{backlog}} waiting"
            large = msgspec.structs.replace(
                small, name=f"backlog-{each.name}", title=title, base=small.name, waiting="backlog"
            )
            made += [small, large]
        if each.name == "ours":
            few = Row("few-ours", MEMBERS, "taskharbor, groups of {few}", each, "members", group="few")
            many = msgspec.structs.replace(
                few, name="members-ours", title="taskharbor, groups of {members}", base=few.name, group="members"
            )
            made += [few, many]
    return sorted(made, key=lambda row: SECTIONS.index(row.section))


def _relaxed(subject: Subject, section: str) -> list[Row]:
    """With the weaker setting: 16 at a time, and for the loop and for us 100 as well."""
    title, replace = subject.title, msgspec.structs.replace
    name, wide = f"relaxed-{subject.name}", f"relaxed-wide-{subject.name}"
    row = Row(name, section, title, subject, "process", subject.relaxed, "relaxed-limit", relaxed=True, width=SLOTS)
    if subject.peer:
        return [row]
    if subject.name == "limit":
        narrow = replace(row, title=f"{title}, {SLOTS} at a time", base="")
        return [narrow, replace(narrow, name=wide, title=f"{title}, 100 at a time", width=100)]
    more = replace(row, name=wide, title=f"{title}, 100 slots", mode="process-wide", base="relaxed-wide-limit")
    return [replace(row, title=f"{title}, {SLOTS} slots"), more]


def _row(subject: Subject, section: str, mode: str, hint: int = FAST, base: str = "", title: str = "") -> Row:
    name = f"{mode}-{subject.name}"
    return Row(name, section, title or subject.title, subject, mode, hint, "" if base == name else base)


SECTIONS = (PROCESS, RELAXED, UNFLUSHED, ONE, MANY, LATENCY, BACKLOG, MEMBERS)
