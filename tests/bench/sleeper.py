"""A subject that never ends, with a worker beside it: both must be gone when its time is over."""

import signal
import subprocess
import sys

worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
sys.stderr.write(f"worker {worker.pid}\n")
sys.stderr.flush()
signal.pause()
