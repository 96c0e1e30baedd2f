"""Reading and administering: what others published, queued, hold or left dead beside it costs nothing."""

from tests import lanes
from tests.cost.meter import Row, Store
from tests.cost.rows_line import backlog

QUEUES = lanes.figure(test=300, chaos=1000)


async def queues(store: Store, size: int) -> None:
    """So many queues, with a job in each."""
    jobs = [job for number in range(size) for job in store.jobs(1, queue=f"q{number}")]
    for first in range(0, size, 500):
        await store.driver.enqueue(jobs[first : first + 500], store.now)
    store.later()


async def unknown_results(store: Store) -> None:
    ids = [f"unknown{number}" for number in range(1000)]
    assert set((await store.driver.results(ids)).values()) == {None}


async def flow(store: Store) -> None:
    steps = store.jobs(99, flow_id=f"f{store.made}")
    (join,) = store.jobs(1, flow_id=steps[0].flow_id, depends_on=tuple(job.id for job in steps))
    await store.driver.enqueue([*steps, join], store.later())


async def nothing_to_prune(store: Store) -> None:
    assert await store.driver.prune(store.now, 1000) == 0


ROWS = [
    Row("`prune` with nothing to prune", backlog, nothing_to_prune, small=3000),
    Row("`results` of 1,000 unknown ids", queues, unknown_results, small=10, large=QUEUES, times=2),
    Row("`enqueue` of a flow of 100", queues, flow, small=10, large=QUEUES, times=2),
]
