"""Places in a program, the code there, what to write instead, and what to know."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal, get_args

import msgspec

from taskharbor.model.safe_repr import shows

Level = Literal["same", "differs", "missing"]
"""same: write it and it behaves alike. differs: it works in another way. missing: there is no counterpart."""
Kind = Literal["task", "schedule", "call", "setting", "other"]


@shows("level")
class Advice(msgspec.Struct, frozen=True):
    """A sentence about a place."""

    level: Level
    text: str


UNTYPED = "parameters without annotations take only what JSON returns unchanged; annotate the others"


class Remarks(list[Advice]):
    """What there is to say about a place, in its order."""

    def same(self, text: str) -> None:
        self.append(Advice("same", text))

    def differs(self, text: str) -> None:
        self.append(Advice("differs", text))

    def missing(self, text: str) -> None:
        self.append(Advice("missing", text))


@shows("kind", "line")  # what stands in a program is not for logs
class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a program. `line` 0: somewhere in the file, or in no file at all (`file` is then empty)."""

    kind: Kind
    subject: str
    file: str = ""
    line: int = 0
    theirs: str = ""
    ours: str = ""
    advice: tuple[Advice, ...] = ()

    @property
    def level(self) -> Level:
        """The worst of what there is to say."""
        levels = {each.level for each in self.advice}
        return "missing" if "missing" in levels else "differs" if "differs" in levels else "same"


@shows()
class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A word of another library: what to write for it, and what to know. `{}` stands for the value that it has."""

    ours: str = ""
    same: str = ""
    differs: str = ""
    missing: str = ""

    def advice(self, value: str = "") -> list[Advice]:
        return [
            Advice(level, getattr(self, level).replace("{}", value))
            for level in get_args(Level)
            if getattr(self, level)
        ]


@cache
def words(library: str) -> dict[str, dict[str, Word]]:
    """The tables of a library's words, by what each word is."""
    text = (files("taskharbor.moving") / f"{library}.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, dict[str, Word]])
