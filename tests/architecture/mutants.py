"""The deliberate mistakes: what is changed in a copy of the memory driver, and how such a copy is made.

A mistake is a piece of the driver's text and what stands there instead. A text that is no longer there, or stands
there twice, is an error of its own: a rewrite of the driver has to restate the mistake for the new text.
"""

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from taskharbor import drivers
from taskharbor.drivers import memory

SOURCE = Path(memory.__file__).parent
PACKAGE = memory.__name__
SHARED = ("base", "planning", "refusals", "queries")  # logic that all drivers share, copied into the package


class Edit(NamedTuple):
    module: str
    old: str
    new: str


class Mutant(NamedTuple):
    name: str
    edits: tuple[Edit, ...]


def one(name: str, module: str, old: str, new: str) -> Mutant:
    return Mutant(name, (Edit(module, old, new),))


# The store knows which members of a group are inflight. One that counts them has a wrong number when it frees a place
# twice, and does not notice either.
SPARE = (
    Edit(
        "queue",
        "        self.inflight: set[Entry] = set()\n",
        "        self.inflight: set[Entry] = set()\n        self.freed_twice = 0\n",
    ),
    Edit("queue", "self.limit - len(self.inflight)", "self.limit - len(self.inflight) + self.freed_twice"),
)
REPEATED = "        return None  # the same call again, because its reply was lost\n"

# Those that must always be here: the mistakes that lose jobs or run them twice.
REQUIRED = (
    one("token check dropped", "refusals", "if token != lease.token:", "if token is None:"),
    one("expiry compared with <", "refusals", "ends_at <= now", "ends_at < now"),
    one("expiry compared the wrong way round", "refusals", "ends_at <= now", "ends_at > now"),
    one(
        "runnable a millisecond after its time",
        "reserve",
        "        queue.move(now)\n",
        "        queue.move(now - timedelta(milliseconds=1))\n",
    ),
    one("lost leases not counted", "reserve", " lost=record.lost + 1, run_at=None", " run_at=None"),
    Mutant(
        "a slot freed twice: at expiry, and when the expired job leaves",
        (
            *SPARE,
            Edit(
                "queue",
                "            self.groups[name].due.remove(entry)\n",
                "            if entry.lease is not None and entry in self.groups[name].due.places:\n"
                "                self.groups[name].freed_twice += 1\n"
                "            self.groups[name].due.remove(entry)\n",
            ),
        ),
    ),
    Mutant(
        "a slot freed twice: by the outcome, and by its repetition",
        (
            *SPARE,
            Edit(
                "settle",
                REPEATED,
                "        queue = store.queue_of(entry)\n"
                "        if entry.record.group in queue.groups:\n"
                "            queue.groups[entry.record.group].freed_twice += 1\n"
                "            queue._consider(entry.record.group)\n" + REPEATED,
            ),
        ),
    ),
    one(
        "dependents released before the last ack",
        "flows",
        "if dependent.state is State.BLOCKED and not dependent.open:",
        "if dependent.state is State.BLOCKED:",
    ),
    one("settle applied twice", "settle", REPEATED, "        _apply(store, entry, outcome, now)\n" + REPEATED),
)

