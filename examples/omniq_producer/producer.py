"""The other service: it publishes orders, and reads the receipts. Any OmniQ client, in any language, does the same."""

import os
import sys

from taskharbor.omniq import OmniQ, Paused

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")


def publish() -> None:
    with OmniQ(URL) as queue:
        for order, cents in ((1, 1250), (2, 4200), (3, 99)):
            queue.publish("orders", {"order": order, "cents": cents}, timeout_ms=30_000, max_attempts=3)
    print("producer: 3 orders published")


def receipts() -> None:
    with OmniQ(URL) as queue:
        while (job := queue.reserve("receipts")) is not None and not isinstance(job, Paused):
            print(f"producer: receipt {job.json()}")
            queue.ack_success("receipts", job.job_id, job.lease_token)


if __name__ == "__main__":
    receipts() if sys.argv[1:] == ["receipts"] else publish()
