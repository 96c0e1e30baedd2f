"""The harbors of a project: one for each backend of ours in TASKS, made when it is first asked for.

A harbor outlives changes of settings in tests: what was declared on it when a module was imported stays declared.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from taskharbor.django.connections import fresh_async_connections, fresh_connections
from taskharbor.django.registry import declare_known
from taskharbor.django.settings import BackendOptions, read_options
from taskharbor.django.setup import lifespan_of
from taskharbor.django.signals import FinishedSignals
from taskharbor.django.store import DjangoStore
from taskharbor.drivers.base import Driver
from taskharbor.harbor import Harbor
from taskharbor.store.session import Store
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.lifespan import Lifespan

if TYPE_CHECKING:
    from taskharbor.worker import Worker

LENT_LEASE_S = 3600.0
_harbors: dict[str, DjangoHarbor] = {}
_read: dict[str, tuple[Any, DjangoHarbor]] = {}  # the settings that each harbor was made or changed for
_making = threading.RLock()


class DjangoHarbor(Harbor):
    """The harbor behind one backend of TASKS."""

    _store: DjangoStore

    def __init__(self, backend: BackendOptions) -> None:
        self.backend = backend
        self.signals = FinishedSignals(self)
        self._lent_driver: Driver | None = None
        super().__init__(
            None,
            middleware=[self._with_fresh_connections],
            call_middleware=[fresh_connections],
            observers=[self.signals],
            queues=backend.queues or None,
            lifespan=partial(lifespan_of, backend.alias),
        )

    @property
    def driver(self) -> Driver:
        """The driver of the store; within `use_driver` the one that was given there."""
        return super().driver if self._lent_driver is None else self._lent_driver

    def worker(self, **options: Any) -> Worker:
        """A worker for the tasks declared here; its options are those of `Worker`."""
        if self._lent_driver is not None:
            # A child could not see the test's transaction, and nothing may use its connection beside a handler.
            options = {"child_processes": False, "lease": LENT_LEASE_S, "heartbeat": LENT_LEASE_S / 3, **options}
        return super().worker(**options)

    def project_lifespan(self) -> Lifespan | None:
        """What OPTIONS["lifespan"] names; inside `override`, what stands in its place."""
        lifespan: Lifespan | None = self._overrides.of(next(iter(self._lifespans()[1:]), None))
        return lifespan

    def _lifespans(self) -> list[Lifespan]:
        from django.utils.module_loading import import_string

        named = self.backend.lifespan
        return super()._lifespans() if named is None else [*super()._lifespans(), import_string(named)]

    @contextmanager
    def use_driver(self, driver: Driver) -> Iterator[None]:
        """Let workers use this driver for a block. For tests."""
        self._lent_driver = driver
        try:
            yield
        finally:
            self._lent_driver = None

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
        self.backend = self._store.backend = backend
        self._queues.listed = frozenset(backend.queues) if backend.queues else None
        self._store.use(None)
        declare_known(self)

    def _make_store(self, dsn_or_driver: Driver | str | None, **options: Any) -> Store:
        return DjangoStore(self.backend, **options)


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
            f"TASKS[{alias!r}]: expected the backend taskharbor.django.TaskHarborBackend; these have it: {ours}. "
            'Write TASKS = {"default": {"BACKEND": "taskharbor.django.TaskHarborBackend", '
            '"OPTIONS": {"database": "default"}}}'
        )


def harbor_of(alias: str = "default") -> DjangoHarbor:
    """The harbor behind TASKS[alias]."""
    params = tasks_settings().get(alias)
    read = _read.get(alias)
    if read is not None and read[0] is params:
        return read[1]
    check_alias(alias)
    options = read_options(alias, params or {})
    with _making:
        harbor = _harbors.get(alias)
        if harbor is None:
            harbor = _harbors[alias] = DjangoHarbor(options)
            declare_known(harbor)
        elif harbor.backend != options:
            harbor.change(options)
        _read[alias] = params, harbor
        return harbor
