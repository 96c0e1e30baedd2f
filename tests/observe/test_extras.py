"""Without the extras: everything else works, and what needs one says which."""

import json
import subprocess
import sys

HIDDEN = """
import importlib, json, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("opentelemetry", "prometheus_client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""

IMPORTS = (
    HIDDEN
    + """
import taskharbor, taskharbor.worker, taskharbor.observe.log
told = []
for adapter in sys.argv[1:]:
    try:
        importlib.import_module(f"taskharbor.observe.{adapter}")
    except ModuleNotFoundError as error:
        told.append(str(error))
print(json.dumps(told))
"""
)

COMMAND = (
    HIDDEN
    + """
from taskharbor.cli import main
main()
"""
)


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_missing_extra_is_one_line_that_names_it():
    ended = run(IMPORTS, "opentelemetry", "prometheus", "prometheus.queues")
    assert ended.returncode == 0, ended.stderr
    metrics = "metrics need the module prometheus_client: pip install 'taskharbor[prometheus]'"
    assert json.loads(ended.stdout) == [
        "traces need the module opentelemetry: pip install 'taskharbor[opentelemetry]'",
        metrics,
        metrics,
    ]


def test_a_command_names_its_missing_extra_in_one_line():
    ended = run(COMMAND, "worker", "run", "--dsn", "memory://", "--metrics-port", "9464")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "taskharbor: --metrics-port: metrics need the module prometheus_client: pip install 'taskharbor[prometheus]'\n"
    )
