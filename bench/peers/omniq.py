"""omniq 4: its consumer in this process, a plain function; polls every millisecond when there is nothing to do.

It is under the GPL: it runs in a process and an environment of its own, by the calls that its documentation shows.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from omniq.client import OmniqClient

from bench import meter
from bench.meter import Order
from bench.peers.modes import modes


class Omniq:
    """omniq behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        place = urlsplit(order.address)
        self._client: Any = OmniqClient(host=place.hostname, port=place.port)

    def send(self) -> None:
        """One call for each."""
        self._client.publish(queue="bench", payload={})

    def send_many(self, jobs: int) -> None:
        """It has no call for many."""
        for _ in range(jobs):
            self.send()

    def work(self) -> None:
        """Its consumer."""
        self._client.consume(queue="bench", handler=meter.job, poll_interval_s=0.001)


MODES = modes(Omniq)

if __name__ == "__main__":
    meter.main(MODES)
