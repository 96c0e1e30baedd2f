"""Overrides: other functions in the place of dependencies, for the length of a block. For tests.

They hold for the whole process, not for one thread or task: a job that a test enqueues runs in a worker's thread. A
handler whose dependencies are replaced is compiled again, once for each set of overrides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from taskharbor.model.naming import callable_name, class_name
from taskharbor.tasks.dependencies import Injection, compile_injection, declared_parameters, key_of
from taskharbor.tasks.handler import Handler

Pair = tuple[Callable[..., Any], Callable[..., Any]]


class Overrides:
    """What is replaced now. `pairs`: what a parent process had replaced when it started this one."""

    def __init__(self, pairs: Sequence[Pair] = ()) -> None:
        self.pairs: tuple[Pair, ...] = ()
        self._by_key: dict[Any, Callable[..., Any]] = {}
        self._compiled: dict[Handler, Injection | None] = {}
        self._blocks: list[list[Pair]] = []
        self._lock = threading.Lock()
        self._change(lambda: self._blocks.append(list(pairs)))

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def of(self, function: Any) -> Any:
        """What stands in the place of a function now: mostly itself."""
        return self._by_key.get(key_of(function), function) if self.pairs else function

    def injection_of(self, handler: Handler) -> Injection | None:
        """The injection of a handler with everything replaced."""
        if not self.pairs or handler.injection is None:
            return handler.injection
        try:
            return self._compiled[handler]
        except KeyError:
            parameters = declared_parameters(handler.function, handler.type)
            made = compile_injection(
                handler.type, parameters, is_coroutine=handler.is_coroutine, replacements=self._by_key
            )
            self._compiled[handler] = made
            return made

    @contextmanager
    def replaced(self, replacements: Mapping[Any, Any], known: Sequence[Callable[..., Any]]) -> Iterator[None]:
        """Replace functions for the length of a block. `known`: those that something depends on."""
        block = _checked(replacements, known)
        self._change(lambda: self._blocks.append(block))
        try:
            yield
        finally:
            self._change(lambda: self._remove(block))

    def _change(self, change: Callable[[], None]) -> None:
        with self._lock:
            change()
            self.pairs = tuple(pair for block in self._blocks for pair in block)
            self._by_key = {key_of(function): replacement for function, replacement in self.pairs}
            self._compiled = {}

    def _remove(self, block: list[Pair]) -> None:
        """End one block: not always the last, where several tests run at once."""
        self._blocks = [each for each in self._blocks if each is not block]


def _checked(replacements: Mapping[Any, Any], known: Sequence[Callable[..., Any]]) -> list[Pair]:
    if not isinstance(replacements, Mapping):
        raise TypeError(f"override: expected a dict such as {{session: fake_session}}, got {class_name(replacements)}")
    keys = {key_of(each) for each in known}
    pairs: list[Pair] = []
    for function, replacement in replacements.items():
        if not callable(replacement):
            raise TypeError(
                f"override: expected a function in the place of {callable_name(function)}, got "
                f"{class_name(replacement)}; write lambda: … for a value"
            )
        if key_of(function) not in keys:
            raise ValueError(
                f"override: nothing depends on {callable_name(function)}; expected the lifespan, or a function that a "
                "task names in Depends(…)" + _known(known)
            )
        pairs.append((function, replacement))
    return pairs


def _known(known: Sequence[Callable[..., Any]]) -> str:
    names = sorted({callable_name(each) for each in known})
    return f": {', '.join(names)}" if names else "; no task declared so far has one"
