"""What a user of Django may do in the dashboard: permissions of the app `taskharbor`, and nothing besides.

| permission | allows |
| --- | --- |
| `taskharbor.view_job` | look |
| `taskharbor.operate_job` | look; retry, cancel, edit, pause, resume, stop, run a schedule |
| `taskharbor.delete_job` | look; delete |
| `taskharbor.reveal_job` | look; see payloads and results |

A superuser may do everything. The user must also be allowed into the admin: active, and staff.
"""

from __future__ import annotations

from typing import Any

from taskharbor.model.errors import InvalidJob
from taskharbor.ops.access import Access, Permission

_ALLOWED = {
    "taskharbor.view_job": frozenset({Permission.VIEW}),
    "taskharbor.operate_job": frozenset(Access.operate("operator").actions),
    "taskharbor.delete_job": frozenset({Permission.VIEW, Permission.DELETE}),
    "taskharbor.reveal_job": frozenset({Permission.VIEW, Permission.REVEAL}),
}


def access_of(user: Any) -> Access:
    """What a user may do; the audit keeps it under their name."""
    name = _name(user)
    if user.is_active and getattr(user, "is_superuser", False):
        return Access.admin(name)
    actions = [allowed for permission, allowed in _ALLOWED.items() if user.has_perm(permission)]
    return Access(name=name, actions=frozenset().union(*actions))


def _name(user: Any) -> str:
    """Their name, if the audit can keep it; otherwise their number. (A name may be empty, long, or hold anything.)"""
    try:
        return Access.none(str(user.get_username())).name
    except InvalidJob:
        return f"user {user.pk}"
