"""Text for people: times and durations, and stored text made safe for a terminal.

A job's name or error must not move the cursor, change colours or fake lines.

Escape sequences are removed whole; control characters and marks that change the writing direction are removed one by
one. JSON output is not cleaned but escaped, so that a script gets exactly what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

# CSI and its 8-bit form; OSC, DCS, SOS, PM and APC with all they carry; two-character escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
MAX_SAFE_CHARS = 2_000  # of an error, which often quotes what a person sent
_SPACES = re.compile(r"\s+")
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
# The scheme has a bound: without one, a long run of letters costs the square of its length.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://(?=[\w:@/%\[])[^\s\"'<>]+")


def clean(text: str) -> str:
    """Several lines of text without anything that a terminal would interpret.

    >>> clean("a\\x1b[31mred\\x1b[0m\\x07 line\\nnext")
    'ared line\\nnext'
    """
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n"))).replace("\t", "    ")


def one_line(text: str) -> str:
    """Cleaned text in one line.

    >>> one_line("first\\n  second")
    'first second'
    """
    return _SPACES.sub(" ", clean(text)).strip()


def first_line(text: str) -> str:
    """The first line that is not blank."""
    return next((one_line(line) for line in clean(text).splitlines() if line.strip()), "")


def middle(text: str, most: int) -> str:
    """The beginning and the end of a long text: names that are alike often differ at the end.

    >>> middle("eu-west-1.production.rollout-2026-11", 20)
    'eu-west-1.…t-2026-11'
    """
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[len(text) - half :]}"


def plural(number: int, noun: str, format: str = "") -> str:
    """A number of things.

    >>> plural(1, "job"), plural(1240, "job", ",")
    ('1 job', '1,240 jobs')
    """
    return f"{number:{format}} {noun}{'' if number == 1 else 's'}"


def was(number: int) -> str:
    """The verb for a number of things."""
    return "was" if number == 1 else "were"


def command(words: str, *names: str, options: Sequence[str] = ()) -> str:
    """A command of this program that can be pasted into a shell, whatever is in the ids and names that it is about.

    >>> command("dlq show", "my job"), command("dlq edit", "-x", options=["--requeue"])
    ("taskharbor dlq show 'my job'", 'taskharbor dlq edit --requeue -- -x')
    """
    end = any(name.startswith("-") for name in names)  # of the options: what follows is none
    rest = [*options, "--", *names] if end else [*names, *options]
    return " ".join(["taskharbor", words, *map(shell_word, rest)])


def shell_word(text: str) -> str:
    """A text as one word of a shell command, on one line and without anything that a terminal would interpret.

    >>> shell_word("a;b"), shell_word("it's\\x1b[31m")
    ("'a;b'", "$'it\\\\'s\\\\x1b[31m'")
    """
    import shlex  # only what suggests a command pays for it

    if not _CONTROLS.search(text) and "\n" not in text and "\t" not in text and "\x1b" not in text:
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text.replace("\0", ""))) + "'"


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    if " " <= char <= "~" or (char.isprintable() and not _CONTROLS.match(char)):
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


def safe_text(text: str) -> str:
    """Error text that is safe to print: one line, addresses redacted, no escape sequences, cut at MAX_SAFE_CHARS."""
    from taskharbor.drivers.dsn import redact

    return one_line(_ADDRESS.sub(lambda found: redact(found.group()), _cut(text)))


def _cut(text: str) -> str:
    """The beginning of a text. An address that the cut goes through is left out, since half of one is not redacted."""
    if len(text) <= MAX_SAFE_CHARS:
        return text
    begun = text[:MAX_SAFE_CHARS]
    last = _SPACES.split(begun)[-1]
    return (begun.removesuffix(last) if "://" in last else begun) + "…"


# Moments and durations


def format_moment(moment: datetime | None) -> str:
    """Format a moment in UTC, to the second."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def format_duration(span: timedelta) -> str:
    """Format a duration in its two largest units.

    >>> format_duration(timedelta(hours=2, minutes=5, seconds=9)), format_duration(timedelta(milliseconds=300))
    ('2h 5m', '0.3s')
    """
    seconds = span.total_seconds()
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def relative(moment: datetime | None, now: datetime) -> str:
    """Format a moment relative to now: `in 5m`, `2h 5m ago`."""
    if moment is None:
        return ""
    return f"in {format_duration(moment - now)}" if moment > now else f"{format_duration(now - moment)} ago"


def with_distance(moment: datetime | None, now: datetime) -> str:
    """Format a moment in UTC, followed by its distance from now."""
    return "" if moment is None else f"{format_moment(moment)} ({relative(moment, now)})"
