"""Tasks with injected parameters, in a worker's thread and in a child process of one."""

import os
from typing import Any

from shop.api import task

from supply.resources import Supplier
from taskharbor import Given
from taskharbor.django import harbor_options


@task
@harbor_options(max_attempts=1)
def supplied(text: str, supplier: Supplier = Given()) -> list[Any]:
    return [text, supplier.name, supplier.pid == os.getpid()]


@task
@harbor_options(process=True, max_attempts=1)
def supplied_in_a_child(text: str, supplier: Supplier = Given()) -> list[Any]:
    return [text, supplier.name, supplier.pid == os.getpid()]
