"""The dashboard: a store in a browser, as an ASGI application that mounts under any prefix.

    app.mount("/jobs", dashboard(harbor, access=access))

Needs `pip install 'taskharbor[dashboard]'`. Nothing is decided here: `taskharbor.ops` says what a person sees and may
do, and this package draws it.
"""

from __future__ import annotations

from taskharbor.ops.access import Access

try:
    import jinja2 as _jinja2  # noqa: F401  # to say it here, in one line, if one of them is missing
    import starlette as _starlette  # noqa: F401  # as above
except ModuleNotFoundError as error:
    raise ImportError(
        f"the dashboard needs {error.name}, which is not installed: pip install 'taskharbor[dashboard]'"
    ) from error

from taskharbor.dashboard.app import dashboard

__all__ = ["Access", "dashboard"]
