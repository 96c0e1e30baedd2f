"""Who may do what: decided here and nowhere else. A front end hides a button; this refuses the action.

| action | none | view | operate | admin |
| --- | --- | --- | --- | --- |
| look at jobs, queues, workers, flows, the audit | no | yes | yes | yes |
| requeue, cancel, amend, pause, resume, stop an operation | no | no | yes | yes |
| run, edit, reset, pause, resume a schedule | no | no | yes | yes |
| add a schedule, delete | no | no | no | yes |
| reveal payloads and results, export them | no | if given | if given | yes |
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from taskharbor.model.bounds import check_name
from taskharbor.model.errors import TaskHarborError


class Permission(StrEnum):
    """What an action needs."""

    VIEW = "view"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    AMEND = "amend"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RUN = "run"
    ADD = "add"
    DELETE = "delete"
    REVEAL = "reveal"


_VIEW = frozenset({Permission.VIEW})
_OPERATE = _VIEW | {
    Permission.REQUEUE,
    Permission.CANCEL,
    Permission.AMEND,
    Permission.PAUSE,
    Permission.RESUME,
    Permission.STOP,
    Permission.RUN,
}
_ADMIN = frozenset(Permission)


class AccessDenied(TaskHarborError):
    """The person who asked may not do this."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """What a person may do, and the name under which the audit keeps it.

    >>> Access.view("ada").allows("delete"), Access.admin("ada").allows("delete")
    (False, True)
    >>> Access(name="ada", actions={"view", "requeue"}).allows("requeue")
    True
    """

    name: str  # the name of the person, for the audit
    actions: Collection[str] = ()  # what the person may do
    login: str = ""  # where a front end sends a person who may do nothing

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        object.__setattr__(self, "actions", frozenset(_permission(action) for action in self.actions))

    @classmethod
    def none(cls, name: str = "anonymous", *, login: str = "") -> Access:
        """Nothing at all, for a person of this `name`. `login`: where to send them to log in."""
        return cls(name=name, login=login)

    @classmethod
    def view(cls, name: str, *, reveal: bool = False) -> Access:
        """Look, and change nothing. `reveal`: payloads and results as well."""
        return cls(name=name, actions=_VIEW | _revealing(reveal))

    @classmethod
    def operate(cls, name: str, *, reveal: bool = False) -> Access:
        """Look, and change what can be changed back. `reveal`: payloads and results as well."""
        return cls(name=name, actions=_OPERATE | _revealing(reveal))

    @classmethod
    def admin(cls, name: str) -> Access:
        """Everything."""
        return cls(name=name, actions=_ADMIN)

    def allows(self, action: str) -> bool:
        """Whether this person may do it."""
        return _permission(action) in self.actions

    def check(self, action: str) -> None:
        """AccessDenied if this person may not do it."""
        if not self.allows(action):
            raise AccessDenied(f"{self.name} may not {action}; allowed: {', '.join(sorted(self.actions)) or 'nothing'}")


def _revealing(reveal: bool) -> frozenset[Permission]:
    return frozenset({Permission.REVEAL}) if reveal else frozenset()


def _permission(action: str) -> Permission:
    try:
        return Permission(action)
    except ValueError:
        raise ValueError(f"action: expected one of {', '.join(Permission)}, got {action!r}") from None
