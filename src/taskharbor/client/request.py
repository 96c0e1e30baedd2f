"""Requests: a job to enqueue by the name of its type, without a declared task."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import astuple

from taskharbor.model.bounds import check_name
from taskharbor.model.codec import Codec
from taskharbor.model.times import Duration
from taskharbor.tasks.flow_metadata import check_type
from taskharbor.tasks.options import change
from taskharbor.tasks.prepare import UNSET, TaskCall

_NO_OPTIONS = msgspec.structs.replace(UNSET, max_attempts=0)  # 0: the default of the worker that runs it


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One job to enqueue. A payload that is a dict is bound to the handler's parameters by name.

    >>> JobRequest(type="email:send", payload={"to": "ada@example.com"}, queue="mail")
    JobRequest(type='email:send', queue='mail')
    """

    type: str  # the name by which a worker finds the handler
    payload: Any = {}  # the arguments
    queue: str | None = None  # None: the client's default queue
    run_at: datetime | None = None  # not before this moment
    delay: Duration | None = None  # not before this much time has passed
    timeout: Duration | None = None  # how long one execution may take
    max_attempts: int | None = None  # the failure that reaches this number is final; None: the worker's default
    idempotency_key: str | None = None  # if the queue knows this key, nothing is stored
    group: str | None = None  # jobs of a queue that share it start in order
    group_limit: int = 0  # how many of the group may run at once; 0: as the group has it, else 1
    priority: int = 0  # higher first
    metadata: Mapping[str, str] | None = None  # text by name, for your own use
    id: str | None = None  # an id of your own; a known one is not stored again

    def __repr__(self) -> str:
        return f"JobRequest(type={self.type!r}, queue={self.queue!r})"

    def call(self, codec: Codec) -> TaskCall:
        """The request, checked and encoded; TypeError or ValueError if it cannot be stored."""
        check_type(self.type)
        if self.id is not None:
            check_name(self.id, "id")
        given: dict[str, Any] = {}
        if astuple(self)[2:-1] != _PLAIN_OPTIONS:
            given = {name: value for name, plain in _OPTIONS if (value := getattr(self, name)) is not plain}
        try:
            payload = codec.encode(self.payload)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{self.type}: payload: {error}") from None
        options = change(_NO_OPTIONS, given, self.type) if given else _NO_OPTIONS
        return TaskCall(self.type, payload, options, Any, self.id)


_PLAIN = JobRequest(type="plain")
_PLAIN_OPTIONS = astuple(_PLAIN)[2:-1]  # all but type, payload and id
_OPTIONS = tuple(
    (name, getattr(_PLAIN, name)) for name in JobRequest.__struct_fields__ if name not in ("type", "payload", "id")
)
