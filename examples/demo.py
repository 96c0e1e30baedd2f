"""What `make demo` runs: three jobs, one worker, and the story of what happened to them.

A job that succeeds, one that fails twice and is retried, one that ends in the dead letter queue. The store is a SQLite
file in a folder that is gone afterwards.
What happened is noted by an observer: a function that receives every event.
"""

import asyncio
import logging
import tempfile

from taskharbor import Exponential, Harbor, JobContext, JobDead
from taskharbor.events import (
    Event,
    JobDeadLettered,
    JobEnqueued,
    JobEvent,
    JobFailed,
    JobRetried,
    JobStarted,
    JobSucceeded,
)

stories: dict[str, list[str]] = {}  # job id → what happened to it


def note(event: Event) -> None:
    """Keep what happened, in a line for the job that it happened to."""
    if not isinstance(event, JobEvent):
        return
    story = stories.setdefault(event.job.id, [event.job.type.rpartition(".")[2]])
    if isinstance(event, JobEnqueued):
        story.append("enqueued")
    elif isinstance(event, JobStarted):
        story.append(f"attempt {event.job.attempts + 1} started")
    elif isinstance(event, JobFailed):
        story.append(f"  it failed with {type(event.error).__name__}")
    elif isinstance(event, JobRetried):
        story.append("  to be run again, later each time")
    elif isinstance(event, JobDeadLettered):
        story.append(f"to the dead letter queue: {event.reason}")
    elif isinstance(event, JobSucceeded):
        story.append("succeeded")


folder = tempfile.TemporaryDirectory(prefix="taskharbor-demo-")
harbor = Harbor(f"sqlite:///{folder.name}/demo.db", observers=[note])


@harbor.task
async def greet(name: str) -> str:
    return f"Hello, {name}"


@harbor.task(retry=Exponential(base=0.2, jitter=0), max_attempts=3)
def exchange_rate(ctx: JobContext, currency: str) -> float:
    if ctx.job.attempts < 2:
        raise ConnectionError("the bank does not answer")
    return 1.25


@harbor.task(retry=Exponential(base=0.5, jitter=0), max_attempts=2)
async def send_email(to: str) -> None:
    raise ValueError("not an address")


async def main() -> None:
    logging.getLogger("taskharbor").setLevel(logging.CRITICAL)  # the stories below take its place
    hello = await greet.aenqueue("Ada")
    rate = await exchange_rate.aenqueue("EUR")
    mail = await send_email.aenqueue("nobody")

    print("Three jobs were enqueued; a worker runs them …")
    worker = harbor.worker()
    running = asyncio.create_task(worker.arun())
    seen = [f"result {await hello.aresult(30)!r}", f"result {await rate.aresult(30)}"]
    try:
        await mail.aresult(30)
    except JobDead as error:
        seen.append(f"JobDead: {error.reason}, the last with {error.error_class}")
    worker.stop()
    await running

    for number, (handle, end) in enumerate(zip((hello, rate, mail), seen, strict=True), start=1):
        name, *story = stories[handle.id]
        print(f"\nJob {number}, {name}")
        for line in story:
            print(f"  {line}")
        print(f"  what the caller sees: {await handle.astatus()}, {end}")
    print("\nThe code is examples/demo.py. Go on with README.md and docs/semantics.md.")
    print("A living system in your browser: make dashboard")
    await harbor.aclose()
    folder.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
