"""The asynchronous client: the methods of client.py, awaited. It belongs to one event loop.

Generated from client.py by `python -m tests.omniq.aio_from_client`; change that file.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from taskharbor.model.clock import StoreClock
from taskharbor.omniq import operations, task_consumer
from taskharbor.omniq.consumer import ConsumerSettings, check_handler, consumer_steps
from taskharbor.omniq.operations import BACKOFF_MS, CHILDREN_TTL_MS, MAX_ATTEMPTS, TIMEOUT_MS
from taskharbor.omniq.script_runner import AsyncScriptRunner
from taskharbor.omniq.values import AckFailResult, BatchItem, Lane, ReserveResult


class AsyncOmniQ:
    """OmniQ v1 on Redis, awaited: `AsyncOmniQ("redis://…")`, or around a client of `redis.asyncio`. See `OmniQ`."""

    def __init__(self, target: Any) -> None:
        self._runner = AsyncScriptRunner(target)
        self._inboxes: set[task_consumer.TaskInbox] = set()

    async def close(self) -> None:
        """Close the connections, unless they belong to a client that the caller passed."""
        await self._runner.close()

    async def __aenter__(self) -> AsyncOmniQ:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    # The contract

    async def publish(
        self,
        queue: str,
        payload: dict[str, Any] | list[Any],
        *,
        job_id: str | None = None,
        timeout_ms: int = TIMEOUT_MS,
        max_attempts: int = MAX_ATTEMPTS,
        backoff_ms: int = BACKOFF_MS,
        due_ms: int | None = None,
        gid: str | None = None,
        group_limit: int | None = None,
        now_ms_override: int = 0,
    ) -> str:
        """Store a job and return its id. A job that is alive stays as it is; an id whose job has ended begins anew.

        Options:
            job_id: An id of your own. Default: a new one.
            timeout_ms: How long a lease of the job lasts, and so how long a handler may go without a heartbeat.
            max_attempts: The attempt that is the last one.
            backoff_ms: The pause before the next attempt.
            due_ms: Not before this moment, in milliseconds since 1970.
            gid: A group: its jobs start in order.
            group_limit: How many jobs of the group may run at once. Default: 1, unless an earlier job set another.
        """
        return await self._runner.run(
            operations.publish(
                queue,
                payload,
                job_id,
                timeout_ms,
                max_attempts,
                backoff_ms,
                due_ms,
                gid,
                group_limit,
                now_ms_override,
            )
        )

    async def reserve(self, queue: str, now_ms_override: int = 0) -> ReserveResult:
        """The next job under a lease of its `timeout_ms`; None if there is none; `PAUSED` if the queue is paused."""
        return await self._runner.run(operations.reserve(queue, now_ms_override))

    async def heartbeat(self, queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> int:
        """Renew the lease: it ends a whole timeout from now. Returns when."""
        return await self._runner.run(operations.heartbeat(queue, job_id, lease_token, now_ms_override))

    async def ack_success(self, queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> None:
        """The job is done."""
        await self._runner.run(operations.ack_success(queue, job_id, lease_token, now_ms_override))

    async def ack_fail(
        self, queue: str, job_id: str, lease_token: str, now_ms_override: int = 0, error: str | None = None
    ) -> AckFailResult:
        """The job failed: `("RETRY", due_ms)`, or `("FAILED", None)` when that was its last attempt. `error`: why."""
        return await self._runner.run(operations.ack_fail(queue, job_id, lease_token, now_ms_override, error))

    async def promote_delayed(self, queue: str, max_promote: int = 1000, now_ms_override: int = 0) -> int:
        """Make due jobs ready, at most `max_promote`; returns how many."""
        return await self._runner.run(operations.promote_delayed(queue, max_promote, now_ms_override))

    async def reap_expired(self, queue: str, max_reap: int = 1000, now_ms_override: int = 0) -> int:
        """End leases that are over, at most `max_reap`: jobs are retried after a backoff, or fail. Returns how many."""
        return await self._runner.run(operations.reap_expired(queue, max_reap, now_ms_override))

    async def pause(self, queue: str) -> str:
        """Grant no more leases on this queue; nothing else changes. Returns "OK"."""
        return await self._runner.run(operations.pause(queue))

    async def resume(self, queue: str) -> int:
        """Grant leases again. Returns 1 if the queue was paused, else 0."""
        return await self._runner.run(operations.resume(queue))

    async def is_paused(self, queue: str) -> bool:
        """Whether the queue is paused."""
        return await self._runner.run(operations.is_paused(queue))

    async def consume(
        self,
        queue: str,
        handler: task_consumer.AsyncHandler,
        *,
        drain: bool = True,
        poll_interval_s: float = 0.05,
        promote_interval_s: float = 1.0,
        promote_batch: int = 1000,
        reap_interval_s: float = 1.0,
        reap_batch: int = 1000,
        heartbeat_interval_s: float | None = None,
        grace_s: float = 1.0,
    ) -> None:
        """Run `handler(ctx)` for one job after the other until TERM, INT or `stop()`.

        With `drain` the current job is finished first; without it, or at the second signal, the handler is interrupted
        and its job given back. A handler whose lease is lost is interrupted, and nothing is acked.

        Options:
            drain: Whether to finish the current job when the consumer stops.
            poll_interval_s: How long to wait before an empty queue is asked again.
            promote_interval_s: How often due jobs are made ready.
            promote_batch: How many of them at a time.
            reap_interval_s: How often leases that are over are ended.
            reap_batch: How many of them at a time.
            heartbeat_interval_s: How often the lease is renewed. Default: a third of it.
            grace_s: How long a handler that was interrupted may take to end.
        """
        check_handler(handler, awaited=True)
        settings = ConsumerSettings(
            queue=queue,
            drain=drain,
            poll_interval_s=poll_interval_s,
            promote_interval_s=promote_interval_s,
            promote_batch=promote_batch,
            reap_interval_s=reap_interval_s,
            reap_batch=reap_batch,
            heartbeat_interval_s=heartbeat_interval_s,
            grace_s=grace_s,
        )
        inbox = task_consumer.TaskInbox()
        self._inboxes.add(inbox)
        try:
            await task_consumer.run(consumer_steps(settings, StoreClock().monotonic), inbox, handler, self._runner.run)
        finally:
            self._inboxes.discard(inbox)

    def stop(self) -> None:
        """Stop every `consume` of this client, as a signal does. From any thread."""
        for inbox in list(self._inboxes):
            inbox.stop()

    # Beyond the contract

    async def give_back(self, queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> None:
        """End the lease without an outcome: the job goes to the end of its queue, and no attempt is spent."""
        await self._runner.run(operations.give_back(queue, job_id, lease_token, now_ms_override))

    async def retry_failed(self, queue: str, job_id: str, now_ms_override: int = 0) -> None:
        """Let a failed job begin anew."""
        await self._runner.run(operations.retry_failed(queue, job_id, now_ms_override))

    async def retry_failed_batch(self, queue: str, job_ids: Sequence[str], now_ms_override: int = 0) -> list[BatchItem]:
        """`retry_failed` for at most 100 ids in one call. A refused id carries the reason and does not affect the
        others."""
        return await self._runner.run(operations.retry_failed_batch(queue, job_ids, now_ms_override))

    async def remove_job(self, queue: str, job_id: str, lane: Lane) -> None:
        """Delete a job that is in this lane: wait, gwait (waiting in a group), delayed, failed or completed."""
        await self._runner.run(operations.remove_job(queue, job_id, lane))

    async def remove_jobs_batch(self, queue: str, lane: Lane, job_ids: Sequence[str]) -> list[BatchItem]:
        """`remove_job` for at most 100 ids in one call. A refused id carries the reason and does not affect the
        others."""
        return await self._runner.run(operations.remove_jobs_batch(queue, lane, job_ids))

    async def purge_failed(self, queue: str, before_ms: int, max_purge: int = 1000) -> int:
        """Delete jobs that failed before that moment, oldest first, at most `max_purge`; returns how many."""
        return await self._runner.run(operations.purge_failed(queue, before_ms, max_purge))

    async def set_group_limit(self, queue: str, gid: str, limit: int, now_ms_override: int = 0) -> None:
        """Change how many jobs of a group run at once, and let those start for which there is room now."""
        await self._runner.run(operations.set_group_limit(queue, gid, limit, now_ms_override))

    async def childs_init(self, key: str, expected: int, *, ttl_ms: int = CHILDREN_TTL_MS) -> None:
        """Begin to count the children of a fan-in. The counter expires after `ttl_ms`."""
        await self._runner.run(operations.childs_init(key, expected, ttl_ms))

    async def child_ack(self, key: str, child_id: str) -> int:
        """One child is done; returns how many are left. The same child again changes nothing; 0 is remembered for a
        day."""
        return await self._runner.run(operations.child_ack(key, child_id))
