"""What core says when it ends a job itself: the result is too large, a mark cannot be read, the ending makes no sense.

Observers meet it in JobFailed. Its text is the reason in the store, and may quote what a handler returned or raised;
`told` is the part of it that never does, so that a log can show why the job is dead.
"""

from __future__ import annotations

from taskharbor.model.errors import TaskHarborError


class Refusal(TaskHarborError):
    """A failure that core itself found: it is final, and its text is the reason. `told`: what a log may show of it.

    >>> Refusal("its result cannot be stored: ValueError: $.a is nan", "its result cannot be stored: ValueError").told
    'its result cannot be stored: ValueError'
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = reason if told is None else told
