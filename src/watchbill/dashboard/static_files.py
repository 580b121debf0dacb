"""The files of `static/`, under an address with a hash of their content, so that browsers never ask again."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from watchbill.dashboard.problems import Problem
from watchbill.dashboard.visit import get_visit

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_MARK = "#0f766e"  # the color of an installation that has not chosen one
_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Files:
    """All files, by name. `digest` is part of their addresses; one for all, because modules import each other."""

    contents: dict[str, bytes]
    digest: str


@lru_cache(maxsize=8)
def load_files(color: str | None) -> Files:
    """The files as this installation serves them: its color is in `mark.css` and `icon.svg`."""
    contents = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}
    mark = color or _MARK
    contents["icon.svg"] = contents["icon.svg"].replace(_MARK.encode(), mark.encode())
    dark = f"color-mix(in srgb, {mark} 62%, white)"
    contents["mark.css"] = f":root {{ --mark: light-dark({mark}, {dark}); }}\n".encode() if color else b""
    text = b"".join(name.encode() + content for name, content in contents.items())
    return Files(contents, hashlib.sha256(text).hexdigest()[:12])


async def serve_file(request: Request) -> Response:
    files = load_files(get_visit(request).board.look.color)
    name = request.path_params["name"]
    content = files.contents.get(name)
    if content is None:
        raise Problem(404, "There is no such file.")
    is_current = request.path_params["digest"] == files.digest
    suffix = Path(name).suffix
    return Response(
        content,
        media_type=_TYPES.get(suffix) or mimetypes.guess_type(name)[0],
        # During an update, a page of one version may ask a server of the other.
        headers={"Cache-Control": _FOREVER if is_current else "no-cache"},
    )
