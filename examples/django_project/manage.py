"""The usual manage.py, with one command more: `serve` does everything that a reader would do in two terminals."""

import os
import signal
import subprocess
import sys


def serve(options: list[str]) -> int:
    """Migrate, start a worker, serve until Ctrl-C, and stop the worker."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the worker is stopped then, too
    manage = [sys.executable, __file__]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], check=True)
    # In a session of its own: Ctrl-C is for the server, and then the worker ends what it is doing.
    worker = subprocess.Popen([*manage, "harbor", "worker", "run", "--no-spare"], start_new_session=True)
    try:
        return subprocess.run([*manage, "runserver", "--noreload", *options]).returncode
    except KeyboardInterrupt:
        return 0
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bakery.settings")
    if sys.argv[1:2] == ["serve"]:
        sys.exit(serve(sys.argv[2:]))
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
