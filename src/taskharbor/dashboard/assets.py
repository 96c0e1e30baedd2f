"""The files that pages load: read once, served from memory, cached by browsers under the hash of their content."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FOR_EVER = "public, max-age=31536000, immutable"


@lru_cache(maxsize=1)
def assets() -> dict[str, tuple[bytes, str]]:
    """Content and type of every file, by its path."""
    return dict(_walk(files("taskharbor.dashboard") / "static", ""))


@lru_cache(maxsize=1)
def version() -> str:
    """Changes when any file does."""
    whole = hashlib.sha256()
    for name, (content, _) in sorted(assets().items()):
        whole.update(name.encode() + content)
    return whole.hexdigest()[:12]


async def serve(request: Request) -> Response:
    """One file."""
    found = assets().get(request.path_params["file"])
    if found is None:
        return PlainTextResponse("there is no such file\n", 404)
    content, kind = found
    cache = FOR_EVER if request.query_params.get("v") == version() else "no-cache"
    return Response(content, media_type=kind, headers={"cache-control": cache})


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, tuple[bytes, str]]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        else:
            kind = TYPES.get(entry.name.rpartition(".")[2])
            if kind is not None:
                found.append((f"{prefix}{entry.name}", (entry.read_bytes(), kind)))
    return found
