"""Scripts: Lua files with the library fragments of `lua/lib` before them, run by EVALSHA, loaded when unknown.

`load("reserve")` is a script of this driver; `load("publish", "taskharbor.omniq")` one of another package that uses the
same fragments. A script gets the anchor of a queue as its key, and one argument, a MessagePack array: `ScriptCall`
makes it. lua/lib/10_keys.lua says what every array begins with; the rest is named by the script itself.
"""

from __future__ import annotations

import functools
import hashlib
import re
from importlib.resources import files
from typing import Any

import msgspec

from taskharbor.drivers.redis.resp import Command

PACKAGE = "taskharbor.drivers.redis"
pack = msgspec.msgpack.Encoder().encode
_NEEDS = re.compile(r"^-- needs: (.*)$", re.MULTILINE)
_WITHOUT = re.compile(r"^-- without: (.*)$", re.MULTILINE)
_WITH = re.compile(r"^-- with: (.*)$", re.MULTILINE)
_ARGUMENTS = re.compile(r"^local ([\w, ]+) = unpack\(ARGS, 4\)$", re.MULTILINE)
_COMMENT = re.compile(rb"^\s*--[^\n]*\n", re.MULTILINE)


def binary(data: bytes) -> msgspec.Raw:
    """Bytes as a MessagePack string: the decoder inside Redis knows no other type, and does not check it."""
    size = len(data)
    if size < 256:
        return msgspec.Raw(b"\xd9" + size.to_bytes(1, "big") + data)
    if size < 65536:
        return msgspec.Raw(b"\xda" + size.to_bytes(2, "big") + data)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4, "big") + data)


class Script:
    """A Lua text and the hash by which a server knows it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text.encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()
        named = _ARGUMENTS.search(text)
        names = named[1].split(", ") if named else []
        self.arguments = dict.fromkeys("queue" if name == "q" else name for name in names)  # in their order

    def __repr__(self) -> str:
        return f"Script({self.name!r})"


class ScriptCall:
    """A script and its arguments, by the names that the script gives them; a queue is `q` there. One that is left out
    is False, which stands for "none": Redis' decoder has no other value for it that a Lua array could hold."""

    __slots__ = ("arguments", "home", "now", "script")

    def __init__(self, script: str, /, *, now: int = 0, home: str = "", **arguments: Any) -> None:
        self.script = script
        self.now = now
        self.home = home
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"ScriptCall({self.script!r})"

    def packed(self, script: Script, cluster: bool, elapsed_ms: int = 0) -> bytes:
        """The argument of the script. `elapsed_ms`: by how much later it is than `now`."""
        given, names = self.arguments, script.arguments
        if not given.keys() <= names.keys():
            raise TypeError(f"{self.script}.lua: expected {', '.join(names)}; got {', '.join(given)}")
        return pack((self.now + elapsed_ms, cluster, self.home, *[given.get(name, False) for name in names]))


@functools.cache
def fragments() -> tuple[tuple[str, str], ...]:
    """The fragments, name and text, in the order of their numbers; those without one come last."""
    folder = files(PACKAGE) / "lua" / "lib"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".lua"))
    return tuple((name, source(PACKAGE, f"lib/{name}")) for name in names)


def source(package: str, name: str) -> str:
    """The text of a file in `lua/`."""
    return files(package).joinpath("lua", *name.split("/")).read_text(encoding="utf-8")


def compose(name: str, text: str) -> Script:
    """Put the library fragments before a script, and strip the comments.

    A script runs from its first line each time it is called, fragments included. So it names the fragments that it
    `needs`, in a comment line, or those that it can do `without`. A fragment without a number, for a feature that few
    scripts know, is used by those that name it (`with`).
    """
    needed, left_out, further = _words(_NEEDS, text), _words(_WITHOUT, text), _words(_WITH, text)
    used = [
        fragment
        for file, fragment in fragments()
        if (name_of := file.removesuffix(".lua")) in needed | further
        or (not needed and name_of[0].isdigit() and name_of not in left_out)
    ]
    whole = "\n".join([*used, text])
    return Script(name, _COMMENT.sub(b"", whole.encode()).decode())


def _words(line: re.Pattern[str], text: str) -> set[str]:
    return {word for found in line.findall(text) for word in found.split()}


@functools.cache
def load(name: str, package: str = PACKAGE) -> Script:
    """The script `lua/<name>.lua` of a package."""
    return compose(name, source(package, f"{name}.lua"))


@functools.cache
def script_for(name: str, indexed: bool, database: int) -> Script:
    """The script of a name for a driver with these options: see `tuned`."""
    return tuned(load(name), indexed, database)


@functools.cache
def tuned(script: Script, indexed: bool, database: int) -> Script:
    """A script for a driver that keeps no index of OmniQ 4.0 (`?omniq_index=0`), or whose database is not 0: channels
    belong to the whole server, so the number of the database is part of those for hints."""
    if indexed and not database:
        return script
    text = script.text.decode()
    if not indexed:
        text = text.replace("local INDEXED = true", "local INDEXED = false")
    return Script(script.name, text.replace("local WAKE = 'th:wake'", f"local WAKE = '{wake(database)}'"))


def wake(database: int) -> str:
    """The part of the channel of hints that follows the name of a queue.

    >>> wake(0), wake(3)
    ('th:wake', 'th:wake:3')
    """
    return f"th:wake:{database}" if database else "th:wake"


def anchor(hash_tag: str) -> str:
    """The key by which a Cluster finds the node for a script. It never exists. Scripts delete it as their
    first write, so its name is ours: `meta` may be another program's."""
    return f"{{{hash_tag}}}:th:anchor"


@functools.lru_cache(maxsize=1024)
def anchors(hash_tag: str, cluster: bool) -> tuple[str, ...]:
    """The keys that a script is given. On a Cluster two: while a hash slot moves, a server that has only some of its
    keys refuses a script with two missing keys (TRYAGAIN), but would run one with a single key on what it has."""
    first = anchor(hash_tag)
    return (first, f"{{{hash_tag}}}:th:anchor:2") if cluster else (first,)


def by_hash(script: Script, hash_tag: str, argument: bytes, cluster: bool = False) -> Command:
    """The command that runs a script which the server knows."""
    keys = anchors(hash_tag, cluster)
    return ("EVALSHA", script.sha, len(keys), *keys, argument)


def by_text(script: Script, hash_tag: str, argument: bytes, cluster: bool = False) -> Command:
    """The command that runs a script and makes it known."""
    keys = anchors(hash_tag, cluster)
    return ("EVAL", script.text, len(keys), *keys, argument)
