"""A TaskHarbor worker on a queue that another service fills, and the way back.

A job that an OmniQ client published has no type: the name of its queue stands for it. So the task is named after the
queue, and the JSON object of the payload is its arguments. Receipts go to a queue that the other service reads.
"""

import logging
import os
import subprocess
import sys

from taskharbor import Harbor
from taskharbor.client import JobRequest

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
harbor = Harbor(URL)


@harbor.task(name="orders", queue="orders")
def ship(order: int, cents: int) -> None:
    print(f"worker: order {order} of {cents / 100:.2f} is on its way", flush=True)
    receipt = {"order": order, "paid": cents}
    harbor.client.enqueue(JobRequest(type="receipts", queue="receipts", payload=receipt))


def main() -> None:
    logging.getLogger("taskharbor").setLevel(logging.CRITICAL)  # the output below is the story
    producer = [sys.executable, "producer.py"]
    subprocess.run(producer, check=True)  # another service, in any language
    harbor.worker(queues=["orders"], concurrency=1).run(until_empty=True)
    subprocess.run([*producer, "receipts"], check=True)
    harbor.close()


if __name__ == "__main__":
    main()
