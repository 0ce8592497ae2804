"""One page on 127.0.0.1, for as long as its reader wants it; nothing else is ever served."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import final

from pacefno.errors import UsageError

ADDRESS = "127.0.0.1"


@final
class PageServer(ThreadingHTTPServer):
    """Answers ``GET /ID`` with the page, where the id is drawn anew for every server.

    No part of a request ever becomes a path. A request must name this address as its host: a
    foreign site that lets its own name point to 127.0.0.1 gets nothing.
    """

    daemon_threads = True
    allow_reuse_address = False  # else a port that another program serves may be taken over

    def __init__(self, port: int = 0) -> None:
        self.page = b""
        self.id = secrets.token_urlsafe(9)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"port {port} of {ADDRESS} cannot be used ({reason}): name another with --port, "
                "leave it out for a free one, or write the page with --output"
            ) from None

    def show(self, page: str) -> None:
        """The page to answer with."""
        self.page = page.encode()

    @property
    def hosts(self) -> set[str]:
        return {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/{self.id}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "pacefno", ""
    timeout = 20  # seconds: a reader who says nothing does not hold a thread for ever

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This page is for this computer only")
        elif not secrets.compare_digest(self.path.encode(), f"/{self.server.id}".encode()):
            self.send_error(HTTPStatus.NOT_FOUND, "There is one page here, at the address shown")
        else:
            self.send_response(HTTPStatus.OK)
            for name, value in {
                "Content-Type": "text/html; charset=utf-8",
                "Content-Length": str(len(self.server.page)),
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "X-Frame-Options": "DENY",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal belongs to whoever gave the command."""