OTHERS = (
    one("give-back resets lost", "settle", "lost=record.lost if given_back else 0", "lost=0"),
    one("a failure leaves lost", "settle", "lost=record.lost if given_back else 0", "lost=record.lost"),
    one(
        "deliveries reset by requeue",
        "admin",
        'reason="", finished_at=None, lost=0, run_at=run_at, ',
        'reason="", finished_at=None, lost=0, deliveries=0, run_at=run_at, ',
    ),
    one("requeue leaves lost", "admin", "finished_at=None, lost=0, run_at=run_at,", "finished_at=None, run_at=run_at,"),
    one("requeue leaves the flow's flag", "admin", "store.cancelled_flows.discard(record.flow_id)", "pass"),
    one("requeue forgets open dependencies", "admin", "join_or_block(store, entry, now)", "store.join(entry, now)"),
    one("key not freed by delete", "store", "del queue.keys[record.idempotency_key]", "pass"),
    one("release ignores keep", "settle", " and entry.lease.token not in keep", ""),
    one(
        "release counts nothing",
        "settle",
        "lost + 1 if type(lost) is int else lost",
        "lost",
    ),
    one(
        "release keeps run_at",
        "settle",
        "store.join(entry, now, lost=lost, run_at=None)",
        "store.join(entry, now, lost=lost)",
    ),
    one(
        "cancel and every outcome leave the slot taken",
        "store",
        "        queue.leave(entry)\n",
        "        queue.leave(entry)\n        if entry.lease is not None:\n            queue._hold(entry)\n",
    ),
    one("cancel takes dead jobs", "admin", "if state is State.DONE or state is State.DLQ:", "if state is State.DONE:"),
    one("a cancel takes nothing along", "admin", "    cancel_behind(store, cancelled, now)\n", ""),
    one("what a handler cancels stays blocked", "settle", "            cancel_behind(store, [entry], now)\n", ""),
    one("what waits for a cancelled heir stays blocked", "settle", "            strand(store, stranded, now)\n", ""),
    one("other flows are cancelled too", "flows", "flow is not None and dependent.record.flow_id == flow", "True"),
    one("it comes back behind a cancelled job", "flows", "if not is_stranded(dependent):", "if True:"),
    one("all that is cancelled comes back", "flows", " or dependent.record.reason != DEPENDENCY_CANCELLED_REASON", ""),
    one("stored behind a cancelled job and blocked", "enqueue", "entry.state is State.BLOCKED and", "False and"),
    one("cancel_flow sets no flag", "admin", "store.cancelled_flows.add(flow_id)", "pass"),
    one(
        "one space of keys for all queues",
        "enqueue",
        "        if (queue := store.queues.get(name)) is not None and key in queue.keys\n",
        "        for queue in store.queues.values()\n        if key in queue.keys\n",
    ),
    one(
        "the key decides before the id",
        "planning",
        "    stored = plan.stored.get(job.id)\n",
        "    stored = plan.stored.get(job.id)\n"
        "    if (job.queue, job.idempotency_key) in taken:\n"
        "        return taken[job.queue, job.idempotency_key]\n",
    ),
    one(
        "ordered by id",
        "queue",
        "-entry.record.priority, entry.waits_since, entry.arrival",
        "-entry.record.priority, entry.waits_since, entry.record.id",
    ),
    one(
        "last in, first out",
        "queue",
        "-entry.record.priority, entry.waits_since, entry.arrival",
        "-entry.record.priority, entry.waits_since, -entry.arrival",
    ),
    one(
        "joining time ignored",
        "queue",
        "-entry.record.priority, entry.waits_since, entry.arrival",
        "-entry.record.priority, entry.arrival",
    ),
    one(
        "priority inverted",
        "queue",
        "-entry.record.priority, entry.waits_since, entry.arrival",
        "entry.record.priority, entry.waits_since, entry.arrival",
    ),
    one(
        "priority inside groups",
        "queue",
        ".due.put(entry, entry.waits_since",
        ".due.put(entry, -entry.record.priority, entry.waits_since",
    ),
    Mutant(
        "an expired job joins when it is noticed",
        (
            Edit(
                "queue", "from taskharbor.model.times import to_us", "from taskharbor.model.times import from_us, to_us"
            ),
            Edit(
                "queue",
                "-entry.record.priority, entry.waits_since, entry.arrival",
                "-entry.record.priority, from_us(self.now) if entry.lease else entry.waits_since, entry.arrival",
            ),
        ),
    ),
    one("paused ignored", "reserve", " and not queue.paused]", "]"),
    one(
        "group limit off by one",
        "queue",
        "return self.limit - len(self.inflight)",
        "return self.limit + 1 - len(self.inflight)",
    ),
    one("the last group limit counts", "queue", "if name not in self.limits:", "if True:"),
    one("reserve limit off by one", "reserve", "while len(taken) < limit and", "while len(taken) <= limit and"),
    one(
        "ungrouped jobs first, always",
        "queue",
        "        self.groups_next = name is None\n",
        "        self.groups_next = False\n",
    ),
    one(
        "handover to the end of depends_on",
        "flows",
        "tuple(heir.record.id if id == old.record.id else id for id in dependent.record.depends_on)",
        "(*(id for id in dependent.record.depends_on if id != old.record.id), heir.record.id)",
    ),
    one("handed_to not noted", "settle", "lost=0, handed_to=heir, ", "lost=0, "),
    one(
        "a new dependency on the job that was handed over",
        "planning",
        "    if stored.handed_to is None:\n        return dependency\n",
        "    return dependency\n",
    ),
    one("prune at equality", "admin", " and first[0][0] < before:", " and first[0][0] <= before:"),
    one("prune takes dead letters", "store", "        if state is State.DLQ:\n", "        if False:\n"),
    one("prune takes what is needed", "admin", "if is_needed or open_flows[flow_id]:", "if open_flows[flow_id]:"),
    one("prune takes half a flow", "admin", "if is_needed or open_flows[flow_id]:", "if is_needed:"),
    one("delete takes what is needed", "admin", "        if needed_by:\n", "        if False:\n"),
    one("extend shortens", "settle", "max(entry.lease.expires_at, now + lease_for)", "now + lease_for"),
    one(
        "scheduled at equality",
        "records",
        "return State.SCHEDULED if is_ahead else State.READY",
        "return State.SCHEDULED if is_ahead or self.moment == now else State.READY",
    ),
    one(
        "inflight at equality",
        "records",
        "return State.INFLIGHT if is_ahead else State.READY",
        "return State.INFLIGHT if is_ahead or self.moment == now else State.READY",
    ),
    one("a cycle is stored", "planning", "        if stuck is not None:\n", "        if False:\n"),
    one(
        "the same token for a whole batch",
        "reserve",
        "tokens = new_tokens(len(taken))",
        "tokens = [*new_tokens(1)] * len(taken)",
    ),
    one("a repetition is refused", "settle", REPEATED, "        pass\n"),
    one(
        "another kind counts as a repetition",
        "settle",
        "entry.settled == this:",
        "entry.settled is not None and entry.settled[0] == outcome.lease.token:",
    ),
    one(
        "damaged records are handed out",
        "records",
        "    return damage.damage_of(entry.record) or (None if",
        "    return (None if",
    ),
    one(
        "an ack wakes no wait",
        "driver",
        "        with self._changing() as store:\n            return settle(store, ",
        "        with self.store.lock:\n            return settle(self.store, ",
    ),
    one("a result of jobs that are not done", "reading", "last.state is State.DONE and ", ""),
    one(
        "a result of a job whose heir is gone",
        "reading",
        "State.DONE and last.record.handed_to is None:",
        "State.DONE:",
    ),
    one(
        "a result for every id",
        "reading",
        "    found: dict[str, bytes | None] = {}\n    for id in ids:\n",
        "    found: dict[str, bytes | None] = dict.fromkeys(ids)\n    for id in ids:\n",
    ),
)


