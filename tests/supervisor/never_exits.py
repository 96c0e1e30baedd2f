"""`taskharbor` with a thread that never ends, so that the program cannot exit by itself; it is given only a moment."""

import threading

from taskharbor.cli import main
from taskharbor.worker.supervisor import supervisor

if __name__ == "__main__":
    supervisor.STOP_PROMISE_S = 0.5
    threading.Thread(target=threading.Event().wait).start()
    main(prog_name="taskharbor")
