"""Masking values in error text: the text of an error must not show the arguments of its job.

A value is found where the text repeats it whole, as it is or as Python, JSON and URLs quote it, and wherever sixteen
of its characters stand in a row, because a store cuts long errors. Values that a handler changed (capitals, a slice,
`f"{n:,}"`) and values of fewer than four characters are not found.

The work is bounded by the size of the text, which a store keeps at 8 KiB, plus one cheap lookup for every ninth
character of the values: a payload may have a megabyte, and a page of a listing fifty of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time
from decimal import Decimal
from itertools import chain
from urllib.parse import quote, quote_plus
from uuid import UUID

import msgspec

from taskharbor.model.bounds import MAX_ERROR_BYTES, replace_unstorable
from taskharbor.model.deep_json import children, read, scalars_of
from taskharbor.model.job import JobRecord

MASK = "•••"
MAX_DEEP_BYTES = 16 * 1024  # of JSON that is nested too deep for msgspec; a larger one is searched as plain text
SHORTEST = 4  # shorter values say little, and would be found everywhere
RUN = 16  # characters of a value in a row that cannot be an accident
IN_A_URL = 2048  # characters; longer values are sent in a body
_SEED = 8
_STRIDE = RUN - _SEED + 1  # every run of a value holds one seed that begins at a multiple of this

_OUR_WORDS = re.compile(  # reasons that quote nothing
    r"failed \d+ of \d+ attempts|crashed \d+ times|a job that it depends on was cancelled|"
).fullmatch
_FROM_A_URL = re.compile(r"%[0-9A-Fa-f]{2}|\S\+\S").search
_WORD = re.compile(r"[A-Za-z_]*").fullmatch
_CUT = MAX_ERROR_BYTES - 3  # bytes from which on a text may have been cut, and its last value with it
_WRITTEN = (int, float, Decimal, UUID, date, time)


def without_payload(job: JobRecord, *texts: str) -> list[str]:
    """Texts about a job, such as its last error, without the values of its stored payload."""
    return mask(texts, stored_values(job.payload))


def mask(texts: Sequence[str], values: Iterable[object]) -> list[str]:
    """The texts without these values. Objects and lists count as all that is in them.

    >>> mask(["card 4111-1111 of ada was declined", ""], [{"card": "4111-1111"}])
    ['card ••• of ada was declined', '']
    """
    theirs = [text for text in texts if text and not _OUR_WORDS(text)]
    if not theirs:
        return list(texts)
    finder = Finder(theirs)
    finder.look_for(chain.from_iterable(scalars(value) for value in values))
    return [text if _OUR_WORDS(text) else finder.masked(text) for text in texts]


def stored_values(data: bytes) -> Iterator[object]:
    """The values in stored bytes. Bytes that are not JSON count as one text, and so do the scalars in it."""
    try:
        yield read(data) if len(data) <= MAX_DEEP_BYTES else msgspec.json.decode(data)
        return
    except (ValueError, RecursionError):  # also: not UTF-8
        pass
    text = data.decode(errors="replace")
    yield text
    yield from scalars_of(text)


def scalars(value: object) -> Iterator[object]:
    """The texts and numbers in a value, however deep.

    Keys count as well, because a mapping may be keyed by data. The names of parameters in the outermost object do not,
    nor do plain words further in: errors use them to say where something was wrong.
    """
    waiting = [value]
    seen: set[int] = set()  # a value may contain itself
    while waiting:
        item = waiting.pop()
        kind = type(item)  # by its class: an object's own methods may raise
        if not issubclass(kind, dict | list | tuple | set | frozenset):
            yield item
        elif id(item) not in seen:
            if issubclass(kind, dict):
                is_name = _WORD if seen else str.isidentifier
                keys: Iterable[object] = dict.keys(item)  # type: ignore[arg-type]  # its kind was asked
                yield from (key for key in keys if not (type(key) is str and is_name(key)))
            seen.add(id(item))
            waiting.extend(children(item))


class Finder:
    """Finds the pieces of values that some texts repeat, and masks them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._starts = _pieces(texts, SHORTEST)
        self._seeds = _pieces(texts, _SEED)
        self._runs = _pieces(texts, RUN)
        self._escapes = any("\\" in text for text in texts)
        self._urls = any(_FROM_A_URL(text) for text in texts)
        self._ends = {text[-size:] for text in texts if _may_be_cut(text) for size in range(SHORTEST, RUN)}
        self._short: set[str] = set()
        self._long: set[str] = set()  # runs, which are pieces of the texts: never more than they have characters
        self._cut: set[str] = set()
        self.lookups = 0  # of pieces of values: the measure of the work

    def look_for(self, values: Iterable[object]) -> None:
        """Note what the texts repeat of these values."""
        starts = self._starts
        plain = not (self._escapes or self._urls)
        for value in values:
            self.lookups += 1
            # The first characters of most short values already show that they are not in the texts.
            if type(value) is str and plain and _is_short_line(value) and value[:SHORTEST] not in starts:
                continue
            for form in self._forms(_text(value)):
                self._look_for(form)

    def _forms(self, text: str) -> Iterator[str]:
        """A value as error text may quote it. Long ones only in forms that are not pieces of another form."""
        if len(text) < SHORTEST:
            return
        yield text
        if self._escapes:  # else no quoted form that differs can be in the texts
            quoted = (repr(text), json.dumps(text), json.dumps(text, ensure_ascii=False))
            yield from {form[1:-1] for form in quoted} - {text}
        if self._urls and len(text) <= IN_A_URL:  # the errors of an HTTP client quote the URL
            seen = text.encode(errors="replace")
            yield from {quote(seen), quote(seen, safe=""), quote_plus(seen)} - {text}
        if not text.isprintable():
            yield from {replace_unstorable(text)} - {text}
            yield from (line.strip() for line in text.splitlines() if SHORTEST <= len(line.strip()) < RUN)

    def _look_for(self, form: str) -> None:
        size = len(form)
        self.lookups += 1
        if form[:SHORTEST] in self._starts:
            if size < RUN and any(form in text for text in self._texts):
                self._short.add(form)
            if self._ends:
                begun = (form[:length] for length in range(SHORTEST, min(size, RUN)))
                self._cut.update(piece for piece in begun if piece in self._ends)
        if size < RUN:
            return
        seeds, runs = self._seeds, self._runs
        places = range(0, size - _SEED + 1, _STRIDE)
        met = [at for at in places if form[at : at + _SEED] in seeds]
        self.lookups += len(places)
        seen: set[str] = set()  # a value that repeats itself costs no more than one that does not
        for at in met:
            around = form[max(0, at - _SEED) : at + RUN]
            if around in seen:
                continue
            seen.add(around)
            self.lookups += _STRIDE
            for start in range(max(0, at - _SEED), min(at, size - RUN) + 1):
                run = form[start : start + RUN]
                if run in runs:
                    self._long.add(run)

    def masked(self, text: str) -> str:
        """The text without what was noted."""
        hidden = bytearray(len(text))
        for form in self._short:
            at = text.find(form)
            while at >= 0:
                hidden[at : at + len(form)] = b"x" * len(form)
                at = text.find(form, at + 1)
        for at in range(len(text) - RUN + 1) if self._long else ():
            if text[at : at + RUN] in self._long:
                hidden[at : at + RUN] = b"x" * RUN
        for piece in self._cut:
            if text.endswith(piece):
                hidden[-len(piece) :] = b"x" * len(piece)
        kept: list[str] = []
        end = 0
        for found in re.finditer(b"x+", hidden):
            kept += (text[end : found.start()], MASK)
            end = found.end()
        return "".join((*kept, text[end:]))


def _pieces(texts: Sequence[str], size: int) -> set[str]:
    return {text[at : at + size] for text in texts for at in range(len(text) - size + 1)}


def _is_short_line(text: str) -> bool:
    return len(text) < RUN and text[:1] != " " and text.isprintable()


def _may_be_cut(text: str) -> bool:
    return len(text.encode(errors="replace")) >= _CUT


def _text(value: object) -> str:
    if isinstance(value, str):
        return str.strip(value)
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="backslashreplace").strip()  # as its repr shows it
    if isinstance(value, _WRITTEN) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:  # more digits than Python writes
            pass
    return ""
