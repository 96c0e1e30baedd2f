"""A process that counts N jobs, prints a line, and stays until its standard input ends: `python -m … N`."""

import sys

from prometheus_client import Counter, Gauge

from taskharbor.drivers import JobRecord
from taskharbor.events import JobSucceeded
from taskharbor.observe.prometheus import PrometheusObserver

observer = PrometheusObserver(buckets=(1.0, 2.0))
own = Counter("application_letters", "What a handler counts itself.")
busy = Gauge("application_busy", "What ends with its process.", multiprocess_mode="livesum")
busy.set(1)
for number in range(int(sys.argv[1])):
    observer(JobSucceeded(JobRecord(id="j", type="t", queue="q"), "w", float(number)))
    own.inc()
print("counted", flush=True)
sys.stdin.read()
