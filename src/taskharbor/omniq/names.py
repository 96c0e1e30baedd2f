"""Names, ids and the time, as the OmniQ contract defines them.

All keys of a queue begin with its base, whose hash tag (what stands between the first `{` and the next `}`) decides
the slot on a Cluster. A name without a usable tag would be spread over the slots, so it is refused.
"""

from __future__ import annotations

import re

from taskharbor.model.clock import StoreClock
from taskharbor.model.ids import new_id
from taskharbor.model.times import to_ms

MAX_NAME = 255
MAX_CHILD_KEY = 128

_BAD = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WRAPPED = re.compile(r"\{[^{}]+\}").fullmatch


def queue_base(queue: str) -> str:
    """What the keys of a queue begin with: its name in braces, unless it has them already.

    >>> queue_base("emails"), queue_base("{emails}")
    ('{emails}', '{emails}')
    >>> queue_base("}{")
    Traceback (most recent call last):
    ...
    ValueError: queue: expected a name, or a name in one pair of braces, got '}{'; its keys would have no hash tag
    """
    checked(queue, "queue")
    if "{" not in queue and "}" not in queue:
        return f"{{{queue}}}"
    if _WRAPPED(queue) is None:
        raise ValueError(
            f"queue: expected a name, or a name in one pair of braces, got {queue!r}; its keys would have no hash tag"
        )
    return queue


def child_base(key: str) -> str:
    """What the two keys of a child counter begin with."""
    if not isinstance(key, str):
        raise TypeError(f"key: expected text, got {type(key).__name__}")
    key = checked(key.strip(), "key", MAX_CHILD_KEY)
    if "{" in key or "}" in key:
        raise ValueError(f"key: expected a name without braces, got {key!r}; remove them")
    return f"{{cc:{key}}}"


def now_ms() -> int:
    """Milliseconds since 1970, by this machine's clock. The operations themselves go by the server's."""
    return to_ms(StoreClock().now())


def ulid() -> str:
    """A new id: 26 characters, in the order of time, and within one process always greater than the one before.

    >>> len(ulid()), ulid() < ulid()
    (26, True)
    """
    return new_id(now_ms())


def checked(value: str, what: str, longest: int = MAX_NAME) -> str:
    """The text itself, if it can be part of a key: not empty, not too long, no control characters."""
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected text, got {type(value).__name__}")
    if _BAD.search(value):
        raise ValueError(f"{what}: expected no control characters and no lone surrogates, got {value!r}; remove them")
    size = len(value.encode())
    if not 1 <= size <= longest:
        raise ValueError(f"{what}: expected 1 to {longest} bytes of text, got {size}; give a shorter one" if size else
                         f"{what}: expected 1 to {longest} bytes of text, got none; give it a name")  # fmt: skip
    return value
