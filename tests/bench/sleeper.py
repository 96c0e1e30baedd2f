"""A subject that never answers, and has a worker beside it: what must be gone when its time is over."""

import subprocess
import sys
import time

worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
sys.stderr.write(f"worker {worker.pid}\n")
sys.stderr.flush()
time.sleep(600)