@contextmanager
def copied(mutant: Mutant | None, folder: Path) -> Iterator[Any]:
    """A copy of the memory driver's package with the mistake in it; None: as it is."""
    name = f"memory_copy_{abs(hash((mutant, str(folder))))}"
    target = folder / name
    shutil.copytree(SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    for shared in SHARED:
        shutil.copy(SOURCE.parent / f"{shared}.py", target)
    for edit in mutant.edits if mutant else ():
        _apply(target / f"{edit.module}.py", edit)
    for file in target.glob("*.py"):
        text = file.read_text(encoding="utf-8").replace(PACKAGE, name)
        for shared in SHARED:
            text = text.replace(f"{drivers.__name__}.{shared} ", f"{name}.{shared} ")
        file.write_text(text, encoding="utf-8")
    with imported_from(folder, name) as package:
        yield package


@contextmanager
def imported_from(folder: Path, name: str) -> Iterator[Any]:
    """A package in a folder, imported; forgotten at the end of the block."""
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            del sys.modules[module]


def _apply(file: Path, edit: Edit) -> None:
    text = file.read_text(encoding="utf-8")
    found = text.count(edit.old)
    if found != 1:
        raise LookupError(
            f"{file.name} of {SOURCE} or its parent holds the text to be mutated {found} times, expected once. "
            f"Say this mistake again in the words that stand there now:\n{edit.old}"
        )
    file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
