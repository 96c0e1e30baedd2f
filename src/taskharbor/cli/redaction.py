"""What may be seen of a job's payload and result: nothing, unless it was asked for.

Error text is shown, for it is what an operator looks for; but a handler's error may quote what it was given, so the
values of the hidden payload are taken out of it. The marks that we write into a job's metadata belong to the payload:
one of them holds the payload of a workflow's failure step.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from taskharbor.cli.text import first_line
from taskharbor.model import deep_json
from taskharbor.model.errors import because
from taskharbor.model.job import JobRecord
from taskharbor.policy.mask import MASK, mask, stored_values
from taskharbor.tasks.flow_metadata import RESERVED


@dataclass(frozen=True)
class Redaction:
    """How much to show: everything, everything but some fields, or nothing."""

    show: bool = False
    fields: frozenset[str] = frozenset()

    @classmethod
    def of(cls, show_payload: bool, redact: tuple[str, ...]) -> Redaction:
        """From the options: naming what to hide is asking to see the rest."""
        return cls(show_payload or bool(redact), frozenset(name.lower() for name in redact))

    def value(self, data: bytes | None) -> Any:
        """Stored bytes as they may be shown; None if they may not. What is nested deeply comes as it is written."""
        if data is None or not self.show:
            return None
        try:
            value = deep_json.read(data)
        except ValueError:
            return MASK if self.fields else _plain(data)  # where a field begins and ends in it, nobody knows
        for inside in _objects(value):
            inside.update({key: MASK for key in inside if key.lower() in self.fields})
        return msgspec.Raw(deep_json.write(value)) if deep_json.is_deep(value) else value

    def metadata(self, job: JobRecord) -> dict[str, str]:
        """A job's metadata; of our own marks the names only, unless everything is to be shown."""
        whole = self.show and not self.fields
        return {key: MASK if key.startswith(RESERVED) and not whole else text for key, text in job.metadata.items()}

    def errors(self, job: JobRecord) -> tuple[str, str]:
        """The reason why a job ended and its last error, without the hidden values of its payload."""
        texts = (job.reason, job.last_error)
        if not any(texts) or (self.show and not self.fields):
            return texts
        reason, error = mask(texts, self._hidden(job.payload) if self.show else stored_values(job.payload))
        return reason, error

    def why(self, job: JobRecord) -> str:
        """Why a job ended as it did, in one line: the recorded reason, and the last error where that says more."""
        reason, error = map(first_line, self.errors(job))
        return because(reason, error)

    def _hidden(self, payload: bytes) -> Iterable[Any]:
        """What stands under the names of hidden fields, each once, however they are nested in each other."""
        try:
            value = deep_json.read(payload)
        except ValueError:
            return stored_values(payload)
        found: list[Any] = []
        for inside in _objects(value):
            found += [inside.pop(key) for key in list(inside) if key.lower() in self.fields]
        return found


HIDDEN = Redaction()


def _plain(data: bytes) -> Any:
    """Bytes that are no JSON: as text, and what is no text as base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a value, outer ones first; what its receiver takes out of one is not looked into."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
        waiting.extend(deep_json.children(item))
