"""How much of a job's payload and result a command prints: nothing, unless the user asked for it.

Error text is printed, because operators need it. A handler's error may quote its arguments, so the values of a hidden
payload are masked in it. Metadata that the library itself writes counts as payload: one entry holds the payload of a
workflow's failure step.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from taskharbor.model import deep_json
from taskharbor.model.errors import because
from taskharbor.model.job import JobRecord
from taskharbor.policy.mask import MASK, mask, stored_values
from taskharbor.store.text import first_line
from taskharbor.tasks.flow_metadata import RESERVED


@dataclass(frozen=True)
class Redaction:
    """What to print: everything, everything except some fields, or nothing."""

    show: bool = False
    fields: frozenset[str] = frozenset()

    @classmethod
    def of(cls, show_payload: bool, redact: tuple[str, ...]) -> Redaction:
        """From the options. `--redact` implies `--show-payload`: naming a field to hide asks for the rest."""
        return cls(show_payload or bool(redact), frozenset(name.lower() for name in redact))

    def value(self, data: bytes | None) -> Any:
        """Stored bytes as a printable value; None if they are hidden. A deeply nested value is returned as raw JSON."""
        if data is None or not self.show:
            return None
        try:
            value = deep_json.read(data)
        except ValueError:
            return MASK if self.fields else _plain(data)  # not JSON, so fields cannot be found
        for inside in _objects(value):
            inside.update({key: MASK for key in inside if key.lower() in self.fields})
        return msgspec.Raw(deep_json.write(value)) if deep_json.is_deep(value) else value

    def metadata(self, job: JobRecord) -> dict[str, str]:
        """A job's metadata. Values that the library wrote itself are masked unless everything is shown."""
        whole = self.show and not self.fields
        return {key: MASK if key.startswith(RESERVED) and not whole else text for key, text in job.metadata.items()}

    def errors(self, job: JobRecord) -> tuple[str, str]:
        """The recorded reason and last error of a job, with hidden payload values masked."""
        reason, error = self.texts(job, (job.reason, job.last_error))
        return reason, error

    def texts(self, job: JobRecord, texts: Sequence[str]) -> Sequence[str]:
        """Texts of a job's handler, such as its errors and its progress, with hidden payload values masked."""
        if not any(texts) or (self.show and not self.fields):
            return texts
        return mask(texts, self._hidden(job.payload) if self.show else stored_values(job.payload))

    def why(self, job: JobRecord) -> str:
        """One line: the recorded reason of a job's end, and the last error where it adds something."""
        reason, error = map(first_line, self.errors(job))
        return because(reason, error)

    def _hidden(self, payload: bytes) -> Iterable[Any]:
        """The values of hidden fields, each once, at any depth."""
        try:
            value = deep_json.read(payload)
        except ValueError:
            return stored_values(payload)
        hidden: list[Any] = []
        for inside in _objects(value):
            hidden += [inside.pop(key) for key in list(inside) if key.lower() in self.fields]
        return hidden


HIDDEN = Redaction()


def _plain(data: bytes) -> Any:
    """Bytes that are not JSON: as text if they are UTF-8, else as base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a value, outermost first. Entries that the caller removes meanwhile are not visited."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
        waiting.extend(deep_json.children(item))
