"""Celery's words and ours: options of a call, remote control, signals, exceptions, what a task knows of its run."""

from __future__ import annotations

from taskharbor.cli.moving.findings import Advice, differs, missing, same

APPLY_OPTIONS: dict[str, tuple[str, Advice | None]] = {
    "countdown": ("delay", None),
    "eta": ("run_at", same("run_at takes a datetime with a time zone")),
    "queue": ("queue", same("workers serve the queues that tasks declare; list others in Harbor(queues=[…])")),
    "priority": ("priority", differs("a higher number is served first, on every store")),
    "task_id": (
        "idempotency_key",
        differs("TaskHarbor makes the ids: the key keeps a second job from being stored, handle.id is the id"),
    ),
    "headers": ("metadata", differs("keys and values of metadata are text")),
    "time_limit": ("timeout", differs("a plain function is killed at its timeout only with process=True")),
    "soft_time_limit": ("timeout", differs("a plain function is asked by ctx.cancelled; no exception is raised in it")),
}
"""Options of apply_async → ours, with what to know."""

DROPPED_OPTIONS = {
    "retry": "not needed: a call is repeated while the store cannot be reached, within call_timeout seconds",
    "retry_policy": "not needed: harbor.within(seconds) bounds how long a call may take",
    "ignore_result": "not needed: a function that returns None stores no result",
    "add_to_parent": "not needed",
    "shadow": "not needed: name= of a call is another job type",
    "connection": "not needed: the harbor has its own connections; connection= here is for your own transaction",
    "producer": "not needed: the harbor has its own connections",
}

MISSING_OPTIONS = {
    "expires": "jobs do not expire; compare ctx.job.created_at in the handler and raise Cancel",
    "link": "there are no callbacks of a job; put the next step into a chain",
    "link_error": "there are no callbacks of a job; on_failure= of a chain, or @harbor.on_dead",
    "serializer": "payloads are JSON, by the annotations of the parameters",
    "compression": "payloads are stored as they are",
    "exchange": "there are queues, no exchanges; name the queue",
    "routing_key": "there are queues, no exchanges; name the queue",
    "stamped_headers": "there are no stamps; metadata= travels with a job",
}

CONTROL: dict[str, tuple[str, Advice]] = {
    "revoke": ("harbor.job({}).cancel()", differs("a running handler learns it at its next heartbeat")),
    "terminate": ("harbor.job({}).cancel()", differs("only process=True functions are killed")),
    "purge": (
        "harbor.jobs(state='ready').delete()",
        differs("an operation over many jobs, which can be tried with dry_run=True"),
    ),
    "inspect": ("harbor.workers()", differs("what workers and queues do is read from the store")),
    "ping": ("harbor.workers()", differs("workers report to the store; nothing is asked of them")),
    "rate_limit": ("", missing("there are no rate limits")),
    "time_limit": ("", missing("a task's timeout is in the code; harbor.job(id).amend(timeout=…) changes one job")),
    "broadcast": ("", missing("no message reaches all workers; a job runs on one of them")),
    "add_consumer": ("harbor.resume({})", differs("workers serve the queues they started with; queues can be paused")),
    "cancel_consumer": ("harbor.pause({})", differs("it pauses the queue for all workers")),
    "pool_grow": ("", missing("the size of a worker is given when it starts: --concurrency, --processes")),
    "pool_shrink": ("", missing("the size of a worker is given when it starts: --concurrency, --processes")),
    "autoscale": ("", missing("the size of a worker is given when it starts: --concurrency, --processes")),
    "shutdown": ("", missing("stop a worker with SIGTERM")),
}

_LIFESPAN = ("Harbor(lifespan=…)", differs("an async context manager around the life of each worker process"))
_MIDDLEWARE = ("middleware of the harbor", differs("middleware runs around every job"))
SIGNALS: dict[str, tuple[str, Advice]] = {
    "worker_init": _LIFESPAN,
    "worker_process_init": _LIFESPAN,
    "worker_process_shutdown": _LIFESPAN,
    "worker_shutdown": _LIFESPAN,
    "worker_ready": ("an observer of WorkerStarted", differs("Harbor(observers=[…])")),
    "task_prerun": _MIDDLEWARE,
    "task_postrun": _MIDDLEWARE,
    "task_success": ("an observer of JobSucceeded", differs("Harbor(observers=[…])")),
    "task_failure": (
        "an observer of JobFailed or JobDeadLettered",
        differs("JobFailed for each failure, JobDeadLettered for the last; @harbor.on_dead starts a job"),
    ),
    "task_retry": ("an observer of JobRetried", differs("Harbor(observers=[…])")),
    "task_revoked": ("an observer of JobCancelled", differs("Harbor(observers=[…])")),
    "task_received": ("an observer of JobReserved", differs("Harbor(observers=[…])")),
    "task_unknown": ("an observer of JobUnknown", differs("such a job is given back, never dropped")),
    "before_task_publish": ("enqueue middleware of the harbor", differs("it sees the job before it is stored")),
    "after_task_publish": ("an observer of JobEnqueued", differs("Harbor(observers=[…])")),
    "setup_logging": (
        "configure_logging(…)",
        differs("workers log to the logger `taskharbor`"),
    ),
    "after_setup_logger": ("configure_logging(…)", differs("workers log to the logger `taskharbor`")),
}

EXCEPTIONS: dict[str, tuple[str, Advice]] = {
    "SoftTimeLimitExceeded": (
        "ctx.cancelled.check()",
        differs("it raises TimeoutError between the steps of a plain function; a coroutine is cancelled"),
    ),
    "TimeLimitExceeded": ("", missing("a job past its timeout has failed with TimeoutError; nothing is raised in it")),
    "Retry": ("RetryLater", same("raise RetryLater(delay)")),
    "Ignore": ("Cancel", differs("raise Cancel(reason): the job is cancelled")),
    "Reject": ("Unrecoverable", differs("raise Unrecoverable(reason): a dead letter; RetryLater or Snooze to requeue")),
    "MaxRetriesExceededError": ("", missing("after max_attempts the job is a dead letter; nothing is raised in it")),
    "TimeoutError": ("TimeoutError", same("handle.result(timeout) raises Python's own TimeoutError")),
    "TaskRevokedError": ("JobCancelled", same("handle.result() raises JobCancelled")),
    "OperationalError": ("BackendUnavailable", same("the store cannot be reached")),
}

REQUEST = {
    "id": "ctx.job.id",
    "task": "ctx.job.type",
    "retries": "ctx.job.attempts",
    "eta": "ctx.job.run_at",
    "hostname": "ctx.job.ran_on",
    "root_id": "ctx.job.flow_id",
    "group": "ctx.job.flow_id",
    "headers": "ctx.job.metadata",
    "delivery_info": "ctx.job.queue",
    "args": "the parameters themselves",
    "kwargs": "the parameters themselves",
    "timelimit": "ctx.job.timeout",
}
