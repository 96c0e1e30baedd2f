"""Advice for names that other libraries use: `task.delay`, `countdown=`, `handle.get`.

Only for errors: a name is looked up here when there is no such attribute or option.
"""

from __future__ import annotations


def _of_each(hints: dict[str, str]) -> dict[str, str]:
    """The hint for each name. `hints`: each by all the names that it is for."""
    return {name: hint for names, hint in hints.items() for name in names.split()}


OF_TASKS = _of_each(
    {
        "apply": "{0}(…) just calls the function",
        "apply_async": "{0}.options(delay=…, queue=…).enqueue(…) stores a job",
        "chunks enqueue_many map starmap": "harbor.enqueue_many([{0}.s(…), …]) stores many jobs",
        "configure kicker using": "{0}.options(…) changes options",
        "defer delay perform_async send": "{0}.enqueue(…) stores a job",
        "defer_async kiq": "await {0}.aenqueue(…) stores a job",
        "delay_on_commit": "{0}.options(connection=…).enqueue(…) stores a job in your own transaction",
        "perform_in schedule": "{0}.options(delay=…).enqueue(…) stores a job for later",
        "retry": "a handler raises RetryLater(delay)",
        "send_with_options": "{0}.options(…).enqueue(…) stores a job",
        "si signature subtask": "{0}.s(…) is a step for enqueue_many, chain, group and chord",
    }
)
_ERROR = "{0}.executions() lists what it raised, {0}.info().job.last_error is the newest"
OF_HANDLES = _of_each(
    {
        "abort revoke": "{0}.cancel()",
        "edit update": "{0}.amend(…)",
        "error exc_info exception traceback": _ERROR,
        "failed get_status ready state successful": "{0}.status()",
        "forget": "{0}.delete()",
        "get get_result join return_value wait_result": "{0}.result(timeout=…)",
        "history": "{0}.executions()",
        "meta": "{0}.info().job.metadata",
        "refresh": "{0}.info()",
        "retry": "{0}.requeue()",
    }
)
OF_OPTIONS = _of_each(
    {
        "at eta": "use run_at=",
        "autoretry_for retry_on_error": "every exception is retried; unrecoverable= names those that are not",
        "base": "there are no base classes; middleware of the harbor runs around every job",
        "bind pass_context": "a parameter annotated `ctx: JobContext` receives the job",
        "countdown schedule_in": "use delay=",
        "default_retry_delay": "use retry=Fixed(seconds)",
        "expires": "jobs do not expire; a handler can compare ctx.job.created_at and raise Cancel",
        "ignore_result": "not needed: a handler that returns nothing stores nothing",
        "job_timeout soft_time_limit time_limit": "use timeout=",
        "lock": "use group= with group_limit=1",
        "max_retries retries": "use max_attempts=, which counts the first attempt too",
        "min_backoff": "use retry=Exponential(base=…)",
        "queue_name": "use queue=",
        "queueing_lock": "use idempotency_key=",
        "rate_limit": "there are no rate limits; group= and group_limit= bound how many jobs run at once",
        "raw": "it belongs to the declaration: @harbor.task(raw=True)",
        "retry_backoff": "use retry=Exponential(…)",
        "task_id": "idempotency_key= keeps a second job from being stored",
    }
)
OF_HARBOR_OPTIONS = _of_each(
    {
        "backend broker broker_url connection database driver dsn redis_url store url": (
            'the store is the first argument: Harbor("sqlite:///jobs.db")'
        ),
        "queue": "default_queue= is the queue of tasks that name none; queues= lists all queues of the program",
        "timeout": "call_timeout= limits a call to the store; a task has a timeout= of its own",
    }
)
OF_WORKER_OPTIONS = _of_each(
    {
        "processes": "`taskharbor worker run --processes N` runs several processes",
        "queue": "use queues=[…]",
        "threads workers": "use concurrency=, the number of jobs that run at once",
        "timeout": "a task has a timeout=; shutdown_timeout= is for stopping the worker",
    }
)
_BY_TASK = "a task stores its own jobs: task.enqueue(…)"
_BY_NAME = "harbor.client.enqueue(JobRequest(type=…, payload=…)) stores a job by the name of its task"
_PERIODIC = "harbor.schedule(name, task.s(…), cron=… or every=…) declares a schedule"
OF_HARBORS = _of_each(
    {
        "AsyncResult fetch_job get_job handle": "harbor.job(id) is the handle of a job",
        "actor shared_task": "@harbor.task declares a task",
        "add_periodic_task cron periodic periodic_task": _PERIODIC,
        "autodiscover_tasks": "`taskharbor worker run --import MODULE` imports what declares tasks",
        "broker": "harbor.driver is the store",
        "conf": "`taskharbor from celery --app …` says what becomes of each setting",
        "enqueue": f"{_BY_TASK}; {_BY_NAME}",
        "enqueue_at": "task.options(run_at=…).enqueue(…) stores a job for later",
        "enqueue_in": "task.options(delay=…).enqueue(…) stores a job for later",
        "get_jobs list list_jobs": "harbor.jobs(state=…, queue=…, …) lists jobs",
        "inspect": "harbor.job(id) is the handle of a job: harbor.job(id).info()",
        "run run_worker work": "harbor.worker().run() runs jobs",
        "send": _BY_TASK,
        "send_task": _BY_NAME,
        "stats": "harbor.counts() and harbor.queues() say how many jobs there are",
    }
)
_NOT_YET = "a step is a part of a workflow; {0}.enqueue(…) stores a job, and chain({0}.s(…)).enqueue() a workflow"
OF_STEPS = dict.fromkeys(("aenqueue", "apply_async", "delay", "enqueue", "send"), _NOT_YET)
JOINED = "steps are not joined by |; write chain(a.s(…), b.s(…)), from taskharbor.flow"
_STORES_FLOW = "{0}.enqueue() stores the workflow; delay=, queue= and other options belong to its steps"
OF_FLOW_HANDLES = _of_each(
    {
        "abort revoke": "{0}.cancel()",
        "children nodes": "{0}.info().nodes",
        "completed_count": "{0}.progress().done",
        "failed get_status ready state successful": "{0}.status()",
        "get get_result join return_value wait_result": "{0}.result(timeout=…)",
        "retry": "{0}.requeue()",
    }
)
OF_FLOWS = dict.fromkeys(("apply_async", "delay", "send", "run"), _STORES_FLOW)


def missing(what: str, name: str, hints: dict[str, str], called: str) -> AttributeError:
    """The error for a missing attribute, with what to use instead where that is known."""
    hint = hints.get(name)
    text = f"{what} has no attribute {name!r}"
    return AttributeError(text if hint is None else f"{text}; {hint.format(called)}")
