"""Tasks that a child process can import."""

from typing import Any

from taskharbor import Harbor
from taskharbor.flow import group

harbor = Harbor("memory://")


@harbor.task(name="process_tasks.double")
def double(n: int) -> int:
    return 2 * n


@harbor.task(name="process_tasks.fan")
def fan(n: int) -> Any:
    return group(double.s(i) for i in range(n))
