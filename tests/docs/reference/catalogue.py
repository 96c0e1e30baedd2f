"""What is on which page of the reference. Every public name is on exactly one: a test compares."""

from typing import NamedTuple

from taskharbor.drivers import kit


class Page(NamedTuple):
    """A page: its file, its title, what it is for (in the index), its opening, what it shows in full or in brief."""

    file: str
    title: str
    purpose: str
    opening: str
    shows: tuple[str, ...] = ()
    brief: tuple[str, ...] = ()


def _of(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}:{name}" for name in names)


PAGES = (
    Page(
        "harbor",
        "Harbor",
        "the object that a program has one of: its store, its tasks, its workers",
        "A program makes one `Harbor`, with the [DSN](stores.md) of its store, and declares its tasks with it.",
        _of("taskharbor", "Harbor"),
    ),
    Page(
        "tasks",
        "Tasks and their options",
        "every option of `@harbor.task` and of `.options(…)`; enqueueing; steps; injected parameters",
        "A task is a function declared with [`@harbor.task`](harbor.md#harbortask). Its options are below, under "
        "[Task.options](#taskoptions): each can be declared with the task, and changed for a call.",
        _of("taskharbor", "Task", "Step", "Depends", "Given"),
    ),
    Page(
        "context",
        "What a handler receives",
        "`JobContext`: progress, stopping early, transactions, the logger",
        "A parameter that is annotated with `JobContext` receives the job that runs. What to raise so that a job ends "
        "otherwise than by returning or failing: [Signals of a handler](errors.md#signals-of-a-handler).",
        (*_of("taskharbor", "JobContext"), *_of("taskharbor.tasks.context", "CancelSignal")),
    ),
    Page(
        "retry",
        "Retry policies",
        "when a failed job runs again",
        "A retry policy is any callable `(attempts, error) -> delay`, in seconds; None means that the job is dead. "
        "`max_attempts` is checked first. Give one as [`retry=`](tasks.md#taskoptions) to a task, a call or a worker.",
        _of("taskharbor", "Exponential", "Fixed", "Linear"),
    ),
    Page(
        "worker",
        "Workers",
        "every option of `harbor.worker(…)`; running, stopping, health; middleware",
        "[`harbor.worker(…)`](harbor.md#harborworker) makes a worker for the tasks of a harbor; "
        "[`taskharbor worker run`](../cli.md#taskharbor-worker-run) runs several under a supervisor.",
        (
            *_of("taskharbor", "Worker", "WorkerInfo"),
            *_of("taskharbor.worker", "Health", "Middleware", "Call", "CallMiddleware"),
        ),
    ),
    Page(
        "jobs",
        "Jobs",
        "handles, records, states, attempts; finding jobs by filter, and changing many",
        "The guide is [Jobs from Python](../jobs.md); for failed jobs [Dead letters](../dead-letters.md).",
        _of(
            "taskharbor", "JobHandle", "JobInfo", "JobRecord", "State", "Progress", "Attempt", "AttemptKind",
            "StepInfo", "Jobs", "Count", "Summary", "SummaryRow", "Operation", "OperationProgress", "OperationStatus",
            "DryRun", "QueueInfo", "Audit", "AuditEntry",
        ),
    ),
    Page(
        "schedules",
        "Schedules",
        "jobs at times of the day or at intervals",
        "[`harbor.schedule(…)`](harbor.md#harborschedule) declares a schedule in code; `harbor.schedules` is the "
        "`Schedules` of the store. The guide is [Schedules](../schedules.md).",
        _of("taskharbor", "Schedules", "ScheduleInfo"),
    ),
    Page(
        "workflows",
        "Workflows",
        "chain, group, chord, and the handle of a flow",
        "The guide is [Workflows](../workflows.md).",
        (
            *_of(
                "taskharbor.flow", "chain", "group", "chord", "Flow", "FlowHandle", "FlowProgress", "FlowFailure",
                "FlowRun", "mermaid",
            ),
            *_of("taskharbor", "Flows", "FlowInfo", "FlowStatus"),
        ),
    ),
    Page("errors", "Errors and signals", "what the library raises, and what a handler may raise", ""),
    Page(
        "events",
        "Events",
        "what observers receive, with the fields of each",
        "An observer is given as `Harbor(observers=[…])` or with [`harbor.observe`](harbor.md#harborobserve). The "
        "guide is [Observability](../observability.md).",
    ),
    Page(
        "observe",
        "Logs, metrics and traces",
        "log formats, Prometheus, OpenTelemetry",
        "The guide is [Observability](../observability.md).",
        (
            *_of(
                "taskharbor.observe.log", "LogObserver", "configure_logging", "JobFilter", "JsonFormatter",
                "TextFormatter", "TerminalFormatter", "LEVELS", "logged",
            ),
            *_of(
                "taskharbor.observe.prometheus", "PrometheusObserver", "install", "serve", "MetricsServer",
                "QueueCollector", "share", "SharedMetrics",
            ),
            *_of("taskharbor.observe.opentelemetry", "OpenTelemetry"),
        ),
    ),
    Page(
        "testing",
        "Testing",
        "draining, isolating, a manual clock, faults; fixtures of pytest",
        "The guide is [Testing](../testing.md). The fixtures `manual_clock`, `faults` and `crash_points` of pytest "
        "are there as soon as TaskHarbor is installed.",
        _of(
            "taskharbor.testing", "isolated", "drain", "adrain", "enqueued", "aenqueued", "context", "ManualClock",
            "Faults", "crash_points", "CrashReport", "CrashFault", "CrashPoint",
        ),
    ),
    Page(
        "dashboard",
        "Dashboard",
        "mounting it, and who may do what in it",
        "The guide is [The dashboard](../dashboard.md).",
        _of("taskharbor.dashboard", "dashboard", "Access"),
    ),
    Page("stores", "Stores and their DSNs", "every option of every DSN", ""),
    Page("environment", "Environment variables", "every variable that is read", ""),
    Page(
        "client",
        "Clients, codecs and clocks",
        "enqueueing without tasks; replacing parts",
        "Most programs need none of these: a `Harbor` has a client, a codec and a clock. A client only enqueues, and "
        "makes handles; a [harbor](harbor.md) also reads the store and runs it.",
        (
            *_of("taskharbor", "Client", "JobRequest", "Codec", "JsonCodec", "Clock"),
            *_of("taskharbor.client", "EnqueueMiddleware", "Stamp"),
        ),
    ),
    Page(
        "drivers",
        "Drivers and conformance",
        "names for authors of drivers",
        "What a driver promises is in [The driver contract](../driver-contract.md); how to write one in "
        "[Writing a driver](../writing-a-driver.md).",
        (),
        ("taskharbor.drivers", "taskharbor.conformance"),
    ),
    Page(
        "kit",
        "The driver kit",
        "functions for authors of drivers: everything that does not depend on a store",
        "[Writing a driver](../writing-a-driver.md#what-you-write-and-what-is-given) says which is for what.",
        _of("taskharbor.drivers.kit", *kit.__all__),
    ),
    Page(
        "omniq",
        "OmniQ",
        "clients and consumers of queues that are shared with other languages",
        "The guide is [OmniQ](../omniq.md). Moments and durations are milliseconds, as in the OmniQ contract. "
        "`now_ms_override`, of most methods, is the time to use instead of the server's, for tests; 0: the server's.",
        _of(
            "taskharbor.omniq", "OmniQ", "AsyncOmniQ", "Job", "JobContext", "PAUSED", "Paused", "ReserveResult",
            "AckFailResult", "Lane", "BatchItem", "OmniQError", "NotActive", "TokenMismatch", "LeaseLost", "Stopped",
            "now_ms", "queue_base", "ulid",
        ),
    ),
)  # fmt: skip
