"""The page is served to this computer alone, under one id, and nothing else is ever served."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from pacefno.errors import UsageError
from pacefno.explorer.serve import ADDRESS, PageServer

PAGE = "<!doctype html><title>pédale</title>"


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as made:
        made.show(PAGE)
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(
    server: PageServer, path: str, hosts: list[str] | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(ADDRESS, server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    for host in hosts if hosts is not None else [f"{ADDRESS}:{server.server_port}"]:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def test_the_page_is_served_under_its_id(server: PageServer) -> None:
    status, headers, body = ask(server, f"/{server.id}")
    assert (status, body) == (200, PAGE)
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert ask(server, f"/{server.id}", [f"localhost:{server.server_port}"])[0] == 200


def test_only_this_computer_can_ask(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/{server.id}"


def test_every_server_has_an_id_of_its_own(server: PageServer) -> None:
    with PageServer() as other:
        assert other.id != server.id and len(other.id) >= 12


@pytest.mark.parametrize(
    "hosts",
    [[], ["evil.example"], ["127.0.0.1"], ["127.0.0.1:1"], ["evil.example:{port}"],
     ["127.0.0.1.evil.example:{port}"], ["127.0.0.1:{port}", "evil.example"], [""],
     ["[::1]:{port}"], ["127.0.0.1:{port}@evil.example"]],
)  # fmt: skip
def test_a_request_for_another_host_gets_nothing(server: PageServer, hosts: list[str]) -> None:
    named = [host.format(port=server.server_port) for host in hosts]
    status, _, body = ask(server, f"/{server.id}", named)
    assert status == 421
    assert PAGE not in body


@pytest.mark.parametrize(
    "path",
    ["/", "/index.html", "/favicon.ico", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
     "//etc/passwd", "/{id}/", "/{id}/../../etc/passwd", "/{id}?x=1", "/{id}x",
     "http://evil.example/{id}", "/ID"],
)  # fmt: skip
def test_another_path_is_not_found(server: PageServer, path: str) -> None:
    status, _, body = ask(server, path.format(id=server.id))
    assert status == 404
    assert PAGE not in body and "root:" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"])
def test_nothing_can_be_sent(server: PageServer, method: str) -> None:
    assert ask(server, f"/{server.id}", method=method)[0] == 501


def test_head_has_no_body(server: PageServer) -> None:
    status, headers, body = ask(server, f"/{server.id}", method="HEAD")
    assert (status, body, headers["Content-Length"]) == (200, "", str(len(PAGE.encode())))


def test_a_busy_port_is_said_in_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind((ADDRESS, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} of 127.0.0.1 cannot be used .*--port"):
            PageServer(port)
