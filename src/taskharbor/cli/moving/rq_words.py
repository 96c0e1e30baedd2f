"""RQ's words, and ours: the options of a job, and the names that a program imports."""

from __future__ import annotations

from taskharbor.cli.moving.findings import Advice, differs, missing, same

JOB_OPTIONS: dict[str, tuple[str, Advice | None]] = {
    "job_timeout": (
        "timeout",
        differs("a plain function is killed at its timeout only with process=True; RQ raises an exception in it"),
    ),
    "job_id": ("idempotency_key", differs("TaskHarbor makes the ids: the key keeps a second job from being stored")),
    "at_front": ("priority", differs("a higher number is served first; all others have 0")),
    "meta": ("metadata", differs("keys and values of metadata are text; ctx.progress is for progress")),
}
"""Options of enqueue → ours, with what to know."""

DROPPED = {
    "description": "not needed: a job shows its type and its arguments",
    "result_ttl": "retention=… in the DSN: a result stays as long as its job, 24 hours unless the DSN says otherwise",
    "failure_ttl": "not needed: a dead job stays until it is requeued or deleted",
    "connection": "not needed: the harbor has its own connections",
    "unique": "idempotency_key= keeps a second job from being stored",
}

MISSING = {
    "ttl": "jobs do not expire; compare ctx.job.created_at in the handler and raise Cancel",
    "depends_on": "a job is not made to wait for another afterwards; enqueue both as chain(first.s(…), then.s(…))",
    "on_success": "the next step of a chain, or an observer of JobSucceeded",
    "on_failure": "on_failure= of a workflow, or @harbor.on_dead",
    "on_stopped": "an observer of JobCancelled",
    "repeat": "harbor.schedule(name, task.s(…), every=…) repeats",
    "webhooks": "there are none; a task that calls the address, started by a chain or @harbor.on_dead",
    "pipeline": "enqueue_many stores many jobs in one call",
}

_REGISTRY = "harbor.jobs(state={!r})"
_WORKER = ("taskharbor worker run --app tasks:harbor", differs("one process runs 16 jobs at once, without a fork each"))
NAMES: dict[str, tuple[str, Advice]] = {
    "rq.Queue": (
        "harbor = Harbor('redis://…', queues=[…])",
        same("one harbor for all queues; workers serve those that it lists and that tasks declare with queue="),
    ),
    "rq.Worker": _WORKER,
    "rq.SimpleWorker": _WORKER,
    "rq.SpawnWorker": _WORKER,
    "rq.worker_pool.WorkerPool": ("taskharbor worker run --app tasks:harbor --processes N", same("")),
    "rq.get_current_job": ("ctx: JobContext", same("a parameter with this annotation; ctx.job is the record")),
    "rq.job.get_current_job": ("ctx: JobContext", same("a parameter with this annotation; ctx.job is the record")),
    "rq.job.Job.fetch": ("harbor.job({})", same("")),
    "rq.job.Job.create": ("task.enqueue(…)", same("a task stores its own jobs")),
    "rq.job.Job.exists": ("harbor.job({}).info()", differs("JobNotFound if there is none")),
    "rq.cancel_job": ("harbor.job({}).cancel()", same("")),
    "rq.requeue_job": ("harbor.job({}).requeue()", same("")),
    "rq.registry.FailedJobRegistry": (_REGISTRY.format("dlq"), same("dead letters stay until requeued or deleted")),
    "rq.registry.FinishedJobRegistry": (_REGISTRY.format("done"), same("")),
    "rq.registry.StartedJobRegistry": (_REGISTRY.format("inflight"), same("")),
    "rq.registry.ScheduledJobRegistry": (_REGISTRY.format("scheduled"), same("")),
    "rq.registry.DeferredJobRegistry": (_REGISTRY.format("blocked"), same("")),
    "rq.registry.CanceledJobRegistry": (_REGISTRY.format("cancelled"), same("")),
    "rq.suspension.suspend": ("harbor.pause(queue)", differs("for one queue")),
    "rq.suspension.resume": ("harbor.resume(queue)", differs("for one queue")),
    "rq.command.send_stop_job_command": ("harbor.job(id).cancel()", differs("at the next heartbeat of its worker")),
    "rq.command.send_shutdown_command": ("", missing("stop a worker with SIGTERM")),
    "rq.command.send_kill_horse_command": ("", missing("harbor.job(id).cancel() kills process=True functions")),
    "rq.cron.register": (
        "harbor.schedule(name, {}.s(…), every=… or cron=…)",
        differs("any worker fires it; there is no scheduler to run"),
    ),
    "rq.scheduler.RQScheduler": ("", same("not needed: workers run what is due")),
    "rq_scheduler.Scheduler": (
        "harbor.schedule(name, task.s(…), cron=…)",
        differs("any worker fires it; there is no scheduler to run"),
    ),
    "rq.group.Group.create": ("group(…) of taskharbor.flow", same("")),
}
"""What a program imports from RQ and calls → ours, with what to know."""
