"""Serves the built web page from memory; it reads the packaged files once, so no URL reaches other files."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.responses import PlainTextResponse

TABS = ("studio", "graph", "measure", "system")
"""The page's client-side routes; each includes everything below it."""
NOT_BUILT = """\
Calotype generates images here. The page is not built: run `make page` in the source tree and restart the
deployment. /openapi.json describes the API; /v1/jobs and ComfyUI's routes work without the page.
"""
_INDEX = "index.html"
_FOR_EVER = "public, max-age=31536000, immutable"
_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; frame-src 'self' blob:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class _File:
    data: bytes
    media_type: str
    etag: str
    cache_control: str
    """The Cache-Control header."""


class StaticFiles:
    """The built page; empty if it was not built."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or Path(str(files("calotype.resources.assets"))) / "page"
        paths = sorted(folder.rglob("*")) if (folder / _INDEX).is_file() else []
        self._files = {
            path.relative_to(folder).as_posix(): _file(path, folder) for path in paths if path.is_file()
        }

    @property
    def built(self) -> bool:
        return _INDEX in self._files

    def serves(self, path: str) -> bool:
        """Whether a path belongs to the page and so needs no key."""
        name = path.removeprefix("/")
        return name == "" or (self.built and (name in self._files or name.partition("/")[0] in TABS))

    def answer(self, request: Request) -> Response:
        """Respond to a request for a path of the page."""
        file = self._files.get(request.url.path.removeprefix("/")) or self._index(request)
        if file is None:
            return PlainTextResponse(NOT_BUILT, headers={"Cache-Control": "no-store"})
        headers = {"ETag": file.etag, "Cache-Control": file.cache_control, "Content-Security-Policy": _POLICY}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.data, media_type=file.media_type, headers=headers)

    def _index(self, request: Request) -> _File | None:
        """Return the index for a client-side route; a base element keeps its links relative to the root."""
        index = self._files.get(_INDEX)
        # Count slashes as the browser does: it does not decode %2F first.
        depth = request.scope["raw_path"].count(b"/") - 1
        if index is None or depth == 0:
            return index
        # Relative, because a proxy may add a prefix that the server does not know.
        base = f'<head><base href="{"../" * depth}" />'.encode()
        etag = f'{index.etag[:-1]}-{depth}"'
        return replace(index, data=index.data.replace(b"<head>", base, 1), etag=etag)

    def router(self) -> APIRouter:
        """Its routes."""
        router = APIRouter(tags=["page"])

        async def page(request: Request) -> Response:
            """The page for people with a browser."""
            return self.answer(request)

        router.add_api_route("/", page, methods=["GET"], response_class=Response)
        names = [f"/{name}" for name in self._files]
        names += [f"/{tab}{rest}" for tab in TABS for rest in ("", "/{rest:path}")] if self.built else []
        for name in names:
            router.add_api_route(name, page, methods=["GET"], include_in_schema=False)
        return router


def _file(path: Path, folder: Path) -> _File:
    data = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    # Vite puts a content hash into the names of these files.
    named_by_content = path.relative_to(folder).parts[0] == "assets"
    return _File(
        data,
        media_type,
        f'"{hashlib.sha256(data).hexdigest()}"',
        _FOR_EVER if named_by_content else "no-cache",
    )
