"""The harbors of a project: one for each backend of ours in TASKS, made when it is first asked for.

A harbor outlives changes of settings in tests: what was declared on it when a module was imported stays declared.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from taskharbor.client.client import Client
from taskharbor.django.client import DjangoClient
from taskharbor.django.connections import fresh_async_connections, fresh_connections
from taskharbor.django.lifespan import lifespan_of
from taskharbor.django.settings import BackendOptions, read_options
from taskharbor.drivers.contract import Driver
from taskharbor.harbor import Harbor
from taskharbor.tasks.context import JobContext

_harbors: dict[str, DjangoHarbor] = {}
_making = threading.RLock()


class DjangoHarbor(Harbor):
    """The harbor behind one backend of TASKS."""

    client: DjangoClient

    def __init__(self, backend: BackendOptions) -> None:
        self.backend = backend
        super().__init__(
            None,
            middleware=[self._with_fresh_connections],
            call_middleware=[fresh_connections],
            queues=backend.queues or None,
            lifespan=partial(lifespan_of, backend.alias),
        )

    async def _with_fresh_connections(self, ctx: JobContext, call_next: Callable[[JobContext], Awaitable[Any]]) -> Any:
        """Around every job, on the loop: heal the connection that coroutines share."""
        handler = self.handlers.get(ctx.job.type)
        if handler is None or not handler.is_coroutine:
            return await call_next(ctx)
        return await fresh_async_connections(ctx, call_next)

    def forget_task(self, type: str) -> None:
        """Forget a task, if it is known: its module was loaded again."""
        self.tasks.pop(type, None)
        self.handlers.remove(type)

    def change(self, backend: BackendOptions) -> None:
        """Use other settings from now on."""
        self.backend = self.client.backend = backend
        self._queues.listed = frozenset(backend.queues) if backend.queues else None
        self.client.use(None)

    def _make_client(self, dsn_or_driver: Driver | str | None, **options: Any) -> Client:
        return DjangoClient(self.backend, **options)


def tasks_settings() -> Mapping[str, Any]:
    """TASKS of the settings; empty if there is none."""
    from django.conf import settings

    found: Mapping[str, Any] = getattr(settings, "TASKS", None) or {}
    return found


def is_ours(alias: str) -> bool:
    """Whether TASKS[alias] names our backend, or a subclass of it."""
    from django.utils.module_loading import import_string

    params = tasks_settings().get(alias)
    if params is None:
        return False
    path = params.get("BACKEND", "")
    if path in ("taskharbor.django.TaskHarborBackend", "taskharbor.django.backend.TaskHarborBackend"):
        return True
    from taskharbor.django.backend import TaskHarborBackend

    try:
        found = import_string(path)
    except ImportError:
        return False
    return isinstance(found, type) and issubclass(found, TaskHarborBackend)


def our_aliases() -> Iterator[str]:
    """The aliases of TASKS whose backend is ours."""
    return (alias for alias in tasks_settings() if is_ours(alias))


def check_alias(alias: str) -> None:
    """ImproperlyConfigured unless TASKS[alias] is a backend of ours."""
    if not is_ours(alias):
        ours = ", ".join(our_aliases()) or "none"
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}]: expected the backend taskharbor.django.TaskHarborBackend; aliases that have it: {ours}. "
            'Write TASKS = {"default": {"BACKEND": "taskharbor.django.TaskHarborBackend", '
            '"OPTIONS": {"database": "default"}}}'
        )


def harbor_of(alias: str = "default") -> DjangoHarbor:
    """The harbor behind TASKS[alias]."""
    from taskharbor.django.registry import declare_known

    check_alias(alias)
    options = read_options(alias, tasks_settings()[alias])
    with _making:
        harbor = _harbors.get(alias)
        if harbor is None:
            harbor = _harbors[alias] = DjangoHarbor(options)
            declare_known(harbor)
        elif harbor.backend != options:
            harbor.change(options)
        return harbor


def made_harbors() -> tuple[DjangoHarbor, ...]:
    """The harbors that were asked for so far."""
    return tuple(_harbors.values())
