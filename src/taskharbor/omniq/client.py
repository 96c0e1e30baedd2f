"""The synchronous client: every operation of the OmniQ contract, and the extras that published clients have.

Each method builds an operation (operations.py), which the script runner sends. aio.py is generated from this file:
`python -m tests.omniq.aio_from_client`. A client may be used from many threads at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from taskharbor.model.clock import StoreClock
from taskharbor.omniq import operations, thread_consumer
from taskharbor.omniq.consumer import ConsumerSettings, check_handler, consumer_steps
from taskharbor.omniq.operations import BACKOFF_MS, CHILDREN_TTL_MS, MAX_ATTEMPTS, TIMEOUT_MS
from taskharbor.omniq.script_runner import ScriptRunner
from taskharbor.omniq.values import AckFailResult, BatchItem, Lane, ReserveResult


class OmniQ:
    """OmniQ v1 on Redis: `OmniQ("redis://…")`, or around a redis-py client (bytes or text, standalone or Cluster).

    Without `now_ms_override` the server's clock decides. Errors carry the contract's `code`; a server that cannot be
    reached is `BackendUnavailable`.
    """

    def __init__(self, target: Any) -> None:
        self._runner = ScriptRunner(target)
        self._inboxes: set[thread_consumer.ThreadInbox] = set()

    def close(self) -> None:
        """Close the connections, unless they belong to a client that the caller passed."""
        self._runner.close()

    def __enter__(self) -> OmniQ:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # The contract

    def publish(
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
        return self._runner.run(
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

    def reserve(self, queue: str, now_ms_override: int = 0) -> ReserveResult:
        """The next job under a lease of its `timeout_ms`; None if there is none; `PAUSED` if the queue is paused."""
        return self._runner.run(operations.reserve(queue, now_ms_override))

    def heartbeat(self, queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> int:
        """Renew the lease: it ends a whole timeout from now. Returns when."""
        return self._runner.run(operations.heartbeat(queue, job_id, lease_token, now_ms_override))

    def ack_success(self, queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> None:
        """The job is done."""
        self._runner.run(operations.ack_success(queue, job_id, lease_token, now_ms_override))

    def ack_fail(
        self, queue: str, job_id: str, lease_token: str, now_ms_override: int = 0, error: str | None = None
    ) -> AckFailResult:
        """The job failed: `("RETRY", due_ms)`, or `("FAILED", None)` when that was its last attempt. `error`: why."""
        return self._runner.run(operations.ack_fail(queue, job_id, lease_token, now_ms_override, error))

    def promote_delayed(self, queue: str, max_promote: int = 1000, now_ms_override: int = 0) -> int:
        """Make due jobs ready, at most `max_promote`; returns how many."""
        return self._runner.run(operations.promote_delayed(queue, max_promote, now_ms_override))

    def reap_expired(self, queue: str, max_reap: int = 1000, now_ms_override: int = 0) -> int:
        """End leases that are over, at most `max_reap`: jobs are retried after a backoff, or fail. Returns how many."""
        return self._runner.run(operations.reap_expired(queue, max_reap, now_ms_override))

    def pause(self, queue: str) -> str:
        """Grant no more leases on this queue; nothing else changes. Returns "OK"."""
        return self._runner.run(operations.pause(queue))

    def resume(self, queue: str) -> int:
        """Grant leases again. Returns 1 if the queue was paused, else 0."""
        return self._runner.run(operations.resume(queue))

    def is_paused(self, queue: str) -> bool:
        """Whether the queue is paused."""
        return self._runner.run(operations.is_paused(queue))

    def consume(
        self,
        queue: str,
        handler: thread_consumer.Handler,
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
        check_handler(handler, awaited=False)
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
        inbox = thread_consumer.ThreadInbox()
        self._inboxes.add(inbox)
        try:
            thread_consumer.run(consumer_steps(settings, StoreClock().monotonic), inbox, handler, self._runner.run)
        finally:
            self._inboxes.discard(inbox)

    def stop(self) -> None:
        """Stop every `consume` of this client, as a signal does. From any thread."""
        for inbox in list(self._inboxes):
            inbox.stop()

    # Beyond the contract

    def give_back(self, queue: str, job_id: str, lease_token: str, now_ms_override: int = 0) -> None:
        """End the lease without an outcome: the job goes to the end of its queue, and no attempt is spent."""
        self._runner.run(operations.give_back(queue, job_id, lease_token, now_ms_override))

    def retry_failed(self, queue: str, job_id: str, now_ms_override: int = 0) -> None:
        """Let a failed job begin anew."""
        self._runner.run(operations.retry_failed(queue, job_id, now_ms_override))

    def retry_failed_batch(self, queue: str, job_ids: Sequence[str], now_ms_override: int = 0) -> list[BatchItem]:
        """`retry_failed` for at most 100 ids in one call. A refused id carries the reason and does not affect the
        others."""
        return self._runner.run(operations.retry_failed_batch(queue, job_ids, now_ms_override))

    def remove_job(self, queue: str, job_id: str, lane: Lane) -> None:
        """Delete a job that is in this lane: wait, gwait (waiting in a group), delayed, failed or completed."""
        self._runner.run(operations.remove_job(queue, job_id, lane))

    def remove_jobs_batch(self, queue: str, lane: Lane, job_ids: Sequence[str]) -> list[BatchItem]:
        """`remove_job` for at most 100 ids in one call. A refused id carries the reason and does not affect the
        others."""
        return self._runner.run(operations.remove_jobs_batch(queue, lane, job_ids))

    def purge_failed(self, queue: str, before_ms: int, max_purge: int = 1000) -> int:
        """Delete jobs that failed before that moment, oldest first, at most `max_purge`; returns how many."""
        return self._runner.run(operations.purge_failed(queue, before_ms, max_purge))

    def set_group_limit(self, queue: str, gid: str, limit: int, now_ms_override: int = 0) -> None:
        """Change how many jobs of a group run at once, and let those start for which there is room now."""
        self._runner.run(operations.set_group_limit(queue, gid, limit, now_ms_override))

    def childs_init(self, key: str, expected: int, *, ttl_ms: int = CHILDREN_TTL_MS) -> None:
        """Begin to count the children of a fan-in. The counter expires after `ttl_ms`."""
        self._runner.run(operations.childs_init(key, expected, ttl_ms))

    def child_ack(self, key: str, child_id: str) -> int:
        """One child is done; returns how many are left. The same child again changes nothing; 0 is remembered for a
        day."""
        return self._runner.run(operations.child_ack(key, child_id))
