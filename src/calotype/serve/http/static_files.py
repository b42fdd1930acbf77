"""The page: files that were built into the package, read once and served from memory.

So no address leads to any other file. Knows nothing of what is on the page.
"""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.responses import PlainTextResponse

TABS = ("studio", "graph", "measure", "system")
"""The page's own addresses, each with whatever is below it."""
NOT_BUILT = """\
Calotype serves pictures here. The page is not built: run `make page` in the source tree and start the
deployment again. /openapi.json describes the interface, /v1/jobs and ComfyUI's routes work without it.
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
    kind: str
    tag: str
    keep: str
    """How long whoever has it may use it without asking."""


class StaticFiles:
    """The built page; without files where it was not built."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or Path(str(files("calotype.resources.assets"))) / "page"
        found = sorted(folder.rglob("*")) if (folder / _INDEX).is_file() else []
        self._files = {
            path.relative_to(folder).as_posix(): _file(path, folder) for path in found if path.is_file()
        }

    @property
    def built(self) -> bool:
        return _INDEX in self._files

    def serves(self, path: str) -> bool:
        """Whether an address is the page's own, for which nobody needs a key."""
        name = path.removeprefix("/")
        return name == "" or (self.built and (name in self._files or name.partition("/")[0] in TABS))

    def answer(self, request: Request) -> Response:
        """What is at an address that it serves."""
        file = self._files.get(request.url.path.removeprefix("/")) or self._index(request)
        if file is None:
            return PlainTextResponse(NOT_BUILT, headers={"Cache-Control": "no-store"})
        headers = {"ETag": file.tag, "Cache-Control": file.keep, "Content-Security-Policy": _POLICY}
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.data, media_type=file.kind, headers=headers)

    def _index(self, request: Request) -> _File | None:
        """The page for the address of a room; the addresses of its files stay relative to the root."""
        index = self._files.get(_INDEX)
        # As the browser counts: it does not decode %2F before it looks for slashes.
        depth = request.scope["raw_path"].count(b"/") - 1
        if index is None or depth == 0:
            return index
        # Relative, because a proxy may serve everything below a prefix that is not known here.
        base = f'<head><base href="{"../" * depth}" />'.encode()
        tag = f'{index.tag[:-1]}-{depth}"'
        return replace(index, data=index.data.replace(b"<head>", base, 1), tag=tag)

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
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    # Vite puts a hash into the names of what lies there.
    named_by_content = path.relative_to(folder).parts[0] == "assets"
    return _File(
        data, kind, f'"{hashlib.sha256(data).hexdigest()}"', _FOR_EVER if named_by_content else "no-cache"
    )
