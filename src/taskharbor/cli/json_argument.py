"""JSON that is typed as an option, or read from stdin."""

from __future__ import annotations

import sys

import msgspec

from taskharbor.cli.errors import usage_error


def read_json(text: str, option: str) -> bytes:
    """The JSON text, checked; `-` reads it from stdin. No error message repeats the text, which may be secret."""
    data = sys.stdin.buffer.read() if text == "-" else text.encode(errors="surrogateescape")
    return checked_json(data, f'{option}: expected JSON such as \'{{"to": "ada"}}\'')


def checked_json(data: bytes, expected: str) -> bytes:
    """JSON that was typed or edited, or a usage error that begins with what was expected."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).split(":")[-1].strip()
        if isinstance(error, UnicodeDecodeError):
            why = "not UTF-8"
        raise usage_error(f"{expected}, got invalid JSON ({why})") from None
    return data.strip()
