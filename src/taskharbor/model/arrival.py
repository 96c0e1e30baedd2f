"""What would arrive changed: compares a value with what is decoded from its bytes, and says where they differ.

A value may arrive as the annotation says where nothing is lost by it: an int as the float that equals it, text as the
date, the UUID or the enum that it names, a dict as the record that has its keys, a tuple as a list. All else is a
`Loss`: a secret, a subclass of the annotated record, text for bytes, a key that no field takes, a field that a
serializer changed or left out. The walk reads fields, never `==` of a record, which may leave fields out.

This module never imports pydantic: it uses the loaded one. A Loss names types, fields and places, never a value.
"""

from __future__ import annotations

import enum
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from taskharbor.model.json_hooks import (
    KEYS_OF_ITS_OWN,
    extra_of,
    field_of,
    fields_of,
    items_of,
    keys_of,
    once_for_each_class,
    private_of,
    root_of,
)

PLAIN: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_JSON = PLAIN | {list, dict}
_CONTAINERS = (list, tuple, set, frozenset, deque)
_BYTES = (bytes, bytearray, memoryview)
_SUBCLASSED = (str, int, float)
_ABSENT: Any = object()
MAX_SEARCHED_ITEMS = 250_000  # of a set, for those that are not there as they were given: half a second


class Loss:
    """What would not arrive as it was sent, where, and how to mend the call."""

    __slots__ = ("_steps", "mend", "what")

    def __init__(self, what: str, mend: str) -> None:
        self.what = what
        self.mend = mend
        self._steps: list[tuple[str, Any]] = []  # from the inside out: a field's name, an index, a key

    def under(self, kind: str, step: Any) -> Loss:
        """The same, seen from the value around it."""
        self._steps.append((kind, step))
        return self

    def place(self, root: str, *, keys: bool = True) -> str:
        """Where it is. `keys` False: without the keys of dicts, which are data."""
        return root + "".join(_step(kind, step, keys) for kind, step in reversed(self._steps))

    def sentence(self, root: str) -> str:
        """What, where and how to mend it, in one sentence."""
        place = self.place(root)
        return f"{self.what}{'' if place == root else f' at {place}'}; {self.mend}"


def _step(kind: str, step: Any, keys: bool) -> str:
    if kind == "index":
        return f"[{step}]"
    shown = kind == "field" or (keys and isinstance(step, str) and step.isidentifier())
    return f".{step}" if shown else "[…]"


