"""Reading and administering: other jobs, queues, leases and dead letters in the store cost nothing."""

from datetime import timedelta

from taskharbor.drivers import Ack, Fail, JobRecord, Seen, StoredAudit, replace
from taskharbor.drivers.queries import FlowQuery
from taskharbor.drivers.redis.flows import FlowPages
from taskharbor.model.amendment import Amend
from taskharbor.model.job import Figures
from taskharbor.model.times import from_ms
from tests import lanes
from tests.cost.meter import LEASE, START, Row, Store
from tests.cost.rows_queue import backlog

DEAD = lanes.figure(test=5000, full=100_000)
RUN = lanes.figure(test=4000, full=10_000)
EDGES = lanes.figure(test=500, full=10_000)
SOME = lanes.figure(test=10_000, full=50_000)
HELD = lanes.figure(test=5000, full=100_000)
ENTRIES = lanes.figure(test=20_000, full=100_000)
QUEUES = lanes.figure(test=300, full=1000)
FEW_GROUPS = lanes.figure(test=4200, full=30_000)
GROUPS = lanes.figure(test=9000, full=100_000)


async def nothing(store: Store) -> None:
    """Not even to warm up."""


async def queues(store: Store, size: int) -> None:
    """`size` queues, with a job in each."""
    jobs = [job for number in range(size) for job in store.jobs(1, queue=f"q{number}")]
    for first in range(0, size, 500):
        await store.driver.enqueue(jobs[first : first + 500], store.now)
    store.later()


async def unknown_results(store: Store) -> None:
    ids = [f"unknown{number}" for number in range(1000)]
    assert await store.driver.results(ids) == {}


async def flow(store: Store) -> None:
    steps = store.jobs(99, flow_id=f"f{store.made}")
    (join,) = store.jobs(1, flow_id=steps[0].flow_id, depends_on=tuple(job.id for job in steps))
    await store.driver.enqueue([*steps, join], store.later())


async def dead(store: Store, size: int) -> None:
    """`size` dead jobs, and 1,000 that died before them."""
    for first in range(0, size + 1000, 1000):
        await store.put(min(1000, size + 1000 - first))
        taken = await store.take(1000)
        assert set(await store.driver.settle([Fail(held.lease, "no", 1, store.now) for held in taken], store.now)) == {
            None
        }
        store.later()


async def requeue_the_oldest(store: Store) -> None:
    oldest = [id.decode() for id in store.client.lrange("{default}:failed", -100, -1)]
    assert await store.driver.requeue(oldest, store.later()) == [None] * 100


async def requeue_as_seen(store: Store) -> None:
    oldest = [id.decode() for id in store.client.lrange("{default}:failed", -100, -1)]
    ends = [from_ms(int(store.client.hget(f"{{default}}:job:{id}", "th_fin") or 0)) for id in oldest]
    answers = await store.driver.requeue(oldest, store.later(), seen=[Seen(1, 0, end) for end in ends])
    assert answers == [None] * 100


async def delete_the_oldest(store: Store) -> None:
    oldest = [id.decode() for id in store.client.lrange("{default}:failed", -100, -1)]
    assert await store.driver.delete(oldest) == [None] * 100


async def line(store: Store, size: int) -> None:
    """`size` ready jobs, a thousand in a millisecond."""
    for _ in range(0, size, 1000):
        await store.put(min(1000, size))
        store.later()


async def cancel_middle(store: Store) -> None:
    middle = store.client.llen("{default}:wait") // 2
    ids = [id.decode() for id in store.client.lrange("{default}:wait", middle - 5, middle + 4)]
    assert await store.driver.cancel(ids, store.later()) == [None] * 10


async def held(store: Store, size: int) -> None:
    """`size` leases of others, and 50 of a worker."""
    for first in range(0, size, 1000):
        await store.put(min(1000, size - first))
        await store.take(1000)
    await store.put(50)
    assert len(await store.driver.reserve(["default"], store.later(), LEASE, 50, "dead")) == 50


async def release(store: Store) -> None:
    number = await store.driver.release("dead", store.later())
    assert number in (0, 50)


