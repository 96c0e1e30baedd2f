"""Without the extras: everything else works, and what needs one says which."""

import json
import subprocess
import sys

WITHOUT = """
import importlib, json, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("opentelemetry", "prometheus_client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import taskharbor, taskharbor.worker, taskharbor.observe.log
told = []
for adapter in sys.argv[1:]:
    try:
        importlib.import_module(f"taskharbor.observe.{adapter}")
    except ModuleNotFoundError as error:
        told.append(str(error))
print(json.dumps(told))
"""


def test_a_missing_extra_is_one_line_that_names_it():
    command = [sys.executable, "-W", "error", "-c", WITHOUT, "opentelemetry", "prometheus", "prometheus.queues"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    metrics = "metrics need the module prometheus_client: pip install 'taskharbor[prometheus]'"
    assert json.loads(ended.stdout) == [
        "traces need the module opentelemetry: pip install 'taskharbor[opentelemetry]'",
        metrics,
        metrics,
    ]