class Comparison:
    """How two values are compared.

    `again`: encodes a value and decodes it as its own type. Given where no type is promised to the reader (a request
    by name, a result): a value may arrive in its JSON form there, if `again` shows that the form holds all of it.
    `reads`: pydantic reads plain values its own way, such as text as a number; what it makes of them is not compared.
    """

    __slots__ = ("_again", "_reads")

    def __init__(self, again: Callable[[Any], Any] | None = None, *, reads: bool = False) -> None:
        self._again = again
        self._reads = reads

    def loss(self, given: Any, back: Any) -> Loss | None:
        """What differs between a value and what arrives; None if nothing does."""
        kind = type(given)
        if kind in PLAIN:
            return None if self._reads or (kind is type(back) and given == back) else _plain_loss(given, back)
        if is_secret(kind):
            return None if _arrives(given, back) else secret_loss(kind)
        if isinstance(given, _SUBCLASSED) and not isinstance(given, enum.Enum):
            return None if self._reads else _plain_loss(_plain(given), back)
        if self._again is not None and type(back) in _JSON and not isinstance(given, (*_CONTAINERS, dict)):
            return self.own_loss(given)
        fields = fields_of(type(back))
        if fields is not None:
            return self._record_loss(given, back, fields)
        if isinstance(back, Mapping):
            return self._dict_loss(given, back)
        if isinstance(back, set | frozenset):
            return self._set_loss(given, back)
        if isinstance(back, list | tuple | deque):
            return self._items_loss(given, back)
        return _value_loss(given, back)

    def own_loss(self, given: Any) -> Loss | None:
        """What the JSON form of a value leaves out of it."""
        kind = type(given)
        if kind in PLAIN:
            return None
        if is_secret(kind):
            return secret_loss(kind)
        fields = fields_of(kind)
        if fields is not None and self._again is not None:
            try:
                back = self._again(given)
            except Exception:  # such a type is written only: its reader has another
                back = _ABSENT
            if type(back) is kind:
                return self.loss(given, back)  # which comes back here for what stands in it without a type
        for step, name, value in _inside(given, fields):
            if type(value) not in PLAIN:
                loss = self.own_loss(value)
                if loss is not None:
                    return loss.under(step, name)
        return None

    # Records ------------------------------------------------------------------------------------------------

    def _record_loss(self, given: Any, back: Any, fields: tuple[str, ...]) -> Loss | None:
        if type(given) is type(back) or _origin(type(given)) is _origin(type(back)):
            is_model = hasattr(given, "__pydantic_extra__")
            read: Callable[[Any, str, Any], Any] = field_of if is_model else getattr
            for name in fields:
                value, there = read(given, name, _ABSENT), read(back, name, _ABSENT)
                if type(value) in PLAIN and type(value) is type(there) and value == there:
                    continue
                loss = self.loss(value, there)
                if loss is not None:
                    return loss.under("field", name)
            return self._extra_loss(given, back) if is_model else None
        root = root_of(back)
        if root is not None:
            return Comparison(self._again, reads=True).loss(given, getattr(back, root))
        if isinstance(given, dict) and not isinstance(back, tuple):
            return self._keys_loss(given, back)
        items = items_of(back) if type(given) in (list, tuple) else None
        if items is not None:
            return _changed(given, back) if len(given) > len(items) else self._items_loss(given, items[: len(given)])
        return _other_record(given, back, fields)

    def _extra_loss(self, given: Any, back: Any) -> Loss | None:
        """What a pydantic model has beside its fields."""
        loss = self.loss(extra_of(given), extra_of(back))
        if loss is not None:
            return loss
        kept = private_of(back)
        for name, value in private_of(given).items():
            there = kept.get(name, _ABSENT)
            if type(value) is type(there) and _is_opaque(value):
                continue  # the model makes its own
            if self.loss(value, there) is not None:
                return Loss(
                    f"the private attribute {name!r} of {type(given).__name__} would be lost",
                    "make it a field, or send it as a parameter of its own",
                )
        return None

    def _keys_loss(self, given: dict[Any, Any], back: Any) -> Loss | None:
        """A dict for a record: every key needs a field."""
        names, is_pydantic = keys_of(type(back))
        if names is KEYS_OF_ITS_OWN:
            return None
        inner = Comparison(self._again, reads=True) if is_pydantic else self
        extra, fields = extra_of(back), fields_of(type(back)) or ()
        for key, value in given.items():
            name = names.get(key, _ABSENT)
            if name is _ABSENT and key not in extra:
                return _no_field(type(back)).under("key", key)
            if name is not None:  # None: the tag that chooses the type
                compared = inner if name is _ABSENT or name in fields else self  # a computed field is read from nothing
                loss = compared.loss(value, extra[key] if name is _ABSENT else field_of(back, name, _ABSENT))
                if loss is not None:
                    return loss.under("key", key)
        return None

    # Collections ----------------------------------------------------------------------------------------------

    def _dict_loss(self, given: Any, back: Mapping[Any, Any]) -> Loss | None:
        if not isinstance(given, Mapping):
            return _other_type(given, back)
        if len(given) != len(back):
            for key in given:
                if key not in back:
                    return _no_field(dict).under("key", key)
        for (key, item), (arrived, there) in zip(given.items(), back.items(), strict=False):
            if type(key) is str and key in back:
                there = back[key]
            else:
                loss = self.loss(key, arrived)
                if loss is not None:
                    return Loss(f"a key: {loss.what}", loss.mend)
            loss = self.loss(item, there)
            if loss is not None:
                return loss.under("key", key)
        return None

    def _items_loss(self, given: Any, back: Collection[Any]) -> Loss | None:
        if not isinstance(given, _CONTAINERS):
            return _other_type(given, back)
        if len(given) != len(back):
            return _changed(given, back)
        for index, (item, there) in enumerate(zip(given, back, strict=True)):
            loss = self.loss(item, there)
            if loss is not None:
                return loss.under("index", index)
        return None

    def _set_loss(self, given: Any, back: set[Any] | frozenset[Any]) -> Loss | None:
        """The order of a set is not kept, so its items are looked up; only converted ones are searched for."""
        if not isinstance(given, _CONTAINERS):
            return _other_type(given, back)
        if len(given) != len(back):
            return Loss(
                f"expected {_name(back)}, got {_name(given)} with items that are equal", "send each of them once"
            )
        left, searched = {item: item for item in back}, 0
        for index, item in enumerate(given):
            there = _looked_up(left, item)
            if there is _ABSENT:
                searched += len(left)
                if searched > MAX_SEARCHED_ITEMS:
                    return Loss("too many items of other types to compare them with a set", "send a list or the set")
                there = next((each for each in left if self.loss(item, each) is None), _ABSENT)
            loss = self.loss(item, there)
            if loss is not None:
                return loss.under("index", index)
            del left[there]
        return None


@once_for_each_class
def is_secret(kind: type) -> bool:
    """Whether values of this type hide what they hold when they are written: pydantic's SecretStr and the like."""
    return hasattr(kind, "get_secret_value") and hasattr(kind, "__get_pydantic_core_schema__")


def _arrives(secret: Any, back: Any) -> bool:
    """Whether a serializer of the user's own wrote what the secret holds instead of asterisks, or it holds nothing."""
    value = secret.get_secret_value()
    arrived = type(back) is type(secret) and back.get_secret_value() == value
    return arrived and (not value or str(secret) != value)


def _plain(value: str | float) -> str | float:
    """The text or the number that a value of a subclass is."""
    return str.__str__(value) if isinstance(value, str) else int(value) if isinstance(value, int) else float(value)


