"""celery: its worker in this process, plain functions, acknowledged after they ran, results that are not kept.

No gossip, no mingle, no heartbeat, no events, no rate limits. The pools solo and threads were tried, with prefetching
of 4 (its default), 100 and without a limit: they did the same.
"""

from __future__ import annotations

from typing import Any

from celery import Celery

from bench import meter
from bench.meter import Order
from bench.peers.modes import modes

POOL = "solo"
PREFETCH = 100


class App:
    """celery behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._app: Any = Celery("bench", broker=order.address)
        self._app.conf.update(
            task_ignore_result=True,
            task_acks_late=True,
            worker_prefetch_multiplier=PREFETCH,
            worker_disable_rate_limits=True,
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
            worker_send_task_events=False,
            broker_connection_retry_on_startup=True,
        )
        self._task: Any = self._app.task(name="noop")(meter.job)

    def send(self) -> None:
        """One call for each."""
        self._task.delay()

    def send_many(self, jobs: int) -> None:
        """Calls on one connection."""
        with self._app.producer_or_acquire() as producer:
            for _ in range(jobs):
                self._task.apply_async(producer=producer)

    def work(self) -> None:
        """Its worker."""
        self._app.Worker(
            pool=POOL,
            concurrency=1,
            loglevel="ERROR",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        ).start()


MODES = modes(App)

if __name__ == "__main__":
    meter.main(MODES)
