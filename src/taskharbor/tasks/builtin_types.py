"""The job types that `worker run` without `--app` handles, by name."""

from __future__ import annotations

BUILTIN_TYPES = ("echo", "fail", "sleep")