def _plain_loss(given: Any, back: Any) -> Loss | None:
    """A plain value: itself, a number that equals it, or what an annotation reads from it."""
    kind = type(back)
    if kind is type(given):
        return None if given == back else _changed(given, back)
    if given is None or isinstance(given, bool):
        return _other_type(given, back)
    if isinstance(given, str):
        if isinstance(back, _BYTES):
            return Loss(
                f"expected {_name(back)}, got text, which would be read as base64",
                "send bytes, such as text.encode(), or annotate it as str",
            )
        if isinstance(back, str) and not isinstance(back, enum.Enum):
            return None if str.__eq__(given, back) else _changed(given, back)
        return _other_type(given, back) if kind in _JSON or back is _ABSENT else None
    if isinstance(back, int | float) and not isinstance(back, bool | enum.Enum):
        return None if given == back else _changed(given, back)
    return _other_type(given, back) if kind in _JSON or back is _ABSENT else None


def _value_loss(given: Any, back: Any) -> Loss | None:
    """Neither plain nor a collection nor a record."""
    if isinstance(given, enum.Enum) or not isinstance(given, type(back)):
        if isinstance(given, _BYTES) and isinstance(back, _BYTES):
            return None if given == back else _changed(given, back)
        equal = given is back or (isinstance(given, str | int | float) and type(back) in PLAIN and given == back)
        return None if equal else _other_type(given, back)
    return None if _is_equal(given, back) else _changed(given, back)


def _is_equal(given: Any, back: Any) -> bool:
    if isinstance(given, datetime | time):  # == of two zones is False where the clock is put back
        if not isinstance(back, datetime | time):  # a date, which has no time
            return False
        naive = given.replace(tzinfo=None, fold=0) == back.replace(tzinfo=None, fold=0)
        zoned = (given.tzinfo is None) == (back.tzinfo is None)  # the offset of a time in a zone is not known
        return bool(naive and zoned and given.utcoffset() == back.utcoffset())
    if isinstance(given, Decimal):
        return given.compare_total(back) == 0
    own: Any = type(given).__eq__
    if own is object.__eq__ and given is not back:  # it has no equality of its own: what it holds has
        inside, arrived = getattr(given, "__dict__", None), getattr(back, "__dict__", None)
        return bool(inside) and arrived is not None and Comparison().loss(inside, arrived) is None
    return bool(given == back)


def _is_opaque(value: Any) -> bool:
    """Whether a value equals only itself and holds nothing that can be seen, as a lock does."""
    own: Any = type(value).__eq__
    return own is object.__eq__ and not hasattr(value, "__dict__") and not hasattr(value, "__slots__")


def _inside(value: Any, fields: tuple[str, ...] | None) -> Iterable[tuple[str, Any, Any]]:
    """What a value is made of: the kind of the step to it, the step, and the part."""
    if fields is not None:
        return [("field", name, field_of(value, name, _ABSENT)) for name in fields]
    if isinstance(value, Mapping):
        return [("key", key, item) for key, item in value.items()]
    return [("index", index, item) for index, item in enumerate(value)] if isinstance(value, _CONTAINERS) else ()


def _looked_up(items: dict[Any, Any], item: Any) -> Any:
    try:
        return items.get(_as_tuple(item), _ABSENT)
    except TypeError:  # a dict, for a record
        return _ABSENT


def _as_tuple(item: Any) -> Any:
    """A list stands for a tuple in a set, whose items have no lists."""
    return tuple(map(_as_tuple, item)) if isinstance(item, list) else item


def _origin(kind: type) -> type:
    """The class itself; of a pydantic model with parameters, the class without them."""
    origin = getattr(kind, "__pydantic_generic_metadata__", {}).get("origin") if "pydantic" in sys.modules else None
    return origin or kind


def _name(value: Any) -> str:
    return "nothing" if value is _ABSENT else type(value).__name__ if value is not None else "None"


def secret_loss(kind: type) -> Loss:
    """A secret hides what it holds when it is written, too."""
    return Loss(
        f"a {kind.__name__} is written as asterisks, and its value would be lost",
        "send what get_secret_value() returns, which anyone who reads the payload sees, or a name by which the handler "
        "finds the secret",
    )


def _other_record(given: Any, back: Any, fields: tuple[str, ...]) -> Loss:
    kept, own = set(fields), fields_of(type(given)) or ()
    lost = [name for name in own if name not in kept]
    what = f"expected {_name(back)}, got {_name(given)}"
    if lost:
        what += f", whose field{'' if len(lost) == 1 else 's'} {', '.join(map(repr, lost))} would be lost"
    return Loss(what, f"annotate it with {_name(given)}, or send a {_name(back)}")


def _other_type(given: Any, back: Any) -> Loss:
    return Loss(
        f"expected {_name(back)}, got {_name(given)}", f"convert it before the call, or annotate it as {_name(given)}"
    )


def _changed(given: Any, back: Any) -> Loss:
    return Loss(
        f"a value of type {_name(given)} would arrive as another {_name(back)}",
        "send one that comes back as it is: is it within the range of that type, and is no serializer or validator "
        "changing it?",
    )


def _no_field(kind: type) -> Loss:
    what = "no field takes this key" if kind is dict else f"{kind.__name__} has no field for this key"
    return Loss(f"{what}, and its value would be lost", "leave it out, or add the field")
