"""Static files: found once, named by their content, compressed once, cached by browsers for ever.

All files share one hash in their address (`/static/<hash>/js/board.js`), so a script can import its neighbour by a
relative path, and a new release never meets an old file in a browser's cache.
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from backend.routing import Router

STATIC_DIR = Path(__file__).parent / "static"
COMPRESSIBLE = ("text/", "application/javascript", "application/json", "image/svg+xml")
FOR_EVER = "public, max-age=31536000, immutable"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".ico": "image/x-icon"}


@dataclass(slots=True)
class Asset:
    """One file, read at start; its compressed form is made at the first request that wants it."""

    content: bytes
    content_type: str
    _gzipped: bytes | None = field(default=None)

    @property
    def compressible(self) -> bool:
        return self.content_type.startswith(COMPRESSIBLE)

    def gzipped(self) -> bytes:
        if self._gzipped is None:
            self._gzipped = gzip.compress(self.content, 9, mtime=0)
        return self._gzipped


@dataclass(frozen=True, slots=True)
class Assets:
    """Every static file by its path, and the hash of them all."""

    version: str
    files: dict[str, Asset]

    def url(self, path: str) -> str:
        if path not in self.files:
            raise KeyError(f"no static file {path!r}; known: {', '.join(sorted(self.files))}")
        return f"/static/{self.version}/{path}"


@cache
def load_assets(directory: Path = STATIC_DIR) -> Assets:
    """Read the static files of this release."""
    digest, files = hashlib.sha256(), {}
    for path in sorted(directory.rglob("*")):
        if not path.is_file() or path.suffix == ".md":
            continue
        name, content = path.relative_to(directory).as_posix(), path.read_bytes()
        digest.update(name.encode() + b"\0" + content)
        kind = TYPES.get(path.suffix) or mimetypes.guess_type(name)[0] or "text/plain"
        files[name] = Asset(content, kind)
    return Assets(digest.hexdigest()[:12], files)


def router(content_security_policy: str) -> Router:
    """Serves `/static/<hash>/<path>`. Workers take their own policy from here, not from the page."""
    routes = Router(include_in_schema=False)

    @routes.get("/static/{version}/{path:path}")
    def static_file(request: Request, version: str, path: str) -> Response:
        assets = load_assets()
        asset = assets.files.get(path)
        if asset is None:
            asked = request.url.path.rstrip("/")
            raise HTTPException(404, f"nothing is at {asked!r}; static files are at /static/{assets.version}/PATH")
        headers = {
            "Cache-Control": FOR_EVER if version == assets.version else "no-cache",
            "Content-Security-Policy": content_security_policy,
            "X-Content-Type-Options": "nosniff",
            "Vary": "Accept-Encoding",
        }
        content = asset.content
        if asset.compressible and "gzip" in request.headers.get("accept-encoding", ""):
            content = asset.gzipped()
            headers["Content-Encoding"] = "gzip"
        kind = f"{asset.content_type}; charset=utf-8" if asset.compressible else asset.content_type
        return Response(content, media_type=kind, headers=headers)

    @routes.get("/favicon.ico")
    def favicon(request: Request) -> Response:
        return static_file(request, load_assets().version, "favicon.svg")

    return routes
