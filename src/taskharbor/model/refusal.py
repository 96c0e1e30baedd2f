"""The error with which core itself ends a job: its result is too large, or its metadata cannot be read.

Observers receive it in JobFailed. Its text is the reason in the store, and may quote what a handler returned or raised;
`safe_text` never quotes handler data, so that a log can show why the job is dead.
"""

from __future__ import annotations

from taskharbor.model.errors import TaskHarborError


class Refusal(TaskHarborError):
    """A failure that core itself found. It is final, and its text is the reason. `safe_text`: for logs.

    >>> Refusal("its result: ValueError: $.a is nan", "its result: ValueError").safe_text
    'its result: ValueError'
    """

    def __init__(self, reason: str, safe_text: str | None = None) -> None:
        super().__init__(reason)
        self.safe_text = reason if safe_text is None else safe_text