async def held_in_groups(store: Store, size: int) -> None:
    """Half of the groups are full, with a job that is leased and one that waits; the others have one that waits."""
    jobs = store.jobs(size)
    halves = [replace(job, group=f"g{number % (2 * size // 3)}") for number, job in enumerate(jobs)]
    for first in range(0, size, 1000):
        await store.driver.enqueue(halves[first : first + 1000], store.now)
    for _ in range(size // 3 // 100):
        assert len(await store.take(100, lease=LEASE)) == 100


async def count(store: Store) -> None:
    """Without looking for queues of foreign clients, which walks the keys."""
    ((_, (ready, *_)),) = await store.driver.reader._counts(["default"], store.ms)
    assert ready == store.made - store.made // 300 * 100  # as many as `held_in_groups` has left


async def nothing_to_prune(store: Store) -> None:
    assert await store.driver.prune(store.now, 1000) == 0


async def run(store: Store, size: int) -> None:
    """A flow of `size` jobs, in two queues."""
    for first in range(0, size, 1000):
        await store.put(min(1000, size - first), flow_id="run", queue=f"q{first // 1000 % 2}")
    store.later()


async def read_flow(store: Store) -> None:
    assert len((await store.driver.flow("run", store.now)).nodes) > 500


async def cancel_flow(store: Store) -> None:
    assert await store.driver.cancel_flow("run", store.later()) > 500


# Calls that are one script for any number of edges, because the contract wants one transaction. Measured at one size.


def chord(store: Store, size: int) -> list[JobRecord]:
    steps = store.jobs(size)
    return [*steps, *store.jobs(1, queue="join", depends_on=tuple(job.id for job in steps))]


async def enqueue_chord(store: Store) -> None:
    await store.driver.enqueue(chord(store, EDGES), store.later())


async def stored_chord(store: Store, size: int) -> None:
    """A chord whose steps are done."""
    await store.driver.enqueue(chord(store, size), store.now)
    while taken := await store.take(1000):
        await store.driver.settle([Ack(one.lease) for one in taken], store.now)


async def ack_join(store: Store) -> None:
    (join,) = await store.take(1, ["join"])
    assert await store.driver.settle([Ack(join.lease)], store.later()) == [None]


async def fan_out(store: Store, size: int) -> None:
    """A job with `size` dependents."""
    (first,) = store.jobs(1, queue="first")
    await store.driver.enqueue([first], store.now)
    for begin in range(0, size, 1000):
        await store.put(min(1000, size - begin), depends_on=(first.id,))


async def ack_first(store: Store) -> None:
    (first,) = await store.take(1, ["first"])
    assert await store.driver.settle([Ack(first.lease)], store.later()) == [None]


async def no_edges(store: Store, size: int) -> None:
    """Nothing stands beside."""


async def one_foreign(store: Store, size: int) -> None:
    """`size` ready jobs, and one that a foreign client published."""
    await backlog(store, size)
    store.client.hset(
        "{default}:job:foreign", mapping={"id": "foreign", "payload": "{}", "state": "wait", "attempt": 0}
    )
    store.client.rpush("{default}:wait", "foreign")


async def done_beside_dead(store: Store, size: int) -> None:
    """`size` done jobs, and 50 dead ones."""
    for _ in range(0, size, 1000):
        await store.put(1000)
        taken = await store.take(1000)
        await store.driver.settle([Ack(held.lease) for held in taken], store.later())
    await store.put(50)
    taken = await store.take(50)
    await store.driver.settle([Fail(held.lease, "no", 1, store.now) for held in taken], store.later())


async def list_dead(store: Store) -> None:
    page = await store.driver.list(now=store.now, queue="default", state="dlq", order="-id", payloads=False)
    assert len(page.items) == 50
    assert page.cursor is None


async def page_downwards(store: Store) -> None:
    assert len((await store.driver.list(now=store.now, queue="default", order="-id", limit=100)).items) == 100


async def nothing_fits(store: Store) -> None:
    """A call that looks at as many jobs as it may."""
    page = await store.driver.list(now=store.now, queue="default", error_class="ValueError")
    assert not page.items


async def scheduled_everywhere(store: Store, size: int) -> None:
    """`size` scheduled jobs in a thousand queues."""
    for number in range(1000):
        await store.put(max(1, size // 1000), queue=f"q{number}", run_at=from_ms(store.ms + 60_000 + number))


async def next_moment(store: Store) -> None:
    found = await store.driver.upcoming([f"q{number}" for number in range(1000)], store.now)
    assert found == from_ms(store.ms + 60_000)


async def waiting_everywhere(store: Store, size: int) -> None:
    """`size` ready jobs in a thousand queues, a quarter of them in groups."""
    for number in range(1000):
        group = "g" if number % 4 == 0 else None
        await store.put(max(1, size // 1000), queue=f"q{number}", group=group)


async def all_heads(store: Store) -> None:
    found = await store.driver.heads([f"q{number}" for number in range(1000)], store.now, 1)
    assert all(head.next_known and len(head.next) == 1 for head in found)
    assert all(head.oldest_known and head.oldest_at is not None for head in found)


async def one_head(store: Store) -> None:
    (head,) = await store.driver.heads(["default"], store.now, 15)
    assert (len(head.next), head.oldest_known) == (15, True)


async def flows_beside(store: Store, size: int) -> None:
    """A hundred flows of `size` jobs together."""
    for number in range(100):
        await store.put(max(20, size // 100), flow_id=f"f{number:03}")


async def list_flows(store: Store) -> None:
    query = FlowQuery(None, None, None, newest=True, after=None, limit=100)
    page = await FlowPages(store.driver.store, query, ["default"]).page()
    assert len(page.items) == 100


async def amend(store: Store) -> None:
    """Jobs at the head of the queue."""
    ids = [id.decode() for id in store.client.lrange("{default}:wait", 0, 9)]
    changes = [Amend(id=id, deliveries=0, edits=0, run_at=None, payload=b"{}") for id in ids]
    assert await store.driver.amend(changes, store.later()) == [None] * 10


async def figures_of_queues(store: Store, size: int) -> None:
    """`size` queues with figures of ten hours."""
    for hour in range(10):
        at = from_ms(START - START % 3_600_000 - hour * 3_600_000)
        await store.driver.add_figures([Figures(at, f"q{number}", {"done": 1}) for number in range(size)], store.now)


async def add_figures(store: Store) -> None:
    at = from_ms(START - START % 60_000)
    await store.driver.add_figures([Figures(at, f"new{number}", {"done": 1}) for number in range(10)], store.now)


async def read_figures(store: Store) -> None:
    now = from_ms(START - START % 3_600_000)
    assert len(await store.driver.figures(now - timedelta(hours=72), now + timedelta(hours=1), "q7")) == 10


def entries(count: int, first: int = 0, by: str = "anna") -> list[StoredAudit]:
    """One in each second, each of 500 bytes."""
    return [
        StoredAudit(id=f"e{number:07}", at=from_ms(START + 1000 * number), by=by, data=b"x" * 500)
        for number in range(first, first + count)
    ]


async def audited(store: Store, size: int) -> None:
    """`size` entries."""
    for first in range(0, size, 1000):
        await store.driver.put_audit(entries(1000, first), store.now)


async def put_audit(store: Store) -> None:
    await store.driver.put_audit(entries(10, 5_000_000 + store.made), store.now)
    store.made += 10


async def page_of_audit(store: Store) -> None:
    assert len((await store.driver.audit(limit=100)).items) == 100


async def audit_of_nobody(store: Store) -> None:
    """A call that looks at as many entries as it may."""
    assert not (await store.driver.audit(by="nobody")).items


async def forget_audit(store: Store) -> None:
    """A call that forgets as many entries as it may."""
    await store.driver.put_audit([], from_ms(START) + timedelta(days=3650))


async def kept(store: Store, size: int) -> None:
    """`size` done jobs that are kept for a year."""
    for _ in range(0, size, 1000):
        await store.put(1000, keep_for=timedelta(days=365))
        taken = await store.take(1000)
        await store.driver.settle([Ack(held.lease) for held in taken], store.later())


async def page(store: Store) -> None:
    store.driver.reader.cache.foreign_ids.clear()  # a page that searches
    assert len((await store.driver.list(now=store.now, queue="default", limit=100)).items) == 100


ROWS = [
    Row("`list` of 50 dead jobs, the last first", done_beside_dead, list_dead, small=2000, large=SOME, sliced=True),
    Row("`list` of 100 in the order of ids, downwards", backlog, page_downwards, small=3000, sliced=True),
    Row("`list` with a filter that no job fits", backlog, nothing_fits, small=3000, sliced=True, times=1),
    Row("`upcoming` of 1,000 queues", scheduled_everywhere, next_moment, small=1000, large=SOME, times=2),
    Row("`heads` of 1,000 queues", waiting_everywhere, all_heads, small=1000, large=SOME, sliced=True, times=2),
    Row("`heads` of one queue, with the next 15", backlog, one_head, small=3000),
    Row("`flows`, 100 of them", flows_beside, list_flows, small=2000, large=SOME, sliced=True, times=2),
    Row("`amend` of the 10 jobs at the head", backlog, amend, small=3000, sliced=True),
    Row("`add_figures` of 10 queues", figures_of_queues, add_figures, small=10, large=QUEUES, times=2),
    Row("`figures` of one queue for 72 hours", figures_of_queues, read_figures, small=10, large=QUEUES, times=2),
    Row("`put_audit` of 10 entries", audited, put_audit, small=1000, large=ENTRIES),
    Row("`put_audit` that forgets 1,000", audited, forget_audit, small=9000, large=ENTRIES, sliced=True),
    Row("`audit` of 100 entries", audited, page_of_audit, small=1000, large=ENTRIES),
    Row("`audit` of someone who has none", audited, audit_of_nobody, small=2000, large=ENTRIES, sliced=True, times=2),
    Row("`prune` beside jobs that are kept", kept, nothing_to_prune, small=3000, large=SOME),
    Row("`list` of 100, one foreign job", one_foreign, page, small=SOME, sliced=True, times=2),
    Row("`enqueue` of a chord of 10,000", no_edges, enqueue_chord, small=EDGES, large=EDGES, times=1),
    Row("the ack of a join of 10,000", stored_chord, ack_join, small=EDGES, large=EDGES, times=1, warm=nothing),
    Row("an ack that releases 10,000", fan_out, ack_first, small=EDGES, large=EDGES, times=1, warm=nothing),
    Row("`flow` of 10,000 jobs", run, read_flow, small=2000, large=RUN, sliced=True, times=1),
    # A slice searches a long list once, for all of its jobs that stand near each other.
    Row(
        "`cancel_flow` of 10,000 jobs",
        run,
        cancel_flow,
        small=2000,
        large=RUN,
        sliced=True,
        times=1,
        warm=nothing,
        searches=True,
    ),
    Row("`requeue` of the 100 oldest dead jobs", dead, requeue_the_oldest, large=DEAD, times=3),
    Row("`requeue` of the 100 oldest dead jobs, as they were seen", dead, requeue_as_seen, large=DEAD, times=3),
    Row("`delete` of the 100 oldest dead jobs", dead, delete_the_oldest, large=DEAD, times=3),
    # A list is searched for the job: foreign clients would run it if it stayed there.
    Row("`cancel` of 10 jobs in the middle of the queue", line, cancel_middle, searches=True, sliced=True, times=3),
    Row("`release` of a worker's leases", held, release, small=3000, large=HELD, sliced=True, times=1, warm=nothing),
    Row("`counts` of a queue with groups", held_in_groups, count, FEW_GROUPS, GROUPS, sliced=True, times=2),
    Row("`prune` with nothing to prune", backlog, nothing_to_prune, small=3000),
    # Like `inspect` of an unknown id, it walks the keys for queues that only foreign clients use.
    Row("`results` of 1,000 unknown ids", queues, unknown_results, 10, QUEUES, searches=True, sliced=True, times=1),
    Row("`enqueue` of a flow of 100", queues, flow, small=10, large=QUEUES, times=2),
]
