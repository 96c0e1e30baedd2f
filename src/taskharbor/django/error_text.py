"""Stored error text as the text of a traceback: Python's own order, the exception last.

A store keeps the exception first and its causes after it, so that a long text is cut at the end that matters least.
"""

from __future__ import annotations

import re

_HEAD = "Traceback (most recent call last):\n"
_LINKS = {
    "caused by ": "\nThe above exception was the direct cause of the following exception:\n\n",
    "while handling ": "\nDuring handling of the above exception, another exception occurred:\n\n",
}
_FRAME = re.compile(r'  File "')


def traceback_of(text: str) -> str:
    """The text of a traceback for the stored text of an error.

    >>> stored = 'ValueError: no\\n\\n  File "<shop>", line 3, in send\\n    raise ValueError("no")'
    >>> print(traceback_of(stored), end="")
    Traceback (most recent call last):
      File "<shop>", line 3, in send
        raise ValueError("no")
    ValueError: no
    """
    if not text:
        return ""
    told: list[tuple[str, list[str]]] = []  # how each exception is linked to the one before it, and its parts
    for part in text.split("\n\n"):
        link = next((each for each in (*_LINKS, "in the group: ") if part.startswith(each)), None)
        if not told or link is not None:
            told.append((link or "", [part.removeprefix(link or "")]))
        else:
            told[-1][1].append(part)
    written = ""
    for link, parts in reversed(told):
        summary, *rest = parts
        frames = [each for each in rest if _FRAME.match(each)]
        notes = [each for each in rest if not _FRAME.match(each)]
        head = _HEAD + "\n".join(frames) + "\n" if frames else ""
        written += head + "\n".join([summary, *notes]) + "\n" + _LINKS.get(link, "")
    return written
