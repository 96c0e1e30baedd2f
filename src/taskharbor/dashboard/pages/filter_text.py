"""The filter bar: `queue:mail state:dlq since:2h` as values, and back.

Pure. A word without a name is an id, if it looks like one; else `word`: a type, an error or a queue of that name.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from taskharbor.dashboard.pages.content import BadQuery, quoted
from taskharbor.model.job import State
from taskharbor.store.ids import is_prefix

NAMES = ("state", "queue", "type", "group", "flow", "error", "fingerprint", "since", "until")
MAX_FILTER_CHARS = 2_000
SHOWN_STATES = {"dead": "dlq", "running": "inflight"}  # the words that pages use


def read_filter(text: str) -> dict[str, str]:
    """What was typed, by name; `id` for what looks like the id of a job.

    >>> read_filter('queue:mail type:"send email" 01M7HG69PC')
    {'queue': 'mail', 'type': 'send email', 'id': '01M7HG69PC'}
    """
    if len(text) > MAX_FILTER_CHARS:
        raise BadQuery(f"filter: expected at most {MAX_FILTER_CHARS} characters, got {len(text)}")
    try:
        words = shlex.split(text)
    except ValueError:
        raise BadQuery(
            'filter: expected words such as queue:mail or type:"send email"; a quote is not closed'
        ) from None
    found: dict[str, str] = {}
    for word in words:
        name, colon, value = word.partition(":")
        if colon and name.lower() in (*NAMES, "id"):
            found[name.lower()] = _state(value) if name.lower() == "state" else value
        elif colon and name.isalpha() and value and "." not in name:
            raise BadQuery(f"filter: expected one of {', '.join((*NAMES, 'id'))} before the colon, got {quoted(name)}")
        else:
            kind = "id" if is_prefix(word) and any(each.isdigit() for each in word) else "word"
            if kind in found:
                both = f"{quoted(found[kind])} and {quoted(word)}"
                raise BadQuery(f"filter: expected one word without a name, got {both}")
            found[kind] = word
    return {name: value for name, value in found.items() if value}


def _state(value: str) -> str:
    state = SHOWN_STATES.get(value.lower(), value.lower())
    if value and state not in {each.value for each in State}:
        words = sorted({*SHOWN_STATES, *(each.value for each in State)} - {*SHOWN_STATES.values()})
        raise BadQuery(f"state: expected one of {', '.join(words)}, got {quoted(value)}")
    return state


def write_filter(given: Mapping[str, str]) -> str:
    """The text of a filter, as a person would type it.

    >>> write_filter({"queue": "mail", "type": "send email", "id": "01M7HG69PC"})
    "queue:mail type:'send email' id:01M7HG69PC"
    """
    words = [f"{name}:{shlex.quote(given[name])}" for name in (*NAMES, "id") if given.get(name)]
    return " ".join([*words, *([shlex.quote(given["word"])] if given.get("word") else [])])
