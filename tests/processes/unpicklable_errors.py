"""Exceptions that resist: what a child process does with them must not change what they are."""

from typing import Any


class Stubborn(Exception):
    """Takes no attributes."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: this cannot be changed")


class Noteless(Exception):
    """Has notes of its own, which nobody may set."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # a property in place of an attribute
        return ["mine"]


class Disguised(Exception):
    """Becomes a text on its way."""

    def __reduce__(self) -> Any:
        return (str, ("not an exception",))


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, text: str, code: int = 7) -> None:
        super().__init__(text)
        self.code = code


ODD = {each.__name__: each for each in (Stubborn, Noteless, Disguised, Slotted)}


def raises(name: str) -> None:
    raise ODD[name]("it went wrong")
